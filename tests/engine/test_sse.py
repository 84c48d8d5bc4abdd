import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.support.tiny_renderer import TinyTokenizer
from warmturn.engine.reply import Delta
from warmturn.engine.responses import Answer, ChatShape
from warmturn.engine.sse import EventStream, event
from warmturn.formats import Generation

ANSWER = Answer(
    shape=ChatShape(),
    id="chatcmpl-1",
    created=0,
    model_name="tiny",
    prompt_token_ids=TinyTokenizer().encode("q"),
    generation=Generation(stream=True),
    logprobs=False,
    tokenizer=TinyTokenizer(),
)


def delta(text: str) -> Delta:
    """A delta of one token, not the last."""
    return Delta(text=text, token_ids=(1,), logprobs=(), num_generated=1, num_cached_tokens=0)


def test_an_event_is_one_line_of_json_whatever_the_text():
    assert event({"text": "a\n\ndata: [DONE]"}) == b'data: {"text":"a\\n\\ndata: [DONE]"}\n\n'


@pytest.mark.parametrize("num_sends_before", [0, 1, 2])
def test_the_reply_ends_however_early_the_connection_breaks(num_sends_before):
    is_closed = False

    async def rest() -> AsyncGenerator[Delta, None]:
        nonlocal is_closed
        try:
            while True:
                yield delta("x")
        finally:
            is_closed = True

    num_sent = 0

    async def send(_) -> None:
        nonlocal num_sent
        num_sent += 1
        if num_sent > num_sends_before:
            raise OSError

    async def play() -> None:
        replying = rest()
        first = await anext(replying)
        await EventStream(ANSWER, first, replying)({"type": "http"}, asyncio.Event().wait, send)
        assert is_closed

    asyncio.run(play())
