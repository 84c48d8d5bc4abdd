"""An OpenAI response, with what vLLM and llama.cpp add to it, to the reply of a request.

Whole responses and lists of streamed chunks. Of several choices the first is taken: the
others are alternatives that the conversation did not go on with.
"""

from typing import Any

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject

__all__ = ["is_response", "reply_parts", "usage_parts"]


def is_response(value: object) -> bool:
    """Whether this is an OpenAI response or a list of its streamed chunks."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and isinstance(first.get("choices"), list)


def reply_parts(response: JsonObject | list[Any]) -> JsonObject:
    """Return what a response says, as fields of `LoggedRequest` by name.

    Raises `InvalidInput` for token ids or messages that are none.
    """
    if isinstance(response, list):
        response = _merged(response)
    choice = _first_choice(response)
    message = fields.mapping(choice, "message")
    if message is not None:
        message = fields.messages([{"role": "assistant", **message}], name="choices.message")[0]
    prompt_ids = response.get("prompt_token_ids", choice.get("prompt_token_ids"))
    return {
        "request_id": fields.text(response, "id"),
        "model": fields.text(response, "model"),
        "timestamp_s": fields.seconds(response, "created"),
        "prompt_text": fields.text(response, "prompt_text"),
        "prompt_token_ids": fields.token_ids(prompt_ids, name="prompt_token_ids"),
        "reply": message,
        "reply_text": None if message else fields.written(choice, "text"),
        "reply_token_ids": fields.token_ids(choice.get("token_ids"), name="token_ids"),
        "finish_reason": fields.text(choice, "finish_reason"),
        **usage_parts(response),
    }


def usage_parts(response: JsonObject) -> JsonObject:
    """Return the token counts of a response: OpenAI's usage, else llama.cpp's timings."""
    usage = fields.mapping(response, "usage") or {}
    details = fields.mapping(usage, "prompt_tokens_details") or {}
    timings = fields.mapping(response, "timings") or {}
    cached = fields.count(details, "cached_tokens")
    if cached is None:
        cached = fields.count(timings, "cache_n")
    prompt = fields.count(usage, "prompt_tokens")
    if prompt is None and "prompt_n" in timings:
        # prompt_n counts the tokens that were computed, not those of the prompt.
        prompt = (fields.count(timings, "prompt_n") or 0) + (cached or 0)
    completion = fields.count(usage, "completion_tokens")
    if completion is None:
        completion = fields.count(timings, "predicted_n")
    return {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}


def _first_choice(response: JsonObject) -> JsonObject:
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return {}
    return choices[0]


def _merged(chunks: list[Any]) -> JsonObject:
    """Put streamed chunks together. Prompt ids are in the first, output ids in each."""
    whole: JsonObject = {}
    choice: JsonObject = {}
    for chunk in chunks:
        if not isinstance(chunk, dict):
            raise InvalidInput("a streamed chunk is not an object")
        whole.update({name: value for name, value in chunk.items() if value is not None})
        part = _first_choice(chunk)
        if part.get("index", 0) == 0:
            _add_choice(choice, part)
    return {**whole, "choices": [choice]}


def _add_choice(choice: JsonObject, part: JsonObject) -> None:
    for name in ("finish_reason", "prompt_token_ids"):
        if part.get(name) is not None:
            choice[name] = part[name]
    if isinstance(part.get("text"), str):
        choice["text"] = choice.get("text", "") + part["text"]
    ids = fields.token_ids(part.get("token_ids"), name="token_ids")
    if ids is not None:
        choice["token_ids"] = [*choice.get("token_ids", ()), *ids]
    delta = fields.mapping(part, "delta")
    if delta is not None:
        _add_delta(choice.setdefault("message", {"role": "assistant", "content": None}), delta)


def _add_delta(message: JsonObject, delta: JsonObject) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            _add_calls(message.setdefault("tool_calls", []), value)
        elif name != "role" and isinstance(value, str):
            message[name] = (message.get(name) or "") + value


def _add_calls(calls: list[JsonObject], deltas: object) -> None:
    """Join pieces of tool calls: the first piece has id and name, the rest add arguments."""
    for delta in deltas if isinstance(deltas, list) else ():
        if not isinstance(delta, dict):
            raise InvalidInput("a streamed tool call is not an object")
        at = fields.count(delta, "index") or 0
        if at > len(calls):
            raise InvalidInput(f"a streamed tool call has index {at} after {len(calls)} calls")
        function = fields.mapping(delta, "function") or {}
        if at == len(calls):
            call = {"id": delta.get("id"), "type": "function"}
            calls.append({**call, "function": {"name": function.get("name"), "arguments": ""}})
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            calls[at]["function"]["arguments"] += arguments
