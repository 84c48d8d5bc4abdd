"""Which spans of a text changed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from warmturn.check.compare import shared_chars

__all__ = ["Span", "changed_spans", "replace_spans"]

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Written without spaces: each is a word, and a number among them is another."""

_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+|\s+|[^\w\s]")
_IN_WORD = re.compile(rf"[^\W{_IDEOGRAPHS}]")
_MOST_WORDS = 2000
"""Beyond, the difference is one span: matching words is quadratic."""

_MOST_PER_LINE = 3
"""Fields of one line that may change apart; with more of them the line is other prose."""


@dataclass(frozen=True, slots=True)
class Span:
    """`[old_start, old_end)` of the old text became `[new_start, new_end)` of the new one."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def changed_spans(old: str, new: str) -> list[Span]:
    """Return what changed, in order, in whole words; white space between changes joins them."""
    before, after = _ends(old, new)
    core_old, core_new = old[before : len(old) - after], new[before : len(new) - after]
    words_old, words_new = _WORD.findall(core_old), _WORD.findall(core_new)
    if max(len(words_old), len(words_new)) > _MOST_WORDS:
        return [Span(before, len(old) - after, before, len(new) - after)]
    matcher = SequenceMatcher(None, words_old, words_new, autojunk=False)
    at_old, at_new = _offsets(words_old, before), _offsets(words_new, before)
    spans = [
        Span(at_old[i0], at_old[i1], at_new[j0], at_new[j1])
        for tag, i0, i1, j0, j1 in matcher.get_opcodes()
        if tag != "equal"
    ]
    return _joined(spans, old)


def replace_spans(new: str, old: str, spans: Sequence[Span]) -> str:
    """Return `new` with `spans` as they were in `old`."""
    result = new
    for span in reversed(spans):
        kept = old[span.old_start : span.old_end]
        result = result[: span.new_start] + kept + result[span.new_end :]
    return result


def _ends(old: str, new: str) -> tuple[int, int]:
    """Lengths of the common start and end, moved back to where a word begins and ends."""
    before = shared_chars(old, new)
    while before and _is_inside_word(old, before) | _is_inside_word(new, before):
        before -= 1
    rest_old, rest_new = old[before:], new[before:]
    after = shared_chars(rest_old[::-1], rest_new[::-1])
    while after and (
        _is_inside_word(old, len(old) - after) | _is_inside_word(new, len(new) - after)
    ):
        after -= 1
    return before, after


def _is_inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and _is_word(text[at - 1]) and _is_word(text[at])


def _is_word(character: str) -> bool:
    return _IN_WORD.match(character) is not None


def _offsets(words: Sequence[str], start: int) -> list[int]:
    offsets = [start]
    for word in words:
        offsets.append(offsets[-1] + len(word))
    return offsets


def _joined(spans: Sequence[Span], old: str) -> list[Span]:
    """Join spans with at most a character between them, and those of a line rewritten all over."""
    result: list[Span] = []
    for span in spans:
        last = result[-1] if result else None
        if last is not None and len(old[last.old_end : span.old_start].strip()) <= 1:
            result[-1] = _hull(last, span)
        else:
            result.append(span)
    lines = _lines(result, old)
    joined = ([_hull(line[0], line[-1])] if len(line) > _MOST_PER_LINE else line for line in lines)
    return [span for line in joined for span in line]


def _lines(spans: Sequence[Span], old: str) -> list[list[Span]]:
    """Group spans that have no line break between them."""
    lines: list[list[Span]] = []
    for span in spans:
        if lines and "\n" not in old[lines[-1][-1].old_end : span.old_start]:
            lines[-1].append(span)
        else:
            lines.append([span])
    return lines


def _hull(first: Span, last: Span) -> Span:
    return Span(first.old_start, last.old_end, first.new_start, last.new_end)
