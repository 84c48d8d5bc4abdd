"""Finds dates and times of day in text, whatever way they are written.

A clock is a run of atoms (numbers, names of months and days, times, zones) that together say a
time of day or a date. Only its *change* makes it a cause; its mere presence, a warning.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Clock", "clocks_in", "cut_to_day"]

_MONTHS = (
    "jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni?|july?|juli?|"
    "aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?|"
    "janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre|"
    "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|"
    "gennaio|febbraio|aprile|maggio|giugno|luglio|settembre|ottobre|dicembre"
)
_DAYS = (
    "mon(?:day|tag)?|tue(?:s(?:day)?)?|dienstag|wed(?:nesday)?|mittwoch|thu(?:rs(?:day)?)?|donnerstag|"
    "fri(?:day)?|freitag|sat(?:urday)?|samstag|sun(?:day)?|sonntag|"
    "lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|"
    "lunes|martes|miércoles|jueves|viernes|sábado|domingo"
)
_TIME = (
    r"(?:(?:(?<=\dT)|(?<=\d{4}:)|(?<![\w:.]))\d{1,2}[:h]\d{2}(?:m(?:\d{2}s)?)?(?::\d{2}(?:[.,]\d{1,9})?)?(?!\d)(?:\s?[ap](?:\.m\.|m\b))?"
    r"|\b\d{1,2}\.\d{2}\s?(?:uhr\b|[ap](?:\.m\.|m\b))"
    r"|\d{1,2}\s?[ap](?:\.m\.|m\b)|\d{1,2}\s?uhr\b|\d{1,2}[時时点點]\d{0,2}分?(?:\d{1,2}秒)?)"
)
_ZONE = r"(?:[zZ]\b|\b(?:utc|gmt|cest|cet|est|edt|cst|pst|pdt|jst)\b(?:[+-]\d{1,2}(?::?\d{2})?)?|[+-]\d{2}:?\d{2}\b)"
_COMPACT = r"\d{8}[T_ -]?\d{4,6}(?!\d)"
_NUMERIC_DATE = r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))(?!\d)"
_CJK_DATE = r"\d{4}年\d{1,2}月\d{1,2}日"
_EPOCH = r"(?<![\w.])1[4-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?![\w])"
_DAY_NUMBER = r"\d{1,4}(?:st|nd|rd|th|er|º|\.)?(?![\w:])"
_ATOM = re.compile(
    rf"(?P<epoch>{_EPOCH})|(?P<compact>{_COMPACT})|(?P<date>{_NUMERIC_DATE}|{_CJK_DATE})"
    rf"|(?P<time>{_TIME})|(?P<zone>{_ZONE})|(?P<month>\b(?:{_MONTHS})\b\.?)|(?P<day>\b(?:{_DAYS})\b\.?)"
    rf"|(?P<number>\b{_DAY_NUMBER})",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"(?:[\s,;|·()/-]|T|\bat\b|\bof\b|\bum\b|\bde\b|\bà\b|\ba las\b|\bthe\b)*", re.IGNORECASE
)
_DIGITS = re.compile(r"\d+|day\b|tag\b")
_REACH = 40
"""Characters between a digit and a name of its clock: `Wednesday, the` before, `Uhr` behind."""

_NOW_WORDS = re.compile(
    r"now|current|clock|time|timestamp|generated|updated|as of|today|jetzt|uhr|aktuell|zeit|heute|"
    r"heure|maintenant|hora|ahora|hoy|現在|现在|当前|时间",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Clock:
    """`[start, end)` of the text says a date, a time of day, or both."""

    start: int
    end: int
    has_date: bool
    has_time: bool
    is_announced: bool
    """Whether the words before say that this is the time now."""


def clocks_in(text: str) -> list[Clock]:
    """Return the clocks in `text`, in order. O(length)."""
    runs: list[list[re.Match[str]]] = []
    for atom in _atoms(text):
        if runs and _BETWEEN.fullmatch(text, runs[-1][-1].end(), atom.start()):
            runs[-1].append(atom)
        else:
            runs.append([atom])
    found = (_clock(text, run) for run in runs)
    return [clock for clock in found if clock is not None]


def _atoms(text: str) -> Iterator[re.Match[str]]:
    """Search only around digits and days: no clock is without, and most of a text is."""
    start = end = 0
    for digit in _DIGITS.finditer(text):
        if digit.start() - _REACH > end:
            yield from _ATOM.finditer(text, start, end)
            start = digit.start() - _REACH
            while start > 0 and text[start - 1].isalnum():
                start -= 1
        end = digit.end() + _REACH
    yield from _ATOM.finditer(text, start, end)


def cut_to_day(text: str) -> str:
    """Return `text` with the time of day taken out of every clock that also has a date."""
    for clock in reversed(clocks_in(text)):
        if clock.has_time and clock.has_date:
            day = _day_of(text[clock.start : clock.end])
            text = text[: clock.start] + day + text[clock.end :]
    return text


def _day_of(written: str) -> str:
    kept = []
    for atom in _ATOM.finditer(written):
        if atom.lastgroup == "compact":
            kept.append(atom.group()[:8])
        elif atom.lastgroup in {"date", "month", "day", "number"}:
            kept.append(atom.group())
    return " ".join(kept)


def _clock(text: str, run: list[re.Match[str]]) -> Clock | None:
    kinds = {str(atom.lastgroup) for atom in run}
    has_time = bool(kinds & {"time", "compact", "epoch"})
    has_date = bool(kinds & {"date", "compact", "epoch"}) or {"month", "number"} <= kinds
    # The name of a day is enough, spelled out: "Mon" and "sat" are other words too.
    has_date = has_date or any(a.lastgroup == "day" and len(a.group()) > 3 for a in run)
    if not (has_time or has_date):
        return None
    start, end = run[0].start(), run[-1].end()
    before = text[max(0, start - 40) : start]
    return Clock(start, end, has_date, has_time, bool(_NOW_WORDS.search(before)))
