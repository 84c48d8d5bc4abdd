"""Inference calls as the gateway's data path reads them, and turns driven through a steering."""

import json

import msgspec

from warmturn.gateway.turns import Api, Call, CallFields, Ending, Outcome, Usage

_fields = msgspec.json.Decoder(CallFields)


def call(body=None, *, api=Api.CHAT, received_s=0.0, **headers) -> Call:
    """A call with `body`; underscores of header names stand for hyphens."""
    data = json.dumps(body if body is not None else chat("hello")).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Call(api, "/v1/chat/completions", named, data, _fields.decode(data), received_s)


def chat(*texts, model="m", **fields) -> dict:
    """A chat whose user and assistant take turns, the user first."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"model": model, "messages": messages, **fields}


def usage(prompt=100, cached=0, completion=10) -> Usage:
    return Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


def complete(**usage_or_more) -> Outcome:
    """An answer that came as it should."""
    return Outcome(Ending.COMPLETE, 200, **usage_or_more)


def drive(steering, a_call, *, now, took_s=0.5, outcome=None):
    """One whole turn; returns it."""
    turn = steering.admit(a_call, now)
    steering.place(turn, now)
    steering.sent(turn, now)
    steering.first_byte(turn, now + took_s / 2)
    steering.ended(turn, outcome or complete(usage=usage()), now + took_s)
    return turn
