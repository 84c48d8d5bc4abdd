"""How much of a history has to be cut at once so that most turns are pure appends.

A window that holds `window` messages and slides with each turn of `growth` messages makes no
turn a pure append. Let the history grow by `step` messages beyond the window and cut it back at
once: of each `step / growth + 1` turns all but one are appends. The smallest step is found by
counting, then proven by rendering the turns.
"""

from dataclasses import replace
from itertools import cycle, islice, pairwise

from warmturn.check.experiment import Pair
from warmturn.check.message_keys import head_length
from warmturn.check.prompt import Message
from warmturn.check.report import WindowStep

__all__ = ["APPEND_SHARE", "window_step"]

APPEND_SHARE = 0.9
_NUM_TURNS = 40
"""Of the proof: a whole number of cuts for all usual steps."""

_LARGEST_STEP_TURNS = 20


def window_step(pair: Pair, *, append_share: float = APPEND_SHARE) -> WindowStep | None:
    """Return the smallest truncation step for the conversation of `pair`; None if there is none.

    The messages of both requests stand for the conversation, again and again. Renders
    `_NUM_TURNS` prompts. Raises `TemplateError` where the template refuses one of them.
    """
    head = head_length(pair.earlier.messages)
    body = pair.earlier.messages[head:]
    found = pair.alignment
    new = pair.later.messages[found.echo_index :] if not found.is_in_place else ()
    window, growth = len(body), len(new)
    if window == 0 or growth == 0:
        return None
    for turns in range(1, _LARGEST_STEP_TURNS):
        step = turns * growth
        if _appends(_starts(window, growth, step)) >= append_share:
            stream = _stream((*body, *new), window + _NUM_TURNS * growth)
            share = _rendered_appends(pair, stream, window, growth, step)
            return WindowStep(window, step, share, _NUM_TURNS, 0.0)
    return None


def _starts(window: int, growth: int, step: int) -> list[int]:
    """Return, turn by turn, the index of the first message that is still sent."""
    start, starts = 0, []
    for turn in range(_NUM_TURNS):
        length = window + turn * growth
        if length - start > window + step:
            start = length - window
        starts.append(start)
    return starts


def _appends(starts: list[int]) -> float:
    pairs = list(pairwise(starts))
    return sum(before == after for before, after in pairs) / len(pairs)


def _stream(messages: tuple[Message, ...], length: int) -> list[Message]:
    """Repeat the conversation; what stands first must not continue what stands last."""
    return list(islice(cycle(messages), length))


def _rendered_appends(
    pair: Pair, stream: list[Message], window: int, growth: int, step: int
) -> float:
    head = pair.later.messages[: head_length(pair.later.messages)]
    texts = []
    for turn, start in enumerate(_starts(window, growth, step)):
        sent = (*head, *stream[start : window + turn * growth])
        texts.append(
            pair.renderer.text(replace(pair.later, messages=sent), add_generation_prompt=False)
        )
    pairs = list(pairwise(texts))
    return sum(after.startswith(before) for before, after in pairs) / len(pairs)
