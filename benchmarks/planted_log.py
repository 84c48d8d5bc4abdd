"""Write a log whose causes are known: one planted cause per conversation, and clean ones.

    python benchmarks/planted_log.py --seed 7 --conversations 200 log.jsonl truth.json

Each line is an OpenAI request with its response; the truth says for each conversation what was
planted and which requests it breaks. Phrasing, place and form vary with the seed: a clock may be
ISO, RFC 2822, an epoch or `10:03`, German or French, in front of the system text or inside it.
"""

import argparse
import json
import random
import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

CLEAN = ("clean", "clean_tools", "clean_retry", "clean_fork", "clean_side", "clean_hours")
CAUSES = {
    "clock": "client.timestamp_in_system",
    "request_id": "client.volatile_value_in_system",
    "user_data": "client.user_data_in_system",
    "tool_order": "client.tools_reordered",
    "tool_set": "client.tools_changed",
    "schema_keys": "client.tool_schema_key_order",
    "argument_keys": "client.tool_args_key_order",
    "call_ids": "client.tool_call_id_rewritten",
    "block": "client.injected_block_moved",
    "window": "client.history_window_slide",
    "summary": "client.history_summarised",
    "trim": "client.content_trimmed",
    "reasoning": "client.reasoning_not_echoed",
    "image": "client.image_pruned",
}
"""What is planted → the name the checker gives it."""

TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}

{%- if m.role == 'assistant' %}

<think>
{{ m.reasoning_content or '' }}
</think>
{% else %}

{% endif %}
{%- if m.content is string %}{{ m.content }}{% else %}{% for part in m.content or [] %}
{{- part.text if part.type == 'text' else '<|image|>' + (part.image_url.url if part.image_url else '') }}
{%- endfor %}{% endif %}
{%- for call in m.tool_calls or [] %}<tool_call>{{ call.id }} {"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
"""A chat template that prints all it is given, so that the client alone is to blame."""

_WORDS = (  # noqa: SIM905 - a list of forty words reads worse
    "the cache of tokens is kept in blocks and a request that begins with the same prefix can "
    "reuse them while memory lasts so keep what was said as it was said order price garden river "
    "window lamp engine paper winter harbour ticket music"
).split()
_NAMES = ("Anna Schmidt", "Bo Li", "Ravi", "María López", "J. Smith", "Zoë", "Ngozi Okafor")
_CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Graz", "New York")


@dataclass
class Conversation:
    """One conversation while it is written: what the client keeps, and what it sends."""

    rng: random.Random
    name: str
    cause: str
    start: datetime
    system: str
    tools: list[dict[str, Any]]
    history: list[dict[str, Any]] = field(default_factory=list)
    form: int = 0
    last_tools: list[dict[str, Any]] | None = None


@dataclass
class Log:
    """Rows in the order they were sent, and the truth beside them."""

    rows: list[dict[str, Any]]
    truth: dict[str, dict[str, Any]]


def planted_log(
    *, seed: int, num_conversations: int = 200, num_turns: int = 6, with_ids: bool = True
) -> Log:
    """Return a log; every cause, and every clean kind, about equally often."""
    rng = random.Random(seed)
    kinds = [*CAUSES, *CLEAN]
    conversations = [_conversation(rng, i, kinds[i % len(kinds)]) for i in range(num_conversations)]
    truth: dict[str, dict[str, Any]] = {}
    timed: list[tuple[float, dict[str, Any]]] = []
    for one in conversations:
        broken = []
        for row, is_broken in _rows(one, num_turns):
            timed.append((row["timestamp"], row))
            if is_broken:
                broken.append(row["request_id"])
            if with_ids:
                row["conversation_id"] = one.name
        truth[one.name] = {
            "planted": one.cause,
            "cause": CAUSES.get(one.cause),
            "broken": broken,
            # Where a summary leaves no message in place, only an id ties the turns together.
            "needs_id": one.cause == "summary" and one.form % 2 == 0,
        }
    return Log([row for _, row in sorted(timed, key=lambda pair: pair[0])], truth)


def _conversation(rng: random.Random, number: int, cause: str) -> Conversation:
    tools = [_tool(rng, i) for i in range(rng.randint(3, 6))]
    opening = rng.choice(
        ["You are a support agent.", "Du bist ein Assistent.", "Act as a planner."]
    )
    lines = [opening, *(_text(rng, rng.randint(15, 60)).capitalize() + "." for _ in range(4))]
    start = datetime(2026, 11, 29, 8, tzinfo=UTC) + timedelta(seconds=rng.uniform(0, 30000))
    system = rng.choice(["\n", " ", "\n\n"]).join(lines)
    return Conversation(
        rng, f"conv-{number:03d}", cause, start, system, tools, form=rng.randrange(1000)
    )


def _rows(one: Conversation, num_turns: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each request with whether the planted cause breaks it."""
    sent_before: list[dict[str, Any]] | None = None
    for turn in range(num_turns):
        now = one.start + timedelta(seconds=97.0 * turn + one.rng.uniform(0, 20))
        question = {"role": "user", "content": f"{_text(one.rng, 12)} {turn}?"}
        one.history.append(question)
        messages, tools = _sent(one, turn, now)
        reply = _reply(one, turn)
        yield _row(one, turn, now, messages, tools, reply), _is_broken(one, turn, sent_before)
        sent_before = messages
        yield from _extra(one, turn, now, messages, tools)
        one.history.append(reply)
        for call in reply.get("tool_calls", []):
            result = {"role": "tool", "tool_call_id": call["id"], "content": _text(one.rng, 8)}
            one.history.append(result)


def _is_broken(one: Conversation, turn: int, before: list[dict[str, Any]] | None) -> bool:
    if one.cause in CLEAN or before is None:
        return False
    first_turn = {"window": 3, "summary": 3, "argument_keys": 2, "call_ids": 2, "trim": 2}
    return turn >= first_turn.get(one.cause, 1)


def _sent(
    one: Conversation, turn: int, now: datetime
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    messages = [{"role": "system", "content": one.system}, *deepcopy(one.history)]
    tools = deepcopy(one.tools)
    _PLANT.get(one.cause, lambda *_: None)(one, turn, now, messages, tools)
    return messages, tools


def _row(
    one: Conversation,
    turn: int,
    now: datetime,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    reply: dict[str, Any],
) -> dict[str, Any]:
    return {
        "request_id": f"{one.name}-t{turn}",
        "timestamp": now.timestamp(),
        "model": "m",
        "messages": messages,
        "tools": tools,
        "reply": reply,
    }


def _extra(
    one: Conversation,
    turn: int,
    now: datetime,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield what stands beside a clean conversation: a retry, a fork, a side request."""
    later = now + timedelta(seconds=5)
    answer = {"role": "assistant", "content": _text(one.rng, 20), "reasoning_content": "Hm."}
    if one.cause == "clean_retry" and turn % 2:
        yield (
            _row(one, turn, later, messages, tools, answer) | {"request_id": f"{one.name}-r{turn}"},
            False,
        )
    if one.cause == "clean_fork" and turn == 3:
        forked = [*messages[:-1], {"role": "user", "content": _text(one.rng, 9)}]
        yield (
            _row(one, turn, later, forked, tools, answer) | {"request_id": f"{one.name}-f{turn}"},
            False,
        )
    if one.cause == "clean_side":
        side = [
            {"role": "system", "content": "Write a title of five words for the conversation."},
            {"role": "user", "content": messages[-1]["content"]},
        ]
        yield (
            _row(one, turn, later, side, [], answer) | {"request_id": f"{one.name}-s{turn}"},
            False,
        )


def _reply(one: Conversation, turn: int) -> dict[str, Any]:
    rng = one.rng
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": _text(rng, rng.randint(20, 50)),
        "reasoning_content": _text(rng, 10),
    }
    if one.cause == "trim":
        reply["content"] += rng.choice(["\n\n", " ", "\n", "  \n"])
    calls = {"argument_keys": turn == 0, "call_ids": turn == 0, "clean_tools": turn % 2 == 1}
    if calls.get(one.cause):
        arguments = {"city": rng.choice(_CITIES), "days": rng.randint(1, 9), "unit": "c", "x": [1]}
        call = {"name": one.tools[0]["function"]["name"], "arguments": json.dumps(arguments)}
        reply["tool_calls"] = [
            {"id": f"call_{rng.randrange(16**8):08x}", "type": "function", "function": call}
        ]
    return reply


def _text(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(num_words))


def _tool(rng: random.Random, number: int) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": _text(rng, 4)} for name in "abc"}
    parameters = {"type": "object", "properties": properties, "required": ["a", "b"]}
    function = {
        "name": f"{rng.choice(['get', 'find', 'mcp__fs__', 'do'])}_{number}",
        "description": _text(rng, 12),
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


Plant = Callable[[Conversation, int, datetime, list[dict[str, Any]], list[dict[str, Any]]], object]


def _put_into_system(one: Conversation, messages: list[dict[str, Any]], line: str) -> None:
    """Put a line in front of the system text, at its end, or between its lines."""
    lines = one.system.split("\n")
    at = (0, len(lines), len(lines) // 2)[one.form % 3]
    joined = "\n".join([*lines[:at], line, *lines[at:]])
    messages[0]["content"] = joined if len(lines) > 1 or at else f"{line} {one.system}"


def _clock(one: Conversation, _turn: int, now: datetime, messages: Any, _tools: Any) -> None:
    days = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag")
    forms = (
        f"Current time: {now.isoformat(timespec='seconds')}",
        f"The current date and time is {now:%A, %B %d, %Y %I:%M %p}.",
        f"Date: {now:%a, %d %b %Y %H:%M:%S +0000}",
        f"timestamp={int(now.timestamp())}",
        f"now: {now.timestamp() * 1000:.0f}",
        f"It is {now:%H:%M} on {now:%Y-%m-%d}.",
        f"<time>{now:%H:%M}</time>",
        f"Heute ist {days[now.weekday()]}, der {now:%d.%m.%Y}, {now:%H:%M} Uhr.",
        f"Nous sommes le {now:%d/%m/%Y} à {now:%Hh%M}.",
        f"[{now:%Y%m%dT%H%M%SZ}]",
        f"Time now {now:%I:%M %p}",
        f"当前时间 {now.year}年{now.month}月{now.day}日 {now:%H:%M}",
        f"Today's date: {now:%m/%d/%Y, %H:%M:%S}",
        f"Session clock {now:%Y-%m-%d %H:%M:%S.%f}",
    )
    _put_into_system(one, messages, forms[one.form % len(forms)])


def _request_id(one: Conversation, turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    rng = one.rng
    crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    token = uuid.UUID(int=rng.getrandbits(128), version=4)
    forms = (
        f"Request-ID: {token}",
        f"x-trace: {rng.getrandbits(64):016x}",
        f"[req {''.join(rng.choice(crockford) for _ in range(26))}]",
        f"x-billing: version=1.{one.form}; entry=cli; cch={rng.getrandbits(20):05x};",
        f"checksum {rng.getrandbits(128):032x}",
        f"nonce={rng.randrange(10**9)}",
        f"Correlation id {token.hex}.",
        f"<!-- build {rng.getrandbits(28):07x} -->",
        f"Request number {turn + 1 + one.form}",
        f'{{"seed": {rng.randrange(10**6)}}}',
    )
    _put_into_system(one, messages, forms[one.form % len(forms)])


def _user_data(one: Conversation, turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    rng = one.rng
    name, city = _NAMES[(one.form + turn) % len(_NAMES)], _CITIES[(one.form + turn) % len(_CITIES)]
    forms = (
        f"User: {name}",
        f"You are talking to {name} from {city}.",
        f"Customer name: {name}; city: {city}",
        f"user_email={name.split()[0].lower()}{turn}@example.com",
        f"Account balance: {rng.randint(1, 999)}.{rng.randint(10, 99)} EUR",
        f"Cart: {turn + 1} items, {rng.choice(_WORDS)} and {rng.choice(_WORDS)}",
        f"Memory about the user: {_text(rng, 9)}",
        f"Retrieved documents:\n- {_text(rng, 25)}\n- {_text(rng, 25)}",
        f"Der Benutzer heißt {name}.",
        f"Location of the user is {city}",
        f"<user_profile>{name}, {city}, {20 + turn}</user_profile>",
    )
    _put_into_system(one, messages, forms[one.form % len(forms)])


def _tool_order(one: Conversation, turn: int, _now: Any, _messages: Any, tools: Any) -> None:
    """Turn or shuffle the list, but never into the order of the turn before."""
    turned = turn % len(tools)
    tools[:] = tools[turned:] + tools[:turned]
    if one.form % 2:
        one.rng.shuffle(tools)
    if tools == one.last_tools:
        tools.reverse()
    one.last_tools = deepcopy(tools)


def _tool_set(one: Conversation, turn: int, _now: Any, _messages: Any, tools: Any) -> None:
    if one.form % 3 == 0:
        del tools[turn % len(tools)]
    elif one.form % 3 == 1:
        tools.insert(one.form % len(tools), _tool(one.rng, 100 + turn))
    else:
        tools[turn % len(tools)]["function"]["description"] = _text(one.rng, 6)


def _shuffled(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        items = [(key, _shuffled(rng, item)) for key, item in value.items()]
        return dict(rng.sample(items, len(items)))
    return value


def _schema_keys(one: Conversation, turn: int, _now: Any, _messages: Any, tools: Any) -> None:
    for tool in tools:
        function = tool["function"]
        shuffled = _shuffled(one.rng, function["parameters"])
        # A turn of the keys by the number of the turn: never the same twice in a row.
        items = list(shuffled.items())
        items.sort(key=lambda item: ("type", "properties", "required").index(item[0]))
        function["parameters"] = dict(items[turn % 3 :] + items[: turn % 3])


def _argument_keys(one: Conversation, turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    for message in messages if turn >= 2 else []:
        for call in message.get("tool_calls", []):
            items = list(json.loads(call["function"]["arguments"]).items())
            turned = turn % len(items)
            arguments = dict(items[turned:] + items[:turned])
            is_compact = one.form % 2
            separators = (",", ":") if is_compact else (", ", ": ")
            call["function"]["arguments"] = json.dumps(arguments, separators=separators)


def _call_ids(one: Conversation, turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    new = f"{('call_', 'tooluse_', 'chatcmpl-tool-')[one.form % 3]}{one.rng.randrange(16**8):08x}"
    for message in messages if turn >= 2 else []:
        for call in message.get("tool_calls", []):
            call["id"] = new
        if message["role"] == "tool":
            message["tool_call_id"] = new


def _block(one: Conversation, turn: int, now: datetime, messages: Any, _tools: Any) -> None:
    """A block in the newest user message only, or a message of its own at the end."""
    blocks = (
        f"<system-reminder>{one.name} keep answers short</system-reminder>",
        f"<environment>\ncwd: /srv/{one.name}\ntime: {now:%H:%M}\n</environment>",
        f"[Context: file {one.name}.py is open, line {turn + 10}]",
        "Remember: answer in the user's language and cite the order number.",
        f"## Workspace\nbranch main, {turn + 2} files changed",
    )
    block = blocks[one.form % len(blocks)]
    if one.form % 4 == 3 and block.startswith(("<", "[", "#")):
        messages.append({"role": "user", "content": block})
        return
    text = messages[-1]["content"]
    messages[-1]["content"] = f"{block}\n\n{text}" if one.form % 2 else f"{text}\n\n{block}"


def _window(_one: Conversation, _turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    kept = 5
    if len(messages) > kept + 1:
        messages[1:] = messages[-kept:]


def _summary(one: Conversation, turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    kept = (1, 3)[one.form % 2]
    if turn < 3:
        return
    opening = ("Summary so far:", "Previously:", "Bisheriger Verlauf:", "Conversation recap -")
    text = f"{opening[one.form % 4]} {_text(one.rng, 40)}"
    form = one.form % 3
    if form == 0:
        messages[1:] = messages[-kept:]
        messages[0]["content"] += f"\n\n{text}"
    elif form == 1:
        messages[1:] = [{"role": "user", "content": text}, *messages[-kept:]]
    else:
        pair = [{"role": "user", "content": text}, {"role": "assistant", "content": "Understood."}]
        messages[1:] = [*pair, *messages[-kept:]]


def _trim(_one: Conversation, _turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    """Answers older than the newest are stored trimmed."""
    for message in messages[:-2]:
        if message["role"] == "assistant":
            message["content"] = message["content"].strip()


def _reasoning(_one: Conversation, _turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    for message in messages:
        message.pop("reasoning_content", None)


def _image(one: Conversation, _turn: int, _now: Any, messages: Any, _tools: Any) -> None:
    """Each question comes with an image, and only the newest keeps its own."""
    for index, message in enumerate(messages):
        if message["role"] == "user":
            url = f"data:image/png;base64,{one.form:06d}{index}"
            image: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
            if index < len(messages) - 1:
                image = {"type": "text", "text": "[image removed]"}
            message["content"] = [{"type": "text", "text": message["content"]}, image]


_PLANT: dict[str, Plant] = {
    "clock": _clock,
    "request_id": _request_id,
    "user_data": _user_data,
    "tool_order": _tool_order,
    "tool_set": _tool_set,
    "schema_keys": _schema_keys,
    "argument_keys": _argument_keys,
    "call_ids": _call_ids,
    "block": _block,
    "window": _window,
    "summary": _summary,
    "trim": _trim,
    "reasoning": _reasoning,
    "image": _image,
    "clean_hours": lambda one, _turn, _now, messages, _tools: _put_into_system(
        one, messages, "We are open 9:00 to 17:30; version 1.4.2 of 2026-01-05."
    ),
}


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--conversations", type=int, default=200)
    arguments.add_argument("--turns", type=int, default=6)
    arguments.add_argument("--no-ids", action="store_true", help="leave out conversation ids")
    arguments.add_argument("log", type=Path)
    arguments.add_argument("truth", type=Path)
    given = arguments.parse_args()
    made = planted_log(
        seed=given.seed,
        num_conversations=given.conversations,
        num_turns=given.turns,
        with_ids=not given.no_ids,
    )
    lines = [json.dumps(as_response(row), ensure_ascii=False) for row in made.rows]
    given.log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    given.truth.write_text(json.dumps(made.truth, indent=1) + "\n", encoding="utf-8")


def as_response(row: dict[str, Any]) -> dict[str, Any]:
    """Give the reply the place it has in an OpenAI response."""
    request = {key: value for key, value in row.items() if key != "reply"}
    choice = {"index": 0, "message": row["reply"], "finish_reason": "stop"}
    return request | {"response": {"choices": [choice]}}


if __name__ == "__main__":
    main()
