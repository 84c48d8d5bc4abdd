"""Diagnosis of a pair known by its ids alone: no messages, no template, no vocabulary."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmturn.check.compare import Replacement, first_replacement, shared_tokens
from warmturn.check.names import UNKNOWN, Blame, Level, Verdict, blame_of
from warmturn.check.tokens import find_token_cause
from warmturn.cost.reuse import Reuse, reuse_of
from warmturn.types import TokenIds

__all__ = ["TokenPair", "check_token_pair"]

_SPACE_NAME = re.compile(r"new-?line|space|blank|white|tab|\\[nt]|\s*", re.IGNORECASE)
_THINK_NAME = re.compile(r"think|reason|analysis|thought", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TokenPair:
    """What the ids of two turns say."""

    verdict: Verdict
    level: Level | None
    cause: str
    blame: Blame
    total_tokens: int
    shared_tokens: int
    is_prompt_prefix: bool
    reuse: Reuse


def check_token_pair(
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    next_ids: Sequence[int],
    *,
    is_text_equal: bool | None = None,
    token_names: Mapping[int, str] = {},
    block_sizes: Sequence[int] = (16,),
) -> TokenPair:
    """Compare what is cached, `prompt_ids` and `output_ids`, with the next prompt.

    `is_text_equal` says whether both sides decode to the same text, None if that is not known;
    `token_names` may tell what ids stand for. The last output id need not be shared.
    """
    cached = np.asarray([*prompt_ids, *output_ids], np.int32)
    later = np.asarray(next_ids, np.int32)
    shared = shared_tokens(cached, later)
    is_broken = shared < len(cached) - bool(len(output_ids))
    cause = "none"
    if is_broken:
        cause = _cause(cached, later, len(prompt_ids), is_text_equal, token_names)
    return TokenPair(
        "break" if is_broken else "append-only",
        "tokens" if is_broken else None,
        cause,
        blame_of(cause),
        len(cached),
        shared,
        shared >= len(prompt_ids),
        reuse_of(shared, len(cached), num_next=len(later), block_sizes=block_sizes),
    )


def _cause(
    cached: TokenIds,
    later: TokenIds,
    prompt_tokens: int,
    is_text_equal: bool | None,
    names: Mapping[int, str],
) -> str:
    found = first_replacement(cached, later)
    is_pure = found is not None and found.start in {found.left_end, found.right_end}
    if is_text_equal or (is_text_equal is None and not is_pure):
        return find_token_cause(cached, later, prompt_tokens=prompt_tokens).cause
    if found is None:
        return UNKNOWN
    if found.start == found.left_end:
        is_generated = found.start >= prompt_tokens
        return "template.inserts_token_before_generated_text" if is_generated else UNKNOWN
    if found.start == found.right_end:
        return _removed(cached, found, prompt_tokens, names)
    return UNKNOWN


def _removed(
    cached: TokenIds, found: Replacement, prompt_tokens: int, names: Mapping[int, str]
) -> str:
    """Name what is gone by where it stood, or, inside the answer, by what it was."""
    if found.start < prompt_tokens and found.left_end <= prompt_tokens:
        is_tail = found.left_end == prompt_tokens
        return "template.generation_prompt_not_in_history" if is_tail else UNKNOWN
    gone = [names.get(int(i), "?") for i in cached[found.start : found.left_end]]
    if any(_THINK_NAME.search(name) for name in gone):
        return "template.reasoning_stripped_on_new_user_turn"
    if all(_SPACE_NAME.fullmatch(name) for name in gone):
        return "template.content_trimmed"
    return UNKNOWN
