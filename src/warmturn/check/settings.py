"""How costs are counted, and how much is kept in memory."""

from dataclasses import dataclass

from warmturn.check.lineage import MOST_OPEN_REQUESTS
from warmturn.cost.reuse import HYBRID_BLOCK_TOKENS
from warmturn.errors import InvalidInput

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How costs are counted. Defaults: vLLM's block size, the threshold of the case files."""

    block_size: int = 16
    hybrid_block_tokens: int = HYBRID_BLOCK_TOKENS
    fail_under: float = 0.9
    """A turn fails where it shares less than this of the earlier prompt, or of it with its reply."""
    prefill_tokens_per_s: float | None = None
    max_model_tokens: int | None = None
    proves_fixes: bool = True
    most_open_requests: int = MOST_OPEN_REQUESTS

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        if self.block_size < 1 or self.hybrid_block_tokens < 1 or self.most_open_requests < 2:
            raise InvalidInput(
                f"block_size={self.block_size}, hybrid_block_tokens={self.hybrid_block_tokens}, "
                f"most_open_requests={self.most_open_requests}: give positive numbers, and room "
                "for two open requests"
            )
        if not 0 <= self.fail_under <= 1:
            raise InvalidInput(f"fail_under={self.fail_under} is no share; give 0 to 1")
