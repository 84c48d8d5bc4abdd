"""What a conversation costs to prefill over its turns, with reuse and without.

Turn k's prompt is the system prompt, k - 1 complete exchanges and the new message. Without reuse
each turn computes all of it, so the total grows with the square of the turns; with reuse it
computes the new message only, since the reply's keys and values were made while it was generated.
"""

from collections.abc import Callable
from dataclasses import dataclass

from warmturn.cost.reuse import most_cached_tokens
from warmturn.errors import InvalidInput

__all__ = ["ConversationShape"]


@dataclass(frozen=True, slots=True)
class ConversationShape:
    """Token counts of a conversation whose turns are alike."""

    system_tokens: int = 1500
    user_tokens: int = 150
    reply_tokens: int = 350
    num_turns: int = 10

    def __post_init__(self) -> None:
        """Raises `InvalidInput` unless there is at least one turn and something to compute."""
        if min(self.system_tokens, self.reply_tokens) < 0 or self.user_tokens < 1:
            raise InvalidInput(
                f"a system prompt of {self.system_tokens}, messages of {self.user_tokens} and "
                f"replies of {self.reply_tokens} tokens were asked for; a message has at least one"
            )
        if self.num_turns < 1:
            raise InvalidInput(f"{self.num_turns} turns were asked for; give at least one")

    def prompt_tokens(self, turn: int) -> int:
        """Return the prompt of a turn, counted from 1."""
        exchange = self.user_tokens + self.reply_tokens
        return self.system_tokens + self.user_tokens + exchange * (turn - 1)

    @property
    def last_prompt_tokens(self) -> int:
        """The prompt of the last turn: what an idle conversation holds, but for its last reply."""
        return self.prompt_tokens(self.num_turns)

    @property
    def cold_tokens(self) -> int:
        """Prefilled over all turns without any reuse."""
        return self._total(self.prompt_tokens)

    @property
    def warm_tokens(self) -> int:
        """Prefilled with perfect reuse: the first prompt, then each new message."""
        return self._total(self.new_tokens)

    def new_tokens(self, turn: int) -> int:
        """Return what no earlier turn computed, of a turn counted from 1."""
        return self.prompt_tokens(1) if turn == 1 else self.user_tokens

    def warm_tokens_in_blocks(self, block_size: int) -> int:
        """Return what an engine prefills that reuses whole blocks of the turn before.

        A little more than `warm_tokens`: the tail of each turn's last block, and the last token of
        each reply, which has no keys yet when the turn ends.
        """

        def computed(turn: int) -> int:
            if turn == 1:
                return self.prompt_tokens(1)
            held = self.prompt_tokens(turn - 1) + max(0, self.reply_tokens - 1)
            prompt = self.prompt_tokens(turn)
            reused = min(held // block_size * block_size, most_cached_tokens(prompt, block_size))
            return prompt - reused

        return self._total(computed)

    def _total(self, of_turn: Callable[[int], int]) -> int:
        return sum(of_turn(turn) for turn in range(1, self.num_turns + 1))
