"""Checks one turn of which the log has no messages: text or token ids alone.

Nothing can be undone and rendered again, so a cause is named only where both sides prove it: a
generation prompt that is gone, ids that differ under equal text. All else is `unknown`, with the
place and what it costs.
"""

import numpy as np

from warmturn.check.causes import Finding, both_sides
from warmturn.check.experiment import Pair
from warmturn.check.names import UNKNOWN, blame_of
from warmturn.check.prompt import PromptRenderer, prompt_of
from warmturn.check.reply import Evidence, Generated
from warmturn.check.token_log import check_token_pair
from warmturn.check.tokens import Encoder, TokenFinding
from warmturn.check.turn import Comparison, Rendered, compare_tokens
from warmturn.formats.record import LoggedRequest

__all__ = ["as_logged", "compare_logged"]

_NO_MESSAGES = "the log has no messages, so nothing can be undone: log request bodies for the cause"

_LONGEST_GENERATION_PROMPT = 96
_SURE_CHARS = 16


def as_logged(
    request: LoggedRequest, renderer: PromptRenderer, tokenizer: Encoder | None
) -> Rendered:
    """Return a request with its logged prompt in place of a rendering; '' where only ids are known."""
    text = request.prompt_text
    if text is None:
        text = _decoded(request.prompt_token_ids, tokenizer)
    return Rendered(request, prompt_of(request), text, text, renderer, tokenizer)


def compare_logged(earlier: Rendered, later: Rendered, renderer: PromptRenderer) -> Comparison:
    """Test `P(n) + G(n)[:-1]` of `earlier` against the prompt of `later`, as they were logged."""
    generated = _generated(earlier.request, earlier.tokenizer)
    pair = Pair(renderer, earlier.prompt, later.prompt, generated, earlier.text, later.text)
    has_text = bool(earlier.text and later.text)
    findings = (_finding(pair),) if has_text and not pair.is_append_only else ()
    is_settled = bool(findings) or not has_text
    token_finding, counts = compare_tokens(pair, earlier, later, has_text_break=is_settled)
    if not has_text:
        token_finding = _of_ids(earlier.request, later.request)
    is_unknown = UNKNOWN in {one.cause for one in (*findings, token_finding) if one is not None}
    notes = (_NO_MESSAGES,) if is_unknown else ()
    return Comparison(pair, (), findings, token_finding, counts, None, (), notes)


def _generated(request: LoggedRequest, tokenizer: Encoder | None) -> Generated:
    text = request.reply_text
    if text is None:
        text = _decoded(request.reply_token_ids, tokenizer)
    evidence: Evidence = "none"
    if request.reply_token_ids is not None:
        evidence = "ids"
    elif request.reply_text is not None:
        evidence = "text"
    return Generated(text, evidence, None, None, None)


def _decoded(ids: tuple[int, ...] | None, tokenizer: Encoder | None) -> str:
    if ids is None or tokenizer is None:
        return ""
    return tokenizer.decode(np.asarray(ids, np.int32), skip_special_tokens=False)


def _finding(pair: Pair) -> Finding:
    cause, detail = UNKNOWN, "other text stands here"
    if _is_generation_prompt_gone(pair):
        cause = "template.generation_prompt_not_in_history"
        detail = f"the reply follows {pair.earlier_text[pair.shared :]!r} no more"
    where = "reply" if pair.shared >= len(pair.earlier_text) else "prompt"
    return Finding(
        cause,
        "text",
        blame_of(cause),
        pair.shared,
        None,
        f"in the earlier {where}: {detail}",
        *both_sides(pair),
        {},
    )


def _is_generation_prompt_gone(pair: Pair) -> bool:
    """The end of the prompt is missing, and the reply stands where it stood."""
    tail = len(pair.earlier_text) - pair.shared
    start = pair.generated.text[:_SURE_CHARS]
    is_tail = 0 < tail <= _LONGEST_GENERATION_PROMPT and len(start) == _SURE_CHARS
    return is_tail and pair.later_text.startswith(start, pair.shared)


def _of_ids(earlier: LoggedRequest, later: LoggedRequest) -> TokenFinding | None:
    """Compare ids of which no text is known. What changed in a prompt was not generated."""
    prompt, reply = earlier.prompt_token_ids or (), earlier.reply_token_ids or ()
    following = later.prompt_token_ids or ()
    found = check_token_pair(prompt, reply, following)
    if found.verdict == "append-only":
        return None
    shared = found.shared_tokens
    cause = found.cause if shared >= len(prompt) else UNKNOWN
    old, new = (*prompt, *reply)[shared : shared + 12], following[shared : shared + 12]
    detail = f"ids {list(old)} became {list(new)} at token {shared}"
    return TokenFinding(cause, blame_of(cause), detail, tuple(old), tuple(new))
