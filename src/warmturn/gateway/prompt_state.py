"""One conversation's prompt as it was tokenised last: what the next turn need not do again.

    body     [ {..}, {..}, {..} | , {..}, {..} ]         | the last checkpoint: length and digest
    text     ...............  c c|t t t t t t o o o      c carried over, t new, o opens the reply
    tokens   done, in full blocks and one open block  | of c, t and o

The last segment of the history is carried over as text, since it may go on: it is encoded again
with what follows it.
"""

from typing import NamedTuple

import xxhash

from warmturn.fleet import GrowingChain, IndexScope, PromptBlocks
from warmturn.render import Tokenizer
from warmturn.render.tail import Opened
from warmturn.types import TokenIds

__all__ = ["Checkpoint", "PromptState", "messages_end"]

_MAX_CHECKPOINTS = 64
_CHECKPOINT_BYTES = 400  # an estimate: a tuple, a digest, short arrays


class Checkpoint(NamedTuple):
    """Where the state stood after one turn."""

    num_bytes: int
    """Of the messages' JSON, through the last message, without what closes the list."""
    digest: bytes
    carry: str
    num_tokens: int
    places: tuple[tuple[int, TokenIds], ...]
    """Per chain its full blocks and its open tokens."""


class PromptState:
    """Grows with each turn; edits and forks take it back to the last turn they share.

    Invariants, checked by `check()`:
    1. The last checkpoint is where the state stands.
    2. Checkpoints grow in bytes and tokens.
    """

    def __init__(self, scope: IndexScope, block_sizes: frozenset[int]) -> None:
        self.block_sizes = block_sizes
        self.checkpoints: list[Checkpoint] = []
        self._chains = {s: GrowingChain(scope, block_size=s) for s in sorted(block_sizes)}
        self._carry = ""
        self._num_tokens = 0
        self._history: xxhash.xxh3_64 | None = xxhash.xxh3_64()

    @property
    def num_bytes(self) -> int:
        """Memory it takes, about."""
        return sum(c.num_bytes for c in self._chains.values()) + _CHECKPOINT_BYTES * (
            1 + len(self.checkpoints)
        )

    @property
    def history_digest(self) -> int | None:
        """Digest of the whole history's text; None where a fork lost track of it."""
        return None if self._history is None else self._history.intdigest()

    def shared_with(self, messages: bytes, end: int) -> Checkpoint | None:
        """Return the last checkpoint that `messages`, of `end` bytes, goes on from.

        One pass over the bytes at the speed of the hash; mostly the very last one fits.
        """
        view = memoryview(messages)
        last = self.checkpoints[-1] if self.checkpoints else None
        if last is None:
            return None
        if last.num_bytes <= end and xxhash.xxh3_128_digest(view[: last.num_bytes]) == last.digest:
            return last
        hasher, start, found = xxhash.xxh3_128(), 0, None
        for checkpoint in self.checkpoints:
            if checkpoint.num_bytes > end:
                break
            hasher.update(view[start : checkpoint.num_bytes])
            start = checkpoint.num_bytes
            if hasher.digest() != checkpoint.digest:
                break
            found = checkpoint
        return found

    def go_back(self, checkpoint: Checkpoint) -> None:
        """Stand where `checkpoint`, one of this state's own, was made."""
        if checkpoint is self.checkpoints[-1]:
            return
        del self.checkpoints[self.checkpoints.index(checkpoint) + 1 :]
        self._carry, self._num_tokens = checkpoint.carry, checkpoint.num_tokens
        self._history = None
        for chain, (num_blocks, open_tokens) in zip(
            self._chains.values(), checkpoint.places, strict=True
        ):
            chain.cut(num_blocks, open_tokens)

    def pieces(self, opened: Opened, tokenizer: Tokenizer) -> list[str]:
        """Return the segments that `extend` would encode."""
        return tokenizer.segments(self._carry + opened.history + opened.opening)

    def extend(
        self,
        opened: Opened,
        segments: list[str],
        tokenizer: Tokenizer,
        *,
        messages: bytes,
        end: int,
    ) -> PromptBlocks:
        """Append what a turn adds to the prompt, cut into `segments`, and return all of it in blocks.

        `messages` of `end` bytes is the JSON that it now stands for.
        """
        text_length = len(self._carry) + len(opened.history)
        num_done, start = _last_within(segments, text_length)
        done = tokenizer.encode_segments(segments[:num_done])
        rest = tokenizer.encode_segments(segments[num_done:])
        self._carry = (self._carry + opened.history)[start:]
        self._num_tokens += len(done)
        if self._history is not None:
            self._history.update(opened.history.encode("utf-8", "surrogatepass"))
        for chain in self._chains.values():
            chain.append(done)
        blocks = self._blocks(rest)
        self._check_in(messages, end)
        return blocks

    def with_reply(self, history: str, tokenizer: Tokenizer) -> TokenIds:
        """Return the ids behind the done ones once a reply's text follows; changes nothing."""
        return tokenizer.encode_segments(tokenizer.segments(self._carry + history))

    def blocks_with(self, token_ids: TokenIds) -> PromptBlocks:
        """Return the state's blocks as if `token_ids` were done."""
        return self._blocks(token_ids)

    def check(self) -> None:
        """Assert the numbered invariants."""
        if self.checkpoints:
            places = tuple(c.num_tokens for c in self._chains.values())
            assert set(places) == {self.checkpoints[-1].num_tokens}, "invariant 1"
        sizes = [(c.num_bytes, c.num_tokens) for c in self.checkpoints]
        assert sizes == sorted(sizes), "invariant 2"

    def _blocks(self, rest: TokenIds) -> PromptBlocks:
        chains = {size: chain.with_tail(rest) for size, chain in self._chains.items()}
        return PromptBlocks(self._num_tokens + len(rest), chains)

    def _check_in(self, messages: bytes, end: int) -> None:
        if self.checkpoints and self.checkpoints[-1].num_bytes == end:
            self.checkpoints.pop()  # the same turn again
        if len(self.checkpoints) >= _MAX_CHECKPOINTS:
            del self.checkpoints[1 : _MAX_CHECKPOINTS // 2 : 2]  # old turns: every other one
        digest = xxhash.xxh3_128_digest(memoryview(messages)[:end])
        places = tuple((c.num_blocks, c.open_tokens) for c in self._chains.values())
        self.checkpoints.append(Checkpoint(end, digest, self._carry, self._num_tokens, places))


def messages_end(messages: bytes) -> int:
    """Return how many bytes of a JSON list come before the space and the bracket that close it."""
    end = messages.rindex(b"]")
    while messages[end - 1 : end].isspace():
        end -= 1
    return end


def _last_within(segments: list[str], length: int) -> tuple[int, int]:
    """Return number and start of the last segment that begins within `length` characters."""
    number, start = 0, 0
    for index, segment in enumerate(segments[:-1], 1):
        if start + len(segment) >= length:
            break
        start += len(segment)
        number = index
    return number, start
