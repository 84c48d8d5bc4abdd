"""Logged requests in two lines, and templates small enough to count characters in."""

from typing import Any

from warmturn.check import CheckReport, TurnCheck, check_conversations, check_turn
from warmturn.formats.record import LoggedRequest
from warmturn.render import ChatTemplate

PLAIN = """\
{%- for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% for m in messages %}<|{{ m.role }}|>
{%- if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}
{{- p.text if p.type == 'text' else '<img>' }}{% endfor %}{% endif %}
{%- for call in m.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}<|end|>
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
"""Prints tools first, then `<|role|>content<|end|>`: no ids, no reasoning."""


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def assistant(text: str = "", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def request(*messages: dict[str, Any], **fields: Any) -> LoggedRequest:
    """Return a request; `output` is the raw reply, `name` its id."""
    blank: dict[str, Any] = dict.fromkeys(LoggedRequest.__dataclass_fields__)
    blank |= {"source": "test", "line": 1, "template_kwargs": {}, "level": "full"}
    renamed = {"output": "reply_text", "name": "request_id", "ts": "timestamp_s"}
    given = {renamed.get(key, key): value for key, value in fields.items()}
    if isinstance(given.get("tools"), list):
        given["tools"] = tuple(given["tools"])
    return LoggedRequest(**blank | {"messages": messages} | given)


def template(source: str = PLAIN, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens=special_tokens)


def turn(
    earlier: LoggedRequest, later: LoggedRequest, source: str = PLAIN, **options: Any
) -> TurnCheck:
    options.setdefault("preparation", "as_logged")
    return check_turn(earlier, later, template=template(source), **options)


def report(*requests: LoggedRequest, source: str = PLAIN, **options: Any) -> CheckReport:
    options.setdefault("preparation", "as_logged")
    return check_conversations(requests, template=template(source), **options)
