"""Text out of tokens as they come, never half a character.

Both streams promise: what `push` returned so far, with what `flush` returns, equals decoding
all ids at once.
"""

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

__all__ = ["ByteStream", "DecodeStream", "WindowStream"]

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class DecodeStream(Protocol):
    """Turns the token ids of one reply into text, piece by piece."""

    def push(self, token_ids: Iterable[int]) -> str:
        """Take the next ids and return the text that is now certain, perhaps empty."""
        ...

    def flush(self) -> str:
        """Return what was held back, an incomplete character as U+FFFD; the reply is over."""
        ...


class ByteStream:
    """For byte-level tokenizers: every token is bytes, and characters end where UTF-8 says.

    Holds back at most three bytes.
    """

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """See `DecodeStream`."""
        return self._decoder.decode(b"".join(map(self._bytes_of, token_ids)))

    def flush(self) -> str:
        """See `DecodeStream`."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


class WindowStream:
    """For all other tokenizers: decodes a short window and returns what was added to it.

    The window starts with one token already returned, since decoders treat the first token of
    a text in a way of its own (Llama's drop a leading space). `is_open` tells of a visible
    token whether the ones behind it may still change its text: a run of byte tokens is valid
    or invalid as a whole, so it is held back until it ends.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        is_visible: Callable[[int], bool],
        is_open: Callable[[int], bool],
    ) -> None:
        self._decode = decode
        self._is_visible = is_visible
        self._is_open = is_open
        self._context: list[int] = []
        self._held: list[int] = []

    def push(self, token_ids: Iterable[int]) -> str:
        """See `DecodeStream`."""
        self._held += filter(self._is_visible, token_ids)
        if not self._held or self._is_open(self._held[-1]):
            return ""
        text = self._held_text()
        if text.endswith(_REPLACEMENT):
            return ""
        self._context, self._held = self._held[-1:], []
        return text

    def flush(self) -> str:
        """See `DecodeStream`."""
        text = self._held_text() if self._held else ""
        self._context, self._held = [], []
        return text

    def _held_text(self) -> str:
        shown = self._decode(self._context) if self._context else ""
        return self._decode([*self._context, *self._held])[len(shown) :]
