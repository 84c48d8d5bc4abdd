"""Files and bodies in: OpenAI request bodies now, logs and traces later.

Comes in: bytes. Goes out: frozen requests whose every field has been checked, or
`InvalidRequest` that names the field. Renders nothing and knows neither template,
tokenizer nor engine.
"""

from warmturn.formats.body import read_json
from warmturn.formats.generation import Generation, StreamOptions
from warmturn.formats.openai import (
    DetokenizeRequest,
    GenerateRequest,
    TokenizeRequest,
    chat_request,
    completion_request,
    detokenize_request,
    ignored_fields,
    tokenize_request,
)
from warmturn.formats.prompt import ChatPrompt, TextPrompt
from warmturn.formats.stream_usage import StreamUsage, upstream_stream_options, wants_usage

__all__ = [
    "ChatPrompt",
    "DetokenizeRequest",
    "GenerateRequest",
    "Generation",
    "StreamOptions",
    "StreamUsage",
    "TextPrompt",
    "TokenizeRequest",
    "chat_request",
    "completion_request",
    "detokenize_request",
    "ignored_fields",
    "read_json",
    "tokenize_request",
    "upstream_stream_options",
    "wants_usage",
]
