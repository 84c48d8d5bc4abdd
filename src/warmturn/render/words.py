"""Ids of texts whose words are met again and again: each word is encoded once.

Only for tokenizers that always split behind words (`word_borders.py`). A system text in which a
clock moved is new as a text; of its words only the clock is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise

import numpy as np

from warmturn.types import TokenIds

__all__ = ["Words"]

_BEHIND_WORD = re.compile(r"(?<=[!-~])(?= )")

_LONGEST_WORD = 256
"""Characters of what is remembered: beyond, it is a text without words, and seldom comes again."""

_MOST_WORDS = 65_536
"""Remembered, in two generations: 20 MB at 300 bytes each, its text, its ids and its place."""

_BATCH_CHARS = 16_384
"""Of words encoded in one call, by one thread."""


class Words:
    """Encodes texts by their words.

    Safe to use from several threads: each step is one operation on a dictionary, and two that add
    at once may forget a word too soon, which costs time only.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], list[TokenIds]],
        *,
        separator: str,
        separator_id: int,
        most_words: int = _MOST_WORDS,
    ) -> None:
        """`separator` is a token that splits a text wherever it stands and takes nothing else."""
        self._encode = encode
        self._separator, self._separator_id = separator, separator_id
        self._half = most_words // 2
        self._young: dict[str, tuple[int, ...]] = {}
        self._old: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def encode(self, texts: Sequence[str]) -> list[TokenIds]:
        """Return the ids of each text. Raises what `encode` raises."""
        split = list(map(_BEHIND_WORD.split, texts))
        known = self._young
        new = {word for words in split for word in words if word not in known}
        fresh = self._found(new) if new else {}
        return [_joined(words, known, fresh) for words in split]

    def _found(self, words: set[str]) -> dict[str, tuple[int, ...]]:
        """Return the ids of words that are not in the young generation, and put them there."""
        old = self._old
        found = {word: old[word] for word in words if word in old}
        new = [word for word in words if word not in found]
        found.update(self._encoded(new))
        short = ((word, ids) for word, ids in found.items() if len(word) <= _LONGEST_WORD)
        kept = dict(islice(short, self._half))
        if len(self._young) + len(kept) > self._half:
            self._old, self._young = self._young, {}
        self._young.update(kept)
        return found

    def _encoded(self, words: list[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
        # Calls are dear, 20 µs each: words go together, with a token between that keeps them apart.
        batches = list(_batches(words))
        found = self._encode([self._separator.join(batch) for batch in batches])
        for batch, ids in zip(batches, found, strict=True):
            at = [-1, *np.flatnonzero(ids == self._separator_id).tolist(), len(ids)]
            if len(at) == len(batch) + 1:
                whole = ids.tolist()
                parts = [whole[start + 1 : end] for start, end in pairwise(at)]
            else:  # a text has the separator in it
                parts = [alone.tolist() for alone in self._encode(batch)]
            yield from zip(batch, map(tuple, parts), strict=True)


def _joined(
    words: list[str], known: dict[str, tuple[int, ...]], fresh: dict[str, tuple[int, ...]]
) -> TokenIds:
    found = list(map(known.get, words))
    ids = [fresh[w] if i is None else i for w, i in zip(words, found, strict=True)]
    return np.fromiter(chain.from_iterable(ids), np.int32)


def _batches(words: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    num_chars = 0
    for word in words:
        batch.append(word)
        num_chars += len(word)
        if num_chars >= _BATCH_CHARS:
            yield batch
            batch, num_chars = [], 0
    if batch:
        yield batch
