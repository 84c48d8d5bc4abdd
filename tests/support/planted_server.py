"""A server that renders with a template of the test's choice, after doing something to the messages."""

import json
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from warmturn.render import ChatTemplate, Tokenizer

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)


class PlantedServer:
    """`/tokenize` (or `/v1/chat/completions/render`, `/apply-template`) of an odd server."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, *, path="/tokenize") -> None:
        self.template = template
        self.tokenizer = tokenizer
        self.read_reasoning = ("reasoning", "reasoning_content")
        self.parses_arguments = True
        self.reads_kwargs = True
        self.prints_tools = True
        self.completes_tools = False
        self.prefix_ids: list[int] = []
        self.bodies: list[dict] = []
        self._path = path
        self.app = Starlette(routes=[Route(path, self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.bodies.append(body)
        text = self.template.render(
            [self._read(message) for message in body["messages"]],
            now=NOW,
            tools=self._tools(body) if self.prints_tools else None,
            **(body.get("chat_template_kwargs", {}) if self.reads_kwargs else {}),
        )
        if self._path == "/apply-template":
            return JSONResponse({"prompt": text})
        ids = [*self.prefix_ids, *self.tokenizer.encode(text).tolist()]
        key = "tokens" if self._path == "/tokenize" else "token_ids"
        return JSONResponse({key: ids, "count": len(ids)})

    def _tools(self, body: dict) -> list[dict] | None:
        tools = body.get("tools")
        if not self.completes_tools or tools is None:
            return tools
        names = ("name", "description", "parameters")
        return [
            {"type": "function", "function": {name: tool["function"].get(name) for name in names}}
            for tool in tools
        ]

    def _read(self, message: dict) -> dict:
        fields = ("reasoning", "reasoning_content", "thinking")
        read = {key: value for key, value in message.items() if key not in fields}
        reasoning = [message[key] for key in self.read_reasoning if message.get(key)]
        if reasoning:
            read["reasoning_content"] = reasoning[0]
        if self.parses_arguments and message.get("tool_calls"):
            read["tool_calls"] = [_parsed(call) for call in message["tool_calls"]]
        return read


def _parsed(call: dict) -> dict:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
