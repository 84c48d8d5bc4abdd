import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.tiny_renderer import END, PAIR, TinyTokenizer
from warmturn.engine.text import ReplyText, StopMatcher


def naive(text: str, stops: list[str], *, include_stop: bool) -> tuple[str, str | None]:
    """Look at every prefix, as one would with the whole text at hand."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include_stop else end - len(stop)], stop
    return text, None


def pieces(text: str, cuts: list[int]) -> list[str]:
    borders = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(borders)]


@given(
    text=st.text("ab", max_size=40),
    stops=st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
    cuts=st.lists(st.integers(0, 100)),
    include_stop=st.booleans(),
)
@example(text="ab", stops=["b", "ab"], cuts=[], include_stop=False)
@example(text="aab", stops=["ab"], cuts=[1], include_stop=False)
@example(text="abaabaaab", stops=["abaaab"], cuts=[], include_stop=False)
def test_a_reply_ends_where_a_search_of_the_whole_text_would_end_it(
    text, stops, cuts, include_stop
):
    matcher = StopMatcher(stops, include_stop=include_stop)
    shown = "".join(matcher.push(piece) for piece in pieces(text, cuts)) + matcher.flush()
    assert (shown, matcher.matched) == naive(text, stops, include_stop=include_stop)


@given(
    text=st.text("ab", max_size=30),
    stops=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3),
)
def test_no_more_is_held_back_than_may_become_a_stop_string(text, stops):
    matcher = StopMatcher(stops)
    shown = ""
    for end, char in enumerate(text, start=1):
        shown += matcher.push(char)
        if matcher.matched is not None:
            break
        held = text[len(shown) : end]
        assert held == "" or any(stop.startswith(held) for stop in stops)
        assert len(held) < max(map(len, stops))


def test_without_stop_strings_all_text_passes_at_once():
    matcher = StopMatcher([])
    assert matcher.push("abc") == "abc"
    assert matcher.flush() == ""


def test_text_after_a_match_is_dropped():
    matcher = StopMatcher(["."])
    assert matcher.push("one. two") == "one"
    assert matcher.push("three") == ""
    assert matcher.flush() == ""


def test_a_stop_string_across_tokens_is_never_shown_in_part():
    reply = ReplyText(TinyTokenizer().decode_stream(), StopMatcher(["xaby"]))
    shown = [reply.push(token_id) for token_id in (ord("-"), ord("x"), PAIR, ord("y"))]
    assert shown == ["-", "", "", ""]
    assert reply.matched == "xaby"


def test_a_stop_string_is_found_inside_characters_of_several_tokens():
    reply = ReplyText(TinyTokenizer().decode_stream(), StopMatcher(["é!"]))
    shown = [reply.push(byte) for byte in "aé!".encode()]
    assert "".join(shown) == "a"
    assert reply.matched == "é!"


def test_the_first_min_tokens_tokens_are_not_searched():
    reply = ReplyText(TinyTokenizer().decode_stream(), StopMatcher(["."]), min_tokens=2)
    assert "".join(reply.push(byte) for byte in b"..a.b") == "..a"
    assert reply.matched == "."


def test_an_unfinished_character_is_shown_broken_at_the_end_only():
    reply = ReplyText(TinyTokenizer().decode_stream(), StopMatcher([]))
    assert reply.push("é".encode()[0]) == ""
    assert reply.flush() == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("skip", "text"), [(True, ""), (False, "<end>")])
def test_special_tokens_show_only_when_asked_for(skip, text):
    stream = TinyTokenizer().decode_stream(skip_special_tokens=skip)
    assert ReplyText(stream, StopMatcher([])).push(END) == text
