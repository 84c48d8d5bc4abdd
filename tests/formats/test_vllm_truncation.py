"""Prompts cut by --max-log-len are found, and whole ones are not accused."""

import pytest

from warmturn.errors import InvalidInput
from warmturn.formats.record import LoggedRequest
from warmturn.formats.vllm_truncation import TruncationEvidence

END = "<|assistant|>"
LONG = "x" * 40


def judge(*prompts):
    evidence = TruncationEvidence()
    for line, (text, ids) in enumerate(prompts, 1):
        evidence.add(
            LoggedRequest(
                source="log", line=line, level="full", prompt_text=text, prompt_token_ids=ids
            )
        )
    evidence.finish()


def test_as_many_ids_as_characters_is_a_cut():
    with pytest.raises(InvalidInput, match="40 characters and as many token ids"):
        judge((LONG, tuple(range(40))))


def test_equal_text_with_other_ids_is_a_cut():
    with pytest.raises(InvalidInput, match="the same text and different token ids"):
        judge((LONG, (1, 2)), (LONG, (1, 2, 3)))


def test_three_different_longest_prompts_with_different_ends_are_a_cut():
    with pytest.raises(InvalidInput, match="3 different prompts"):
        judge(*[(LONG + end, (1,)) for end in ("abcd", "bcde", "cdef")])


def test_three_longest_prompts_without_ids_are_a_cut():
    with pytest.raises(InvalidInput, match="3 prompts have the greatest length"):
        judge((LONG, None), (LONG, None), (LONG, None))


def test_three_longest_prompts_that_end_in_an_ellipsis_are_a_cut():
    with pytest.raises(InvalidInput, match="ellipsis"):
        judge(*[(LONG + start + "...", (1,)) for start in "abc"])


def test_the_refusal_says_what_to_do():
    with pytest.raises(InvalidInput, match=r"without --max-log-len .* return_token_ids"):
        judge((LONG, tuple(range(40))))


@pytest.mark.parametrize(
    "prompts",
    [
        [(LONG + END, (1, 2)), (LONG + "more" + END, (1, 2, 3))],
        [(LONG + name + END, (1, ord(name))) for name in "abc"],  # scripted, equally long
        [(LONG + END, (1, 2))] * 5,  # the same request again
        [("Hi" + name, (1, 2)) for name in "abc"],  # short ones are equal by chance
        [("x" * 20, tuple(range(20)))],
        [(LONG, None), (LONG, None), (LONG + "y", None)],  # not the greatest length
        [(None, (1, 2))] * 3,
    ],
)
def test_whole_prompts_are_accepted(prompts):
    judge(*prompts)
