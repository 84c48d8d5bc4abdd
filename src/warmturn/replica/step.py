"""The plan of one step: what the executor computes next, for every sequence at once."""

from dataclasses import dataclass

from warmturn.types import BlockIds, RequestId, TokenIds

__all__ = ["Sampled", "Step", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's part of a step: compute keys and values of `token_ids`.

    Token ranges of the sequence: `[0, position)` has its keys and values in the pool,
    `[position, position + len(token_ids))` is computed now and written to the pool.
    """

    request_id: RequestId
    token_ids: TokenIds
    """`[num_new]`, num_new >= 1."""
    position: int
    """Index in the sequence of the first token of `token_ids`."""
    block_ids: BlockIds
    """Slots that hold `[0, position + num_new)`: `[ceil((position + num_new) / block_size)]`."""
    samples: bool
    """True where the token after the last one is wanted: all of the sequence is then computed."""
    is_decode: bool
    """True for the one newest token of a sequence that is generating."""


@dataclass(frozen=True, slots=True)
class Step:
    """What runs next. Decodes come first, then prefill chunks in order of admission."""

    number: int
    works: tuple[Work, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens this step computes."""
        return sum(len(work.token_ids) for work in self.works)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token an executor chose for one `Work` with `samples`."""

    request_id: RequestId
    token_id: int
    logprob: float | None = None
    """Natural logarithm of the token's probability before temperature; None when not asked for."""
    top_logprobs: tuple[tuple[int, float], ...] = ()
    """The most likely `(token_id, logprob)`, best first; as many as asked for."""
