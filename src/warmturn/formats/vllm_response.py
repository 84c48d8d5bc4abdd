"""vLLM responses with `return_token_ids`, alone or beside their requests.

The ids are those the engine used, so nothing has to be tokenised again. A response alone
is enough: it carries the prompt's ids.
"""

from collections.abc import Iterator
from typing import Any

from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, joined, one_by_one
from warmturn.formats.openai_log import envelope_parts, opened, request_parts
from warmturn.formats.openai_reply import is_response, reply_parts
from warmturn.formats.record import LoggedRequest

__all__ = ["VLLM"]


def _recognises(record: JsonObject) -> bool:
    body, response = opened(record)
    if not is_response(response):
        return False
    first = response[0] if isinstance(response, list) else response
    choices = [choice for choice in first["choices"] if isinstance(choice, dict)]
    holders: list[Any] = [first, *choices]
    return "token_ids" in body or any(
        holder.get(name) is not None
        for holder in holders
        for name in ("prompt_token_ids", "token_ids")
    )


def _convert(entry: Entry) -> Iterator[LoggedRequest]:
    body, response = opened(entry.value)
    # /inference/v1/generate takes the prompt as `token_ids`.
    prompt = {"prompt_token_ids": fields.token_ids(body.get("token_ids"), name="token_ids")}
    reply = reply_parts(response) if is_response(response) else {}
    yield joined(entry, envelope_parts(entry.value), request_parts(body), prompt, reply)


VLLM = Format(
    name="vllm",
    about="vLLM responses with return_token_ids, alone or with their requests",
    level="full",
    recognises=_recognises,
    read=one_by_one(_convert),
)
