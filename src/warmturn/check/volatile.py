"""What kind of thing a changed span of a system text is: a clock, a volatile value, user data."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from warmturn.check.clocks import Clock, clocks_in
from warmturn.check.spans import Span

__all__ = ["Changed", "Kind", "classify", "latent_causes"]

Kind: TypeAlias = Literal[
    "client.timestamp_in_system",
    "client.volatile_value_in_system",
    "client.user_data_in_system",
    "client.message_edited",
]

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_TOKEN = re.compile(r"[\w+/=.~-]+")
_KEY = re.compile(r"([^\n\r;,|{}<>=:]{1,60}?)[\"'\]]?\s*(?:[:=#]|>)\s*[\"'\[(<#]?\s*[\w+/=.~-]*\Z")
_WORD_BORDERS = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
_OPAQUE_WORDS = re.compile(
    r"\b(?:id|ids|uuid|guid|hash|checksum|digest|sha\d*|md5|crc|etag|nonce|salt|seed|trace|span|"
    r"request|req|correlation|build|rev|revision|commit|cch|signature|sig|token|turn|step|counter|"
    r"count|seq|sequence|session|run|attempt|iteration|nr|no|random|cache)\b",
    re.IGNORECASE,
)
_USER_WORDS = re.compile(
    r"\b(?:user|users|username|customer|client|member|person|people|guest|patient|student|employee|"
    r"name|named|called|email|e-mail|mail|phone|profile|account|tenant|company|organi[sz]ation|"
    r"location|located|city|country|address|language|locale|timezone|birthday|age|gender|role|"
    r"plan|tier|subscription|balance|credit|points|cart|basket|order|orders|ticket|preference\w*|"
    r"likes|interests|memory|memories|history|context|retrieved|document\w*|passage\w*|snippet\w*|"
    r"notes?|facts|knowledge|search|results?|page|cursor|selection|file|files|open|weather|"
    r"device\w*|state|status|inventory|unread|messages|inbox|"
    r"benutzer\w*|nutzer\w*|kunde\w*|kundin|konto|standort|anwender\w*|"
    r"utilisateur\w*|nom|prénom|compte|ville|usuario\w*|cliente\w*|nombre|cuenta|ciudad|utente|"
    r"speaking with|talking to|talking with|assisting|helping|hello|hi|dear|welcome)\b"
    r"|用户|姓名|客户|ユーザー|お客様",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?:[A-ZÀ-ÞĀ-Ž][\w'\u2019.-]*)(?: [A-ZÀ-ÞĀ-Ž][\w'\u2019.-]*){0,3}")
_MOST_VALUE_WORDS = 12
_CONTEXT_CHARS = 120


@dataclass(frozen=True, slots=True)
class Changed:
    """One changed span with its kind, the field it belongs to and the values on both sides."""

    span: Span
    kind: Kind
    key: str | None
    old: str
    new: str


def classify(old: str, new: str, spans: Sequence[Span]) -> list[Changed]:
    """Return the kind of each changed span between the system texts `old` and `new`."""
    clocks_old, clocks_new = _clocks(old), _clocks(new)
    return [_classified(old, new, span, clocks_old, clocks_new) for span in spans]


def latent_causes(text: str) -> tuple[str, ...]:
    """Return the causes that a system text will have though it has not changed yet.

    A time of day that says it is now, or that stands beside a date. Opening hours do not.
    """
    return _latent(text)


@lru_cache(maxsize=256)
def _latent(text: str) -> tuple[str, ...]:
    is_due = any(c.has_time and (c.has_date or c.is_announced) for c in clocks_in(text))
    return ("client.timestamp_in_system",) if is_due else ()


@lru_cache(maxsize=256)
def _clocks(text: str) -> tuple[Clock, ...]:
    return tuple(clocks_in(text))


def _classified(
    old: str, new: str, span: Span, clocks_old: Sequence[Clock], clocks_new: Sequence[Clock]
) -> Changed:
    before, after = old[span.old_start : span.old_end], new[span.new_start : span.new_end]
    key = _key(old, span.old_start)
    if _lies_in(span.old_start, span.old_end, clocks_old) and _lies_in(
        span.new_start, span.new_end, clocks_new
    ):
        return Changed(span, "client.timestamp_in_system", key, before, after)
    values = (
        _token_around(old, span.old_start, span.old_end),
        _token_around(new, span.new_start, span.new_end),
    )
    context = _in_words(f"{_context(old, span.old_start)} {key or ''}")
    kind = _kind(values, before, after, None if key is None else _in_words(key), context)
    return Changed(span, kind, key, *values)


def _kind(values: tuple[str, str], old: str, new: str, key: str | None, context: str) -> Kind:
    line = context.rsplit("\n", 1)[-1]
    is_users = bool(_USER_WORDS.search(key or "")) and not _OPAQUE_WORDS.fullmatch(
        (key or "").strip()
    )
    if any("@" in value for value in (*values, old, new)) or is_users:
        return "client.user_data_in_system"
    if all(map(_is_opaque, values)) or _is_hinted(values, key, line):
        return "client.volatile_value_in_system"
    if all(_is_number(value) for value in values):
        is_data = _USER_WORDS.search(line) and not _OPAQUE_WORDS.search(line)
        return "client.user_data_in_system" if is_data else "client.volatile_value_in_system"
    words = max(len(old.split()), len(new.split()))
    is_slot = words <= _MOST_VALUE_WORDS and (key is not None or _are_names(old, new))
    if is_slot or _USER_WORDS.search(context):
        return "client.user_data_in_system"
    return "client.message_edited"


def _lies_in(start: int, end: int, clocks: Sequence[Clock]) -> bool:
    return any(clock.start <= start and end <= clock.end + 1 for clock in clocks)


def _is_opaque(value: str) -> bool:
    """Whether nobody could have written this by hand: an id, a hash, a random token."""
    if re.fullmatch(_UUID, value):
        return True
    bare = value.rpartition("=")[2].strip(".-_")
    digits, letters = sum(map(str.isdigit, bare)), sum(map(str.isalpha, bare))
    if re.fullmatch(r"[0-9a-fA-F]{5,}", bare) and digits:
        return True
    mixed_case = bare != bare.lower() and bare[1:] != bare[1:].lower() and bare != bare.upper()
    return len(bare) >= 6 and letters > 0 and (digits >= 2 or (digits >= 1 and mixed_case))


def _is_number(value: str) -> bool:
    return re.fullmatch(r"[#+-]?\d[\d.,]*%?", value) is not None


def _is_hinted(values: tuple[str, str], key: str | None, line: str) -> bool:
    """One word each, and the field's name says it is an id or a counter."""
    is_word = all(len(value.split()) == 1 and len(value) >= 3 for value in values)
    return is_word and bool(_OPAQUE_WORDS.search(key or line[-24:]))


def _are_names(old: str, new: str) -> bool:
    return bool(_NAMES.fullmatch(old.strip()) and _NAMES.fullmatch(new.strip()))


def _token_around(text: str, start: int, end: int) -> str:
    """Widen a changed span to the whole token it lies in: `0c1d2` of `cch=0c1d2;`."""
    left = start
    while left > 0 and _TOKEN.fullmatch(text[left - 1]) and text[left - 1] != "=":
        left -= 1
    right = end
    while right < len(text) and _TOKEN.fullmatch(text[right]) and text[right] != "=":
        right += 1
    return text[left:right].strip().rstrip(".")


def _key(text: str, start: int) -> str | None:
    line = text[max(0, start - _CONTEXT_CHARS) : start].rsplit("\n", 1)[-1]
    found = _KEY.search(line)
    return found.group(1).strip(" \t-*#\"'[(") or None if found else None


def _in_words(name: str) -> str:
    """`user_profile` and `userProfile` are words like any other."""
    return _WORD_BORDERS.sub(" ", name)


def _context(text: str, start: int) -> str:
    return text[max(0, start - _CONTEXT_CHARS) : start]
