"""Ids of texts whose words are met again and again: each word is encoded once.

Only for tokenizers that always split behind words (`word_borders.py`). A system text in which a
clock moved is new as a text; of its clauses only one is, and of its words only the clock.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import cast

import numpy as np

from warmturn.types import TokenIds

__all__ = ["Pieces", "Words", "encode_together"]

_BEHIND_WORD = re.compile(r"(?<=[!-~])(?= )")
_BEHIND_CLAUSE = re.compile(r"(?<=[.,:;!?])(?= )")
"""Some of the borders behind words: pieces of a dozen words, most of them met before as a whole."""

_LONGEST = 512
"""Characters of a piece that is remembered: a longer one seldom comes again."""

_MOST_WORDS = 65_536
_MOST_CLAUSES = 32_768
"""Remembered, in two generations: at 150 and 300 bytes each some 20 MB together."""

_BATCH_CHARS = 16_384
"""Of pieces encoded in one call, by one thread."""

Encode = Callable[[list[str]], list[TokenIds]]


class Words:
    """Encodes texts by their clauses, and new clauses by their words. Safe to use from threads."""

    def __init__(self, encode: Encode, *, separator: str, separator_id: int) -> None:
        """`separator` is a token that splits a text wherever it stands and takes nothing else."""
        self.words = Pieces(
            lambda new: encode_together(new, encode, separator, separator_id),
            border=_BEHIND_WORD,
            capacity=_MOST_WORDS,
        )
        self._clauses = Pieces(self.words.encode, border=_BEHIND_CLAUSE, capacity=_MOST_CLAUSES)

    def encode(self, texts: list[str]) -> list[TokenIds]:
        """Return the ids of each text, read-only. Raises what `encode` raises."""
        return self._clauses.encode(texts)


class Pieces:
    """Encodes texts by their pieces, and remembers those.

    Safe to use from several threads: each step is one operation on a dictionary, and two that add
    at once may forget a piece too soon, which costs time only.
    """

    def __init__(self, encode: Encode, *, border: re.Pattern[str], capacity: int) -> None:
        self._encode = encode
        self._cut = border.split
        self._half = capacity // 2
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def encode(self, texts: list[str]) -> list[TokenIds]:
        """Return the ids of each text, read-only. Raises what `encode` raises."""
        cut = list(map(self._cut, texts))
        known = self._young.get
        ids = [list(map(known, pieces)) for pieces in cut]
        missing = [at for at, found in enumerate(ids) if None in found]
        if missing:
            new = {p for at in missing for p, i in zip(cut[at], ids[at], strict=True) if i is None}
            found = self._found(new)
            for at in missing:
                pairs = zip(cut[at], ids[at], strict=True)
                ids[at] = [found[piece] if i is None else i for piece, i in pairs]
        return [np.frombuffer(b"".join(cast("list[bytes]", one)), np.int32) for one in ids]

    def _found(self, pieces: set[str]) -> dict[str, bytes]:
        """Return the ids of pieces that are not in the young generation, and put them there."""
        old = self._old
        found = {piece: old[piece] for piece in pieces if piece in old}
        new = [piece for piece in pieces if piece not in found]
        encoded = self._encode(new) if new else []
        found.update((piece, ids.tobytes()) for piece, ids in zip(new, encoded, strict=True))
        short = ((piece, ids) for piece, ids in found.items() if len(piece) <= _LONGEST)
        kept = dict(islice(short, self._half))
        if len(self._young) + len(kept) > self._half:
            self._old, self._young = self._young, {}
        self._young.update(kept)
        return found


def encode_together(
    pieces: Sequence[str], encode: Encode, separator: str, separator_id: int
) -> list[TokenIds]:
    """Return the ids of each piece, many of them encoded as one text.

    A call costs as much as ten tokens, and most pieces have one or two: a token stands between
    them that keeps them apart.
    """
    batches = list(_batches(pieces))
    parts: list[TokenIds] = []
    for batch, ids in zip(batches, encode([separator.join(b) for b in batches]), strict=True):
        at = [-1, *np.flatnonzero(ids == separator_id).tolist(), len(ids)]
        if len(at) == len(batch) + 1:
            parts += [ids[start + 1 : end] for start, end in pairwise(at)]
        else:  # a piece has the separator in it
            parts += encode(batch)
    return parts


def _batches(pieces: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    num_chars = 0
    for piece in pieces:
        batch.append(piece)
        num_chars += len(piece)
        if num_chars >= _BATCH_CHARS:
            yield batch
            batch, num_chars = [], 0
    if batch:
        yield batch
