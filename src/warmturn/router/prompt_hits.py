"""What sources hold of one prompt, from blocks to the tokens that policies reckon with."""

from warmturn.fleet import PromptMatches, SourceId
from warmturn.router.views import PrefixHit, hit_of

__all__ = ["PromptHits"]


class PromptHits:
    """A `Belief` over the fleet's matches."""

    def __init__(self, matches: PromptMatches, prompt_tokens: int) -> None:
        self._matches, self._prompt_tokens = matches, prompt_tokens

    def of(self, source: SourceId) -> tuple[PrefixHit, float] | None:
        """Return what `source` holds and the credit of what told it; None: nothing is known."""
        told = self._matches.of(source)
        if told is None:
            return None
        size, tokens = told.block_tokens, self._prompt_tokens
        return hit_of(told.match, block_size=size, prompt_tokens=tokens), told.credit
