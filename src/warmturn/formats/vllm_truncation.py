"""Evidence that `--max-log-len` cut the prompts of a vLLM log.

vLLM cuts text to N characters and ids to N ids without a mark. A check of cut prompts
would find them append-only whatever the client did, so such a log is refused. A cut shows
by any of:

- a prompt with as many ids as characters (whole prompts have several characters per id);
- two prompts of equal text and different ids: the difference was behind the cut;
- three different prompts of the greatest length that end differently, where whole
  prompts end alike in the generation prompt;
- three prompts of the greatest length without ids;
- a prompt or reply that ends in an ellipsis put there by a log shipper, on three lines of
  the greatest length.
"""

from warmturn.errors import InvalidInput
from warmturn.formats.record import LoggedRequest

__all__ = ["TruncationEvidence"]

MIN_CHARS = 32
"""Shorter prompts share a length by chance, and nobody sets a limit this low."""

_NUM_EQUAL = 3
_TAIL_CHARS = 4


class TruncationEvidence:
    """Watches the requests of one log; keeps what a constant number of prompts need."""

    def __init__(self) -> None:
        self._longest = MIN_CHARS - 1
        self._num_longest = 0
        self._texts: dict[str, tuple[int, ...] | None] = {}

    def add(self, request: LoggedRequest) -> None:
        """Look at one more request. Raises `InvalidInput` once the evidence is enough."""
        text, ids = request.prompt_text, request.prompt_token_ids
        if text is None or len(text) < max(self._longest, MIN_CHARS):
            return
        if ids is not None and len(ids) == len(text):
            self._refuse(f"a prompt has {len(text)} characters and as many token ids")
        if len(text) > self._longest:
            self._longest, self._num_longest, self._texts = len(text), 0, {}
        self._num_longest += 1
        self._compare(text, ids)

    def finish(self) -> None:
        """Look at what only the whole log shows. Raises `InvalidInput`."""
        if self._num_longest < _NUM_EQUAL:
            return
        if any(ids is None for ids in self._texts.values()):
            self._refuse(f"{self._num_longest} prompts have the greatest length")
        if all(text.endswith(("...", "…")) for text in self._texts):
            self._refuse("the longest prompts end in an ellipsis")
        tails = {text[-_TAIL_CHARS:] for text in self._texts}
        if len(self._texts) >= _NUM_EQUAL and len(tails) > 1:
            self._refuse(f"{len(self._texts)} different prompts have the greatest length")

    def _compare(self, text: str, ids: tuple[int, ...] | None) -> None:
        if text in self._texts and self._texts[text] != ids:
            self._refuse("two prompts have the same text and different token ids")
        if len(self._texts) < _NUM_EQUAL:
            self._texts[text] = ids

    def _refuse(self, why: str) -> None:
        raise InvalidInput(
            f"the prompts in this log are cut at {self._longest} characters ({why}); "
            "cut prompts always look append-only. Start vLLM without --max-log-len and log "
            "again, or log responses with return_token_ids"
        )
