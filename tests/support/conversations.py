"""Conversation shapes that templates treat differently; plain JSON data."""

from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather, <b>today</b> & tomorrow's.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City — é, 東京"},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                },
                "required": ["city"],
            },
        },
    }
]

DOCUMENTS: list[dict[str, Any]] = [{"title": "Tea", "text": "Tea is a drink."}]


def _call(arguments: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": "call00001", "type": "function", "function": function}


def _with_call(arguments: Any, **extra: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Weather in Paris?"},
        {"role": "assistant", "content": "", "tool_calls": [_call(arguments)], **extra},
        {
            "role": "tool",
            "tool_call_id": "call00001",
            "name": "get_weather",
            "content": '{"t": 21}',
        },
        {"role": "assistant", "content": "It is 21 degrees."},
        {"role": "user", "content": "And in Rome?"},
    ]


_SYSTEM = {"role": "system", "content": "You are terse."}
_TURN = [
    {"role": "user", "content": "  What is 2 + 2?\n"},
    {"role": "assistant", "content": "4\n\n"},
    {"role": "user", "content": "And <b>3 + 3</b>?"},
]

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one question": {"messages": [{"role": "user", "content": "Hi"}]},
    "system and a turn": {"messages": [_SYSTEM, *_TURN]},
    "no system, a turn": {"messages": _TURN},
    "developer": {"messages": [{"role": "developer", "content": "Be kind."}, *_TURN]},
    "unicode": {
        "messages": [
            {"role": "user", "content": "e\u0301 \u00e9 👩\u200d💻 中国 \U0001f1eb\U0001f1f7"}
        ]
    },
    "tools": {"messages": [_SYSTEM, *_TURN], "tools": TOOLS},
    "tool call with an object": {"messages": _with_call({"city": "Paris"}), "tools": TOOLS},
    "tool call with a string": {"messages": _with_call('{"city": "Paris"}'), "tools": TOOLS},
    "tool call with reasoning": {
        "messages": _with_call({"city": "Paris"}, reasoning_content="Look it up."),
        "tools": TOOLS,
    },
    "reasoning": {
        "messages": [
            _TURN[0],
            {"role": "assistant", "content": "4", "reasoning": "Add them."},
            _TURN[2],
        ]
    },
    "reasoning inside the content": {
        "messages": [
            _TURN[0],
            {"role": "assistant", "content": "<think>\nAdd\n</think>\n\n4"},
            _TURN[2],
        ]
    },
    "content parts": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}],
            },
        ]
    },
    "ends with the assistant": {"messages": [*_TURN, {"role": "assistant", "content": "It is "}]},
    "parallel calls": {
        "messages": [
            _TURN[0],
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [_call({"city": "Paris"}), _call({"city": "Oslo"})],
            },
            {"role": "tool", "tool_call_id": "call00001", "content": "21"},
            {"role": "tool", "tool_call_id": "call00001", "content": "7"},
        ],
        "tools": TOOLS,
    },
    "documents": {"messages": _TURN, "documents": DOCUMENTS},
    "unknown role": {"messages": [{"role": "narrator", "content": "Once."}]},
    "no messages": {"messages": []},
    "thinking switched off": {"messages": _TURN, "enable_thinking": False},
}
"""Name → arguments of a render: messages, and tools, documents or template variables."""
