"""Splice generated ids back into later prompts, instead of tokenising the reply again.

A reply is generated as ids, travels to the client as text, and comes back as text inside the
next prompt. Tokenising that text need not give the ids that were generated (a model may write
`ab` as `a`, `b` where the tokenizer has `ab`), and from the first id that differs on, nothing
of the cached prefix matches. Here the ids are remembered with the text they belong to:

    turn 1      prompt text          | reply text
                prompt ids           | ids as generated          <- remembered
    turn 2      prompt text          | reply text           | rest of the new prompt
                ids as remembered    | ids as generated     | encoded now

Texts are kept only as keyed digests, so that one salt can neither see nor guess another's.
"""

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from warmturn.types import TokenIds

__all__ = ["Continuations", "Encode", "SplicedPrompt"]

Encode: TypeAlias = Callable[[str], TokenIds]
"""Text to ids with special tokens parsed and nothing added: `decode(encode(text)) == text`."""

# A turn's bookkeeping takes some 500 bytes, as much as 128 ids: very short turns count as that.
_MIN_TURN_TOKENS = 128
# Bytes of a text's end that are compared before the text is hashed up to there.
_END_BYTES = 32


@dataclass(frozen=True, slots=True)
class SplicedPrompt:
    """The ids of a prompt, and what of them was not tokenised again."""

    token_ids: TokenIds
    """`[num_tokens]`"""
    num_spliced_tokens: int = 0
    """Leading ids taken from what was remembered."""
    num_drifted_tokens: int = 0
    """Spliced ids from the first one on that plain encoding would have chosen otherwise:
    cached tokens that would have been lost. 0 where encoding agrees."""


class Continuations:
    """What was generated, by text; at most `max_tokens` ids, the least recently used go first.

    A turn holds only the ids that the turn before it does not, so a conversation costs about
    its length and not the sum of its prompts. Each turn counts as at least 128 ids.

    Invariants, checked by `check()`:
    1. The count of ids held is the sum over the turns, and at most `max_tokens`.
    2. The turn before a remembered turn is remembered too and more recent; so the least
       recently used turn is never one that others build on.
    3. The index of lengths and ends is that of the texts remembered.
    """

    def __init__(self, *, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._turns: OrderedDict[bytes, _Turn] = OrderedDict()  # by digest of text, oldest first
        self._texts: dict[bytes, _TextIndex] = {}  # by namespace, one per salt

    @property
    def num_tokens(self) -> int:
        """Ids held now, each turn counted as at least 128."""
        return self._num_tokens

    def remember(
        self,
        *,
        salt: str | None,
        prompt_text: str,
        prompt_token_ids: TokenIds,
        reply_text: str,
        reply_token_ids: TokenIds,
    ) -> None:
        """Remember one turn, finished or cut off at any token.

        `prompt_text` is what `prompt_token_ids` decode to and `reply_text` what
        `reply_token_ids` decode to, special tokens included; both as the template will render
        them next time. A turn remembered before keeps its ids if later turns build on it, else
        the new ones replace them. A turn too large for `max_tokens` is not remembered.
        """
        if len(reply_token_ids) == 0:
            return
        namespace = _namespace(salt)
        prompt = _utf8(prompt_text)
        text = prompt + _utf8(reply_text)
        ids = np.concatenate((prompt_token_ids, reply_token_ids), dtype=np.int32)
        key = _keyed(namespace, text).digest()
        known = self._turns.get(key)
        if known is not None and known.num_followers:
            self._touch(known)
            return
        if known is not None:
            self._forget(known)
        before = self._turn_before(namespace, prompt, ids)
        own_ids = ids if before is None else ids[before.num_tokens :]
        end = _end_of(text, len(text))
        self._add(_Turn(key, namespace, len(text), end, len(ids), own_ids.copy(), before))

    def splice(self, *, salt: str | None, text: str, encode: Encode) -> SplicedPrompt:
        """Return the ids of a prompt, with the longest remembered beginning as it was generated.

        Only what follows that beginning is encoded for use; the whole text is encoded as well
        to know what was saved, which costs what a prompt costs without splicing. Linear in the
        length of the text.
        """
        data = _utf8(text)
        turn = self._longest(_namespace(salt), data)
        if turn is None:
            return SplicedPrompt(encode(text))
        self._touch(turn)
        spliced = turn.token_ids()
        rest = data[turn.num_text_bytes :].decode("utf-8", "surrogatepass")
        token_ids = np.concatenate((spliced, encode(rest)), dtype=np.int32) if rest else spliced
        num_equal = _num_equal(spliced, encode(text))
        return SplicedPrompt(token_ids, len(spliced), len(spliced) - num_equal)

    def check(self) -> None:
        """Assert the numbered invariants."""
        turns = list(self._turns.values())
        assert self._num_tokens == sum(turn.cost for turn in turns) <= self._max_tokens, (
            "invariant 1"
        )
        position = {turn.key: i for i, turn in enumerate(turns)}
        for turn in turns:
            followers = [other for other in turns if other.before is turn]
            assert turn.num_followers == len(followers), "invariant 2"
            assert all(position[other.key] < position[turn.key] for other in followers), (
                "invariant 2"
            )
            assert turn.before is None or self._turns.get(turn.before.key) is turn.before, (
                "invariant 2"
            )
        assert set(self._texts) == {turn.namespace for turn in turns}, "invariant 3"
        for namespace, texts in self._texts.items():
            ends: dict[int, Counter[int]] = {}
            for turn in turns:
                if turn.namespace == namespace:
                    ends.setdefault(turn.num_text_bytes, Counter())[turn.text_end] += 1
            assert texts.ends == ends, "invariant 3"
            assert texts.lengths == sorted(ends), "invariant 3"

    def _longest(self, namespace: bytes, data: bytes) -> "_Turn | None":
        """Return the longest remembered turn that `data` begins with, in one hash pass."""
        texts = self._texts.get(namespace)
        if texts is None:
            return None
        found, state, num_hashed = None, _keyed(namespace), 0
        for length in texts.candidates(data):
            state.update(data[num_hashed:length])
            num_hashed = length
            found = self._turns.get(state.digest(), found)
        return found

    def _turn_before(self, namespace: bytes, prompt: bytes, ids: TokenIds) -> "_Turn | None":
        """Return the longest turn that the prompt continues in text and ids."""
        turn = self._longest(namespace, prompt)
        if turn is None or not np.array_equal(turn.token_ids(), ids[: turn.num_tokens]):
            return None
        return turn

    def _add(self, turn: "_Turn") -> None:
        if turn.cost > self._max_tokens:
            return
        self._turns[turn.key] = turn
        self._texts.setdefault(turn.namespace, _TextIndex()).add(turn.num_text_bytes, turn.text_end)
        self._num_tokens += turn.cost
        if turn.before is not None:
            turn.before.num_followers += 1
        self._touch(turn)
        while self._num_tokens > self._max_tokens:
            self._forget(next(iter(self._turns.values())))

    def _touch(self, turn: "_Turn") -> None:
        """Make it and the turns before it the most recent ones, the first turn last of all."""
        node: _Turn | None = turn
        while node is not None:
            self._turns.move_to_end(node.key)
            node = node.before

    def _forget(self, turn: "_Turn") -> None:
        assert turn.num_followers == 0, "invariant 2"
        del self._turns[turn.key]
        texts = self._texts[turn.namespace]
        texts.remove(turn.num_text_bytes, turn.text_end)
        if not texts.lengths:
            del self._texts[turn.namespace]
        self._num_tokens -= turn.cost
        if turn.before is not None:
            turn.before.num_followers -= 1


@dataclass(slots=True, eq=False)
class _Turn:
    """A prompt and its reply. Its ids are those of the turn before it, then its own."""

    key: bytes
    namespace: bytes
    num_text_bytes: int
    text_end: int
    num_tokens: int
    own_ids: TokenIds
    before: "_Turn | None"
    num_followers: int = 0

    @property
    def cost(self) -> int:
        return max(_MIN_TURN_TOKENS, len(self.own_ids))

    def token_ids(self) -> TokenIds:
        parts: list[TokenIds] = []
        node: _Turn | None = self
        while node is not None:
            parts.append(node.own_ids)
            node = node.before
        return np.concatenate(parts[::-1])


class _TextIndex:
    """Where in a new text a remembered one of the same salt may end."""

    def __init__(self) -> None:
        self.lengths: list[int] = []  # in bytes, ascending, each once
        self.ends: dict[int, Counter[int]] = {}  # by length: hashes of the texts' last bytes

    def add(self, length: int, end: int) -> None:
        if length not in self.ends:
            insort(self.lengths, length)
            self.ends[length] = Counter()
        self.ends[length][end] += 1

    def remove(self, length: int, end: int) -> None:
        ends = self.ends[length]
        ends[end] -= 1
        if not ends[end]:
            del ends[end]
        if not ends:
            del self.ends[length]
            del self.lengths[bisect_left(self.lengths, length)]

    def candidates(self, data: bytes) -> Iterator[int]:
        """Yield lengths, ascending, up to which `data` looks like a remembered text.

        Comparing an end costs a fifth of hashing up to it, and nearly all comparisons fail.
        """
        for length in self.lengths[: bisect_right(self.lengths, len(data))]:
            if _end_of(data, length) in self.ends[length]:
                yield length


def _end_of(data: bytes, length: int) -> int:
    return hash(data[max(0, length - _END_BYTES) : length])


def _namespace(salt: str | None) -> bytes:
    """Return the key under which one salt's texts are hashed; no salt is a namespace too."""
    return hashlib.blake2b(b"none" if salt is None else b"salt" + _utf8(salt)).digest()


def _keyed(namespace: bytes, data: bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, key=namespace, digest_size=32)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a client's JSON may hold lone surrogates


def _num_equal(one: TokenIds, other: TokenIds) -> int:
    """Return the length of the common beginning."""
    shorter = min(len(one), len(other))
    different = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(different[0]) if len(different) else shorter
