"""Breaks that only ids show: the text goes on, the tokens do not."""

import unicodedata
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from warmturn.check.compare import first_replacement, shared_tokens
from warmturn.check.names import Blame, blame_of
from warmturn.types import TokenIds

__all__ = ["Encoder", "TokenFinding", "find_token_cause"]

_CONTEXT_TOKENS = 12


class Encoder(Protocol):
    """What the checker needs of a tokenizer; `warmturn.render.Tokenizer` is one."""

    def encode(self, text: str) -> TokenIds:
        """Return the ids of `text`, special tokens in it taken as such."""

    def decode(self, token_ids: TokenIds, *, skip_special_tokens: bool = True) -> str:
        """Return the text of `token_ids`."""


@dataclass(frozen=True, slots=True)
class TokenFinding:
    """Why ids differ though the text is equal."""

    cause: str
    blame: Blame
    detail: str
    earlier_ids: tuple[int, ...]
    later_ids: tuple[int, ...]


def find_token_cause(
    cached: TokenIds, later: TokenIds, *, prompt_tokens: int, tokenizer: Encoder | None = None
) -> TokenFinding:
    """Name the first difference of `cached` (prompt and generated ids) and the `later` prompt.

    `prompt_tokens` of `cached` are the prompt's. Texts are taken to be equal.
    """
    start = shared_tokens(cached, later)
    found = first_replacement(cached, later)
    old_end = min(start + _CONTEXT_TOKENS, len(cached)) if found is None else found.left_end
    new_end = min(start + _CONTEXT_TOKENS, len(later)) if found is None else found.right_end
    old, new = cached[start:old_end], later[start:new_end]
    cause = _cause(cached, start, old_end, prompt_tokens, tokenizer)
    ids = tuple(map(int, old)), tuple(map(int, new))
    detail = f"ids {list(ids[0])} became {list(ids[1])} at token {start}{_text(old, tokenizer)}"
    return TokenFinding(cause, blame_of(cause), detail, *ids)


def _cause(
    cached: TokenIds, start: int, end: int, prompt_tokens: int, tokenizer: Encoder | None
) -> str:
    if tokenizer is not None:
        text = tokenizer.decode(cached[start : end + 1], skip_special_tokens=False)
        if "\ufffd" in text:
            return "token.broken_utf8"
        if _is_normalised_away(text, tokenizer):
            return "token.unicode_normalised"
    if start < prompt_tokens < end:
        return "token.boundary_merge"
    return "token.retokenised_output"


def _is_normalised_away(text: str, tokenizer: Encoder) -> bool:
    back = tokenizer.decode(np.asarray(tokenizer.encode(text)), skip_special_tokens=False)
    return back != text and unicodedata.normalize("NFC", text) == unicodedata.normalize("NFC", back)


def _text(ids: TokenIds, tokenizer: Encoder | None) -> str:
    if tokenizer is None:
        return ""
    return f" ({tokenizer.decode(ids, skip_special_tokens=False)!r})"
