"""Whether a tokenizer always splits between a word and the blank behind it.

Where it does, a text can be cut there and its words encoded one by one, each once. A word ends in
an ASCII character that prints; the blank is U+0020. It is read off the tokenizer's own
pre-tokenizer, and holds if no match of any of its patterns can go from the end of a word on into
the blank, or look there, and if one of them takes a blank alone: then every match that begins
before such a border ends at or before it, the next one begins at it, and neither side has a say in
how the other is matched. BPE treats each match alone.

Patterns are read as far as those of known models go; one with anything else in it proves nothing,
and its tokenizer encodes texts as they are.
"""

import json
import string
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any
from unicodedata import category

import tokenizers
from tokenizers import AddedToken, models

__all__ = ["splits_behind_words"]

_PRINTED = frozenset(string.ascii_letters + string.digits + string.punctuation)
_BLANK = " "
_KNOWN = _PRINTED | {_BLANK, "\t", "\r", "\n"}
"""All other characters make no difference here."""

_LOOK = "look"
"""Stands for a look at the next character, among the characters a part may begin with."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What ByteLevel splits at with `use_regex` [tokenizers 0.23, pre_tokenizers/byte_level.rs]."""

_SCRIPTS = frozenset({"Han", "Hangul", "Hiragana", "Katakana", "Thai", "Arabic", "Cyrillic"})
"""Names of properties that no ASCII character has."""

_CATEGORIES = frozenset("L M N P S Z C Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No".split())  # noqa: SIM905
_ESCAPES = {
    "s": _KNOWN - _PRINTED,
    "S": _PRINTED,
    "d": frozenset(string.digits),
    "r": frozenset("\r"),
    "n": frozenset("\n"),
    "t": frozenset("\t"),
}
_KEEPING = {("Isolated", False), ("Removed", True)}
"""Behaviours of Split, with `invert`, that make each match a piece of its own."""


def splits_behind_words(backend: tokenizers.Tokenizer) -> bool:
    """Say whether ids on one side of a border of word and blank never depend on the other side."""
    if not isinstance(backend.model, models.BPE) or backend.model.dropout:
        return False
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    if normalizer is not None and not _is_canonical(json.loads(normalizer.__getstate__())):
        return False
    if any(map(_may_cross, backend.get_added_tokens_decoder().values())):
        return False
    return pre_tokenizer is not None and _splits(json.loads(pre_tokenizer.__getstate__()))


def _is_canonical(normalizer: Any) -> bool:
    """Unicode's canonical forms join nothing with a blank."""
    if normalizer["type"] == "Sequence":
        return all(map(_is_canonical, normalizer["normalizers"]))
    return normalizer["type"] in {"NFC", "NFD"}


def _may_cross(token: AddedToken) -> bool:
    pairs = zip(token.content, token.content[1:], strict=False)
    has_border = any(a in _PRINTED and b == _BLANK for a, b in pairs)
    return token.single_word or token.rstrip or has_border


def _splits(pre_tokenizer: Any) -> bool:
    """Say whether none of the steps goes across a border, and one makes a split of it."""
    is_sequence = pre_tokenizer["type"] == "Sequence"
    steps = pre_tokenizer["pretokenizers"] if is_sequence else [pre_tokenizer]
    # ByteLevel writes other characters in their place: what comes behind it is not read here.
    if any(step["type"] == "ByteLevel" for step in steps[:-1]):
        return False
    try:
        found = [_step(step) for step in steps]
    except _UnreadError:
        return False
    return not any(step.crosses for step in found) and any(step.is_sure for step in found)


@dataclass(frozen=True, slots=True)
class _Step:
    crosses: bool
    is_sure: bool
    """Whether a blank behind a word always begins a piece."""


def _step(step: Any) -> _Step:
    kind = step["type"]
    if kind == "Digits":
        return _Step(crosses=False, is_sure=False)
    if kind == "ByteLevel" and not step.get("add_prefix_space", True):
        if not step.get("use_regex", True):
            return _Step(crosses=False, is_sure=False)
        return _pattern(_GPT2)
    if kind == "Split" and (step["behavior"], step["invert"]) in _KEEPING:
        pattern = step["pattern"].get("Regex")
        if pattern is not None:
            return _pattern(pattern)
    raise _UnreadError


def _pattern(source: str) -> _Step:
    reader = _Reader(source)
    whole = reader.alternatives()
    reader.expect_end()
    return _Step(whole.crosses, _BLANK in whole.alone)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a part of a pattern can match, as far as borders go."""

    first: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    is_empty: bool = False
    """Whether it can match nothing."""
    crosses: bool = False
    """Whether a match can hold the end of a word with a blank, or a look, behind it."""
    alone: frozenset[str] = frozenset()
    """Characters each of which it matches whatever stands around."""


_NOTHING = _Part(is_empty=True)


def _then(left: _Part, right: _Part) -> _Part:
    if left is _NOTHING:
        return right
    return _Part(
        left.first | (right.first if left.is_empty else frozenset()),
        right.last | (left.last if right.is_empty else frozenset()),
        left.is_empty and right.is_empty,
        left.crosses or right.crosses or _meet(left.last, right.first),
    )


def _meet(last: frozenset[str], first: frozenset[str]) -> bool:
    return bool(last & _PRINTED) and bool(first & {_BLANK, _LOOK})


def _either(parts: Iterable[_Part]) -> _Part:
    parts = tuple(parts)
    return _Part(
        frozenset().union(*(part.first for part in parts)),
        frozenset().union(*(part.last for part in parts)),
        any(part.is_empty for part in parts),
        any(part.crosses for part in parts),
        frozenset().union(*(part.alone for part in parts)),
    )


def _of(characters: frozenset[str]) -> _Part:
    return _Part(characters, characters, alone=characters)


class _UnreadError(Exception):
    """The pattern has something in it that is not read here."""


class _Reader:
    """Reads a pattern of Oniguruma's, as far as tokenizers use them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def expect_end(self) -> None:
        """Raise `_UnreadError` where something is left."""
        if self._at < len(self._source):
            raise _UnreadError

    def alternatives(self) -> _Part:
        """Read up to the end or a closing bracket."""
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return _either(parts)

    def _sequence(self) -> _Part:
        part = _NOTHING
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            part = _then(part, self._repeated(self._atom()))
        return part

    def _repeated(self, part: _Part) -> _Part:
        mark = self._next() if self._peek() in tuple("?*+{") else ""
        bounds = self._up_to("}").split(",") if mark == "{" else []
        if mark and self._peek() in ("?", "+"):
            self._next()  # lazy or possessive: it matches none that it would not match else
        if not mark:
            return part
        if not all(bound.isdigit() for bound in bounds if bound):
            raise _UnreadError
        least = {"?": "0", "*": "0", "+": "1"}.get(mark, bounds[0] if bounds else "") or "0"
        return _Part(
            part.first,
            part.last,
            part.is_empty or least == "0",
            part.crosses or (mark != "?" and _meet(part.last, part.first)),
            part.alone if least in {"0", "1"} else frozenset(),
        )

    def _atom(self) -> _Part:
        character = self._next()
        if character == "[":
            return _of(self._characters())
        if character == "(":
            return self._group()
        if character == "\\":
            return _of(self._escaped())
        if character in "^$*+?{":
            raise _UnreadError
        return _of(_KNOWN - {"\n"} if character == "." else frozenset(character) & _KNOWN)

    def _group(self) -> _Part:
        if self._take("?!") or self._take("?="):
            self._atom()  # of one character: more could be seen than the next one
            self._expect(")")
            return _Part(first=frozenset({_LOOK}), is_empty=True)
        is_caseless = self._take("?i:")
        if not is_caseless and not self._take("?:") and self._peek() == "?":
            raise _UnreadError
        part = self.alternatives()
        self._expect(")")
        if not is_caseless:
            return _Part(part.first, part.last, part.is_empty, part.crosses)
        first, last = map(_any_case, (part.first, part.last))
        return _Part(first, last, part.is_empty, part.crosses)

    def _escaped(self) -> frozenset[str]:
        character = self._next()
        if character in "pP":
            self._expect("{")
            known = _with_property(self._up_to("}"))
            return known if character == "p" else _KNOWN - known
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isalnum():  # a border, a reference ...
            raise _UnreadError
        return frozenset(character) & _KNOWN

    def _characters(self) -> frozenset[str]:
        """Read a class behind its opening bracket."""
        is_negated = self._take("^")
        found: frozenset[str] = frozenset()
        while not self._take("]"):
            if self._take("&&"):
                found &= self._characters()
                self._at -= 1  # the bracket ends both
            else:
                found |= self._member()
        return _KNOWN - found if is_negated else found

    def _member(self) -> frozenset[str]:
        character = self._next()
        if character == "[":
            return self._characters()
        if character == "\\":
            return self._escaped()
        if self._peek() != "-" or self._source[self._at + 1 : self._at + 2] in ("", "]", "\\"):
            return frozenset(character) & _KNOWN
        self._next()
        end = self._next()
        return frozenset(known for known in _KNOWN if character <= known <= end)

    def _peek(self) -> str | None:
        return self._source[self._at] if self._at < len(self._source) else None

    def _next(self) -> str:
        character = self._peek()
        if character is None:
            raise _UnreadError
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        is_there = self._source.startswith(text, self._at)
        self._at += len(text) * is_there
        return is_there

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _UnreadError

    def _up_to(self, mark: str) -> str:
        end = self._source.find(mark, self._at)
        if end < 0:
            raise _UnreadError
        text, self._at = self._source[self._at : end], end + len(mark)
        return text


@cache
def _with_property(name: str) -> frozenset[str]:
    if name not in _CATEGORIES | _SCRIPTS:
        raise _UnreadError
    return frozenset(c for c in _KNOWN if name in {category(c), category(c)[0]})


def _any_case(characters: frozenset[str]) -> frozenset[str]:
    return characters | {character.swapcase() for character in characters - {_LOOK}}
