"""Messages to prompt text to token ids, exactly as Hugging Face renders, incrementally.

In come OpenAI messages and a model directory, out go the prompt's text and its token ids; a
conversation's next turn costs what is new in it. Nothing here knows of requests, blocks or
engines, and the time is an argument.
"""

from warmturn.render.decode_stream import DecodeStream
from warmturn.render.messages import Message, normalise
from warmturn.render.renderer import RenderedPrompt, Renderer
from warmturn.render.template import ChatTemplate
from warmturn.render.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "DecodeStream",
    "Message",
    "RenderedPrompt",
    "Renderer",
    "Tokenizer",
    "normalise",
]
