"""One request inside a replica: its tokens, how far they are computed, and when it ends."""

from dataclasses import dataclass

import numpy as np

from warmturn.blocks.chain import ChainBuilder
from warmturn.metrics import TurnMetrics
from warmturn.types import HashWords, RequestId, TokenIds

__all__ = ["Sequence", "Submission"]


@dataclass(frozen=True, slots=True)
class Submission:
    """What a replica must know of a request; how a token is chosen is the executor's business."""

    request_id: RequestId
    prompt_token_ids: TokenIds
    """`[num_prompt_tokens]`, at least one."""
    max_tokens: int | None = None
    """None: as many as the replica's longest sequence leaves room for."""
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens that end the reply; they are part of it."""
    salt: str | None = None


class Sequence:
    """Prompt and reply of one request while it lives.

    Token ranges: `[0, num_computed)` has keys and values in the pool,
    `[num_computed, num_tokens)` has not; the last generated token always lies in the
    second range, it is computed when it is fed back.
    """

    def __init__(
        self, submission: Submission, chain: ChainBuilder, *, limit: int, now: float
    ) -> None:
        """`limit` is the most tokens prompt and reply may have together."""
        prompt = submission.prompt_token_ids
        self.request_id = submission.request_id
        self.stop_token_ids = submission.stop_token_ids
        self.num_prompt = len(prompt)
        self.num_tokens = len(prompt)
        self.limit = limit
        self.num_computed = 0
        self.num_cached: int | None = None  # prompt tokens hit or loaded at first admission
        self.loaded_tokens: dict[str, int] = {}
        self.is_counted = False  # True once its admission was reported
        self._tokens = np.array(prompt, np.int32)
        self._chain = chain
        self._num_prefilled = 0
        self._num_preemptions = 0
        self._submitted_s = now
        self._admitted_s: float | None = None
        self._first_token_s: float | None = None

    @property
    def admitted_s(self) -> float | None:
        """When it was admitted first; None before."""
        return self._admitted_s

    @property
    def num_generated(self) -> int:
        """Tokens of the reply so far."""
        return self.num_tokens - self.num_prompt

    @property
    def num_left(self) -> int:
        """Tokens whose keys and values are still to be computed; at least one."""
        return self.num_tokens - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """True when only the newest generated token is left to compute."""
        return self.num_left == 1 and self.num_generated > 0

    def tokens(self, start: int, stop: int) -> TokenIds:
        """Return tokens `[start, stop)` of the sequence, read-only use."""
        return self._tokens[start:stop]

    def chain_words(self, num_tokens: int) -> HashWords:
        """Return the chain of the full blocks of the first `num_tokens` tokens.

        Hashes what was not hashed before; costs only what is new.
        """
        new = self._tokens[self._chain.num_tokens : num_tokens]
        if len(new):
            self._chain.extend(new)
        return self._chain.words[: num_tokens // self._chain.block_size]

    @property
    def chain(self) -> ChainBuilder:
        """The chain as far as it was hashed."""
        return self._chain

    def admit(self, num_cached: int, now: float) -> None:
        """Begin, or begin again after a preemption, with `num_cached` tokens in the pool."""
        self.num_computed = num_cached
        if self._admitted_s is None:
            self._admitted_s = now
            self.num_cached = num_cached

    def skip(self, num_tokens: int, tier: str) -> None:
        """Note that keys and values of the next `num_tokens` tokens were loaded from `tier`."""
        self.num_computed += num_tokens
        if self._num_preemptions == 0:  # later ones are its own blocks coming back
            self.num_cached = (self.num_cached or 0) + num_tokens
            self.loaded_tokens[tier] = self.loaded_tokens.get(tier, 0) + num_tokens

    def preempt(self) -> None:
        """Give up all computed tokens; the reply so far is kept and computed again later."""
        self.num_computed = 0
        self._num_preemptions += 1

    def advance(self, num_new: int) -> None:
        """Note that keys and values of the next `num_new` tokens are in the pool."""
        prompt_left = max(self.num_prompt - self.num_computed, 0)
        self._num_prefilled += min(num_new, prompt_left)
        self.num_computed += num_new

    def add_token(self, token_id: int, now: float) -> str | None:
        """Append a generated token; return the finish reason if it ends the reply."""
        if self.num_tokens == len(self._tokens):
            self._tokens = np.resize(self._tokens, min(2 * self.num_tokens, self.limit))
        self._tokens[self.num_tokens] = token_id
        self.num_tokens += 1
        if self._first_token_s is None:
            self._first_token_s = now
        if token_id in self.stop_token_ids:
            return "stop"
        return "length" if self.num_tokens == self.limit else None

    def turn(self, now: float) -> TurnMetrics:
        """Return what this request did, as of `now`."""
        admitted_s, first_s = self._admitted_s, self._first_token_s
        return TurnMetrics(
            prompt_tokens=self.num_prompt,
            cached_tokens=self.num_cached or 0,
            prefilled_tokens=self._num_prefilled,
            generated_tokens=self.num_generated,
            num_preemptions=self._num_preemptions,
            queue_s=(now if admitted_s is None else admitted_s) - self._submitted_s,
            ttft_s=None if first_s is None else first_s - self._submitted_s,
            e2e_s=now - self._submitted_s,
            loaded_tokens=dict(self.loaded_tokens),
        )
