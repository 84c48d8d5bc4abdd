"""Lists are written as words: s for the system text, the rest messages of one word."""

import pytest

from warmturn.check.alignment import Alignment, align


def messages(words):
    return [
        {
            "role": "system" if w[0] == "s" else "assistant" if w[0] == "a" else "user",
            "content": w,
        }
        for w in words.split()
    ]


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ("s u1", "s u1 a1 u2", Alignment(2, 0, 0, 0)),
        ("s u1", "s2 u1 a1 u2", Alignment(2, 0, 0, 0)),  # the system text was edited
        ("s u1 a1 u2", "s ux a1 u2 a2 u3", Alignment(4, 0, 0, 0)),  # edited in place
        ("s u1 a1 u2", "s u1 a1 uy a2 u3", Alignment(4, 0, 0, 0)),  # the last one, answered
        ("s u1 a1 u2 a2 u3", "s u2 a2 u3 a3 u4", Alignment(1, 2, 0, 3)),
        ("s u1 a1 u2 a2 u3", "s uS u3 a3 u4", Alignment(1, 4, 1, 1)),
        ("s u1 a1 u2 a2 u3", "s uS aOK u3 a3 u4", Alignment(1, 4, 2, 1)),
        ("s u1 a1 u2", "s uX u1 a1 u2 a2 u3", Alignment(1, 0, 1, 3)),  # put in
        ("s u1 a1 u2 a2 u3", "s uS u9", Alignment(1, 5, 1, 0)),  # nothing is left
        ("u1 a1 u2", "u2 a2 u3", Alignment(0, 2, 0, 1)),
    ],
)
def test_lists_are_aligned_to_keep_most(earlier, later, expected):
    found = align(messages(earlier), messages(later))
    assert found == expected
    kept = messages(later)[found.head + found.num_put_in : found.echo_index]
    assert len(kept) == found.num_kept


def test_a_repeated_word_does_not_make_a_window():
    earlier, later = "s uok a1 uok a2 uok", "s uok a1 uok aX uok a3 uok"
    assert align(messages(earlier), messages(later)).is_in_place
