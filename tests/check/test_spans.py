import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.check.spans import changed_spans, replace_spans
from warmturn.check.volatile import classify

TEXTS = st.text(alphabet="ab 1.\n日", max_size=40)


@given(TEXTS, TEXTS)
def test_putting_all_spans_back_gives_the_old_text(old, new):
    assert replace_spans(new, old, changed_spans(old, new)) == old


def told(old, new):
    return [
        (old[s.old_start : s.old_end], new[s.new_start : s.new_end])
        for s in changed_spans(old, new)
    ]


@pytest.mark.parametrize(
    ("old", "new", "spans"),
    [
        ("same", "same", []),
        ("cch=0c1d2;", "cch=0c1f7;", [("0c1d2", "0c1f7")]),  # whole words
        ("It is 10:03.", "It is 10:04.", [("03", "04")]),
        ("at 10:03:11 x", "at 11:04:12 x", [("10:03:11", "11:04:12")]),  # joined over ":"
        ("a=1\nsame line\nb=2", "a=5\nsame line\nb=6", [("1", "5"), ("2", "6")]),
        ("今天是29日", "今天是30日", [("29", "30")]),
        ("user Anna", "user Anna of Rome", [("", " of Rome")]),
    ],
)
def test_what_changed_is_told_in_whole_words(old, new, spans):
    assert told(old, new) == spans


def test_a_line_that_was_rewritten_is_one_span():
    old = "the cat that lives here sat on a mat and then slept for an hour"
    new = "the dog that walks here ran on a path and then rested for a day"
    assert len(told(old, new)) == 1
    assert [c.kind for c in classify(old, new, changed_spans(old, new))] == [
        "client.message_edited"
    ]


def test_a_long_text_that_differs_all_over_is_one_span():
    old, new = (" ".join(f"{letter}{n}" for n in range(3000)) for letter in "xy")
    assert len(changed_spans(old, new)) == 1
