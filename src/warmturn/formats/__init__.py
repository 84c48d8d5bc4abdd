"""Files and bodies in: OpenAI request bodies, and request logs of ten formats.

Comes in: bytes. Goes out: frozen requests whose every field has been checked, or
`InvalidRequest` that names the field; of a log, a `LoggedRequest` for each request and a
`BadLine` for what cannot be read. Renders nothing and knows neither template, tokenizer
nor engine.
"""

from warmturn.formats.body import read_json
from warmturn.formats.detect import FORMATS, detect_format
from warmturn.formats.error_answer import (
    anthropic_error,
    error_event,
    openai_error,
    responses_error_event,
)
from warmturn.formats.format import Format
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
from warmturn.formats.reading import read_log, read_stream
from warmturn.formats.record import BadLine, LoggedRequest
from warmturn.formats.stream_usage import (
    AnswerUsage,
    StreamUsage,
    read_answer_usage,
    upstream_stream_options,
    wants_usage,
)

__all__ = [
    "FORMATS",
    "AnswerUsage",
    "BadLine",
    "ChatPrompt",
    "DetokenizeRequest",
    "Format",
    "GenerateRequest",
    "Generation",
    "LoggedRequest",
    "StreamOptions",
    "StreamUsage",
    "TextPrompt",
    "TokenizeRequest",
    "anthropic_error",
    "chat_request",
    "completion_request",
    "detect_format",
    "detokenize_request",
    "error_event",
    "ignored_fields",
    "openai_error",
    "read_answer_usage",
    "read_json",
    "read_log",
    "read_stream",
    "responses_error_event",
    "tokenize_request",
    "upstream_stream_options",
    "wants_usage",
]
