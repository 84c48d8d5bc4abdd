"""Token ids to the text a client sees, ending at a stop string wherever its borders fall."""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["ReplyText", "StopMatcher", "TextStream"]


class TextStream(Protocol):
    """Incremental decoding, as `Tokenizer.decode_stream` gives it."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text these tokens complete; an unfinished character waits."""
        ...

    def flush(self) -> str:
        """Return what still waits."""
        ...


class StopMatcher:
    """Pass text on up to the first stop string, whatever pieces the text comes in.

    The reply ends at the first character that completes any stop string; if it completes
    several, the longest one counts, so the most is cut. Text that may yet become a stop
    string is held back: at most the longest stop string's length less one character.

    Each stop string is followed by its own Knuth-Morris-Pratt automaton, so a character
    costs O(stop strings) however the text tries to provoke backtracking.
    """

    def __init__(self, stop_strings: Sequence[str], *, include_stop: bool = False) -> None:
        self._stops = tuple(stop_strings)
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._progress = [0] * len(self._stops)  # characters of each stop string seen so far
        self._held = ""
        self._include_stop = include_stop
        self.matched: str | None = None
        """The stop string that ended the reply."""

    def push(self, text: str) -> str:
        """Return what may be shown now that `text` has arrived; nothing after a match."""
        if self.matched is not None:
            return ""
        pending = self._held + text
        for end, char in enumerate(text, start=len(self._held) + 1):
            self.matched = self._completed_by(char)
            if self.matched is not None:
                self._held = ""
                return pending[: end if self._include_stop else end - len(self.matched)]
        num_held = max(self._progress, default=0)
        self._held = pending[len(pending) - num_held :]
        return pending[: len(pending) - num_held]

    def flush(self) -> str:
        """Return the held text: the reply has ended without a stop string."""
        held, self._held = self._held, ""
        return held

    def _completed_by(self, char: str) -> str | None:
        """Advance every automaton; return the longest stop string that is now complete."""
        complete = None
        for index, stop in enumerate(self._stops):
            done = self._progress[index]
            while done and stop[done] != char:
                done = self._borders[index][done - 1]
            done += stop[done] == char
            self._progress[index] = done
            if done == len(stop) and len(stop) > len(complete or ""):
                complete = stop
        return complete


class ReplyText:
    """The visible text of one reply, token by token.

    The first `min_tokens` tokens are not searched for stop strings, as in vLLM.
    """

    def __init__(self, stream: TextStream, matcher: StopMatcher, *, min_tokens: int = 0) -> None:
        self._stream = stream
        self._matcher = matcher
        self._num_unsearched = min_tokens

    @property
    def matched(self) -> str | None:
        """The stop string that ended the reply, or None."""
        return self._matcher.matched

    def push(self, token_id: int) -> str:
        """Return the text to show after one more token."""
        text = self._stream.push((token_id,))
        if self._num_unsearched > 0:
            self._num_unsearched -= 1
            return text
        return self._matcher.push(text)

    def flush(self) -> str:
        """Return the rest after the last token; what waited may still complete a stop string."""
        return self._matcher.push(self._stream.flush()) + self._matcher.flush()


def _borders(stop: str) -> tuple[int, ...]:
    """Per prefix of `stop`, the length of its longest proper prefix that is also its suffix."""
    borders = [0]
    for char in stop[1:]:
        length = borders[-1]
        while length and stop[length] != char:
            length = borders[length - 1]
        borders.append(length + (stop[length] == char))
    return tuple(borders)
