"""Where a text can be cut so that encoding the pieces equals encoding the whole.

The `tokenizers` library first splits a text at added tokens, then treats every piece alone:
first at tokens matched on the raw text (`normalized=False`), then, in each remaining piece
after normalisation, at the others. At each place the leftmost match wins, and of those the
longest. A text can thus be cut *before* an added token the library is sure to find there; the
token itself stays at the head of its segment. That the token comes with it matters: the text
behind it then still lies at an offset above zero, so a Metaspace pre-tokenizer with
`prepend_scheme="first"` does to it what it does in the whole text.

A token is used for cutting, as a *marker*, only where the text before it can have no say:
not if it takes white space on its left (`lstrip`) or asks for a word boundary (`single_word`),
and not if its first character is white space or part of a word, since a neighbour that takes
white space or asks for a boundary would then see a different edge. Tokens that are not markers
are matched all the same: they may hide a marker by overlapping it.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise, takewhile

from tokenizers import AddedToken

__all__ = ["MarkerSplitter"]


class MarkerSplitter:
    """Cuts texts before the markers of one tokenizer. Immutable."""

    def __init__(self, added: Iterable[AddedToken], *, normalizer_keeps_text: bool) -> None:
        tokens = [token for token in added if token.content]
        raw = [token for token in tokens if not token.normalized]
        late = [token for token in tokens if token.normalized]
        passes = [_Pass(raw)] if raw else []
        # Late tokens are matched on normalised text, which is only known where the normaliser
        # leaves it alone; and within the pieces the raw ones leave, which are only known
        # where no raw token looks beyond its own characters.
        if late and normalizer_keeps_text and not any(_looks_around(token) for token in raw):
            passes.append(_Pass(late))
        self._passes = passes
        self.has_markers = any(one.markers for one in passes)
        self.separator = next((t.content for t in reversed(raw) if _is_separator(t)), None)
        """A marker that takes nothing beside itself: texts around it are encoded as if alone."""

    def split(self, text: str) -> list[str]:
        """Return the segments of `text`, in order; joined they give `text`. O(length)."""
        cuts = _cuts(text, 0, len(text), self._passes)
        starts = cuts if cuts and cuts[0] == 0 else [0, *cuts]
        return [text[start:end] for start, end in pairwise([*starts, len(text)])]


def _cuts(text: str, start: int, end: int, passes: Sequence["_Pass"]) -> list[int]:
    """Starts of markers in `[start, end)`; each pass works between the matches of the last."""
    if not passes:
        return []
    this, *later = passes
    matches = this.pattern.finditer(text, start, end)
    if not later:
        return [match.start() for match in matches if match[0] in this.markers]
    cuts = []
    for match in matches:
        cuts += _cuts(text, start, match.start(), later)
        if match[0] in this.markers:
            cuts.append(match.start())
        start = match.end()
    return cuts + _cuts(text, start, end, later)


class _Pass:
    """One round of matching: what is searched, and which matches are markers."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        words = sorted({token.content for token in tokens})
        self.pattern = re.compile(_longest_match_pattern(words))
        self.markers = frozenset(token.content for token in tokens if _is_marker(token))


def _is_marker(token: AddedToken) -> bool:
    # Punctuation or a symbol; connectors such as "_" count as parts of words.
    category = unicodedata.category(token.content[0])
    is_edge = category[0] in "PS" and category != "Pc"
    # A run of line feeds or of "▁" is a token too; cutting there would only make crumbs.
    is_word_like = any(character.isalnum() for character in token.content)
    return is_edge and is_word_like and not (token.lstrip or token.single_word)


def _is_separator(token: AddedToken) -> bool:
    # Special ones are the rarest in a text; the last of them mostly have no use at all.
    takes_none = not token.rstrip and token.content[-1] in string.punctuation
    return token.special and takes_none and _is_marker(token)


def _looks_around(token: AddedToken) -> bool:
    return token.lstrip or token.rstrip or token.single_word


def _longest_match_pattern(words: Sequence[str]) -> str:
    """A regular expression for the longest of `words` at a place. `words` are sorted.

    A trie, so that a `<` in the text costs a few steps and not one per token: there are
    tokenizers with thousands of them.
    """
    branches = []
    for _, group in groupby((word for word in words if word), key=lambda word: word[0]):
        members = list(group)
        shared = _shared_prefix(members[0], members[-1])
        rests = [word[len(shared) :] for word in members]
        branches.append(re.escape(shared) + (_longest_match_pattern(rests) if any(rests) else ""))
    joined = "|".join(branches)
    # The empty word ends a shorter token here: greedy, so that the longer ones are tried first.
    return f"(?:{joined})?" if "" in words else f"(?:{joined})"


def _shared_prefix(first: str, last: str) -> str:
    """What all words between `first` and `last` in sorted order begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(character for character, _ in pairs)
