"""A small client for streamed completions that keeps the facts: times, ids, usage."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import httpx

from warmturn.errors import InvalidInput, PeerError

__all__ = ["Answer", "Client", "Message"]

Message = dict[str, Any]
"""One message of a chat request, as OpenAI's API has it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed reply, measured at the client; times in seconds."""

    text: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """The generated ids as the server reports them (`return_token_ids`)."""
    prompt_tokens: int
    cached_tokens: int | None
    """None where the server does not report it."""
    first_margin: float | None
    """Log-probability of the first token less that of the runner-up; None unless asked for."""
    ttft_s: float
    """From sending the request to the first chunk that carries generated tokens."""
    e2e_s: float

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens that were computed for this request."""
        return self.prompt_tokens - (self.cached_tokens or 0)


class Client:
    """Talks to one server, one request at a time."""

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 600.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`base_url` without `/v1`."""
        try:
            self._http = httpx.Client(base_url=base_url, timeout=timeout_s, trust_env=False)
        except httpx.InvalidURL as error:
            raise InvalidInput(
                f"{base_url!r} is no URL ({error}); give http://HOST:PORT"
            ) from error
        self._clock = clock

    def __enter__(self) -> Self:
        """Use the client in a `with` block."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the connections."""
        self._http.close()

    def get_text(self, path: str) -> str:
        """Return the body of `GET path`. Raises `PeerError`."""
        try:
            return _checked(self._http.get(path)).text
        except httpx.HTTPError as error:
            raise PeerError(f"GET {path} got no answer: {error}") from error

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON answer of `POST path`. Raises `PeerError`."""
        try:
            answer: dict[str, Any] = _checked(self._http.post(path, json=body)).json()
        except httpx.HTTPError as error:
            raise PeerError(f"POST {path} got no answer: {error}") from error
        return answer

    def try_post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | str:
        """Return the JSON answer of `POST path`, or why the server refused it.

        For endpoints that not every server has. Raises `PeerError` where none answers.
        """
        try:
            response = self._http.post(path, json=body)
            if response.is_error:
                return f"{path} answered {response.status_code}: {response.text[:200]}"
            answer = response.json()
        except httpx.HTTPError as error:
            raise PeerError(f"POST {path} got no answer: {error}") from error
        except ValueError:
            return f"{path} did not answer with JSON"
        return answer if isinstance(answer, dict) else f"{path} answered with no JSON object"

    def model_name(self) -> str:
        """Return the name of the first model the server has."""
        text = self.get_text("/v1/models")
        try:
            return str(json.loads(text)["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise PeerError(
                f"/v1/models named no model but answered {text[:80]!r}; is this the base URL of an "
                "OpenAI-compatible server?"
            ) from error

    def chat(self, messages: list[Message], **fields: Any) -> Answer:
        """Send a streamed chat completion; `fields` join the body as they are."""
        return self._stream("/v1/chat/completions", {"messages": messages, **fields})

    def complete(self, prompt_token_ids: list[int], **fields: Any) -> Answer:
        """Send a streamed completion of token ids; `fields` join the body as they are."""
        return self._stream("/v1/completions", {"prompt": prompt_token_ids, **fields})

    def _stream(self, path: str, body: dict[str, Any]) -> Answer:
        body = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            **body,
        }
        start = self._clock()
        reply = _Reply()
        try:
            with self._http.stream("POST", path, json=body) as response:
                if response.is_error:
                    response.read()
                for event in _events(_checked(response)):
                    reply.add(event, self._clock() - start)
        except httpx.HTTPError as error:
            raise PeerError(f"POST {path} broke off: {type(error).__name__}: {error}") from error
        return reply.answer(self._clock() - start)


class _Reply:
    """Gathers the chunks of one stream."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.prompt_ids: list[int] = []
        self.ids: list[int] = []
        self.usage: dict[str, Any] = {}
        self.ttft_s: float | None = None
        self.first_margin: float | None = None

    def add(self, event: dict[str, Any], at_s: float) -> None:
        if "error" in event:
            raise PeerError(f"the server ended the stream with: {event['error'].get('message')}")
        self.prompt_ids += event.get("prompt_token_ids") or []
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices", []):
            new = choice.get("token_ids") or []
            piece = choice.get("text") or choice.get("delta", {}).get("content") or ""
            if self.ttft_s is None and (new or piece):
                self.ttft_s = at_s
                self.first_margin = _margin(choice.get("logprobs"))
            self.prompt_ids += choice.get("prompt_token_ids") or []
            self.ids += new
            self.text.append(piece)

    def answer(self, e2e_s: float) -> Answer:
        details = self.usage.get("prompt_tokens_details") or {}
        return Answer(
            text="".join(self.text),
            prompt_token_ids=tuple(self.prompt_ids),
            token_ids=tuple(self.ids),
            prompt_tokens=int(self.usage.get("prompt_tokens", len(self.prompt_ids))),
            cached_tokens=details.get("cached_tokens"),
            first_margin=self.first_margin,
            ttft_s=e2e_s if self.ttft_s is None else self.ttft_s,
            e2e_s=e2e_s,
        )


def _margin(logprobs: dict[str, Any] | None) -> float | None:
    """Return best less second-best logprob of the first token, of either API's form."""
    if not logprobs:
        return None
    if logprobs.get("content"):
        values = [top["logprob"] for top in logprobs["content"][0]["top_logprobs"]]
    else:
        values = list((logprobs.get("top_logprobs") or [{}])[0].values())
    best = sorted(values, reverse=True)
    return best[0] - best[1] if len(best) > 1 else None


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each server-sent event until `[DONE]`."""
    for line in response.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield _event(line.removeprefix("data: "))


def _event(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError as error:
        raise PeerError(f"the stream holds an event that is not JSON: {text[:80]!r}") from error
    if not isinstance(event, dict):
        raise PeerError(f"the stream holds an event that is no JSON object: {text[:80]!r}")
    return event


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_error:
        raise PeerError(f"{response.url.path} answered {response.status_code}: {response.text}")
    return response
