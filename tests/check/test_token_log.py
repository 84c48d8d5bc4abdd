import pytest

from warmturn.check import check_token_pair

PROMPT, OUTPUT = [1, 2, 3], [10, 11, 12, 13]
NEXT_TURN = [20, 21]


def check(next_ids, prompt=PROMPT, output=OUTPUT, **options):
    return check_token_pair(prompt, output, next_ids, **options)


def test_ids_that_go_on_are_append_only():
    found = check([*PROMPT, *OUTPUT, *NEXT_TURN])
    assert (found.verdict, found.level, found.cause, found.blame) == (
        "append-only",
        None,
        "none",
        "nobody",
    )


def test_the_last_generated_id_need_not_be_shared():
    assert check([*PROMPT, 10, 11, 12, 99, *NEXT_TURN]).verdict == "append-only"
    assert check([*PROMPT, 10, 11, 99, 13, *NEXT_TURN]).verdict == "break"
    assert check([1, 2, 99], output=[]).verdict == "break"


@pytest.mark.parametrize(
    ("next_ids", "is_text_equal", "names", "cause"),
    [
        ([1, 2, 3, 10, 50, 13, 20], True, {}, "token.retokenised_output"),
        ([1, 2, 50, 11, 12, 13, 20], True, {}, "token.boundary_merge"),
        ([1, 50, 3, 10, 11, 12, 13, 20], True, {}, "token.retokenised_output"),
        ([1, 2, 50, 10, 11, 12, 13, 20], True, {}, "token.retokenised_output"),
        (
            [1, 2, 3, 10, 99, 11, 12, 13, 20],
            None,
            {},
            "template.inserts_token_before_generated_text",
        ),
        (
            [1, 2, 3, 99, 10, 11, 12, 13, 20],
            False,
            {},
            "template.inserts_token_before_generated_text",
        ),
        ([1, 2, 10, 11, 12, 13, 20], False, {}, "template.generation_prompt_not_in_history"),
        (
            [1, 2, 3, 12, 13, 20],
            False,
            {10: "begin-think", 11: "word"},
            "template.reasoning_stripped_on_new_user_turn",
        ),
        ([1, 2, 3, 10, 11, 13, 20], False, {12: "newline"}, "template.content_trimmed"),
        ([1, 2, 3, 10, 11, 13, 20], False, {12: "word"}, "unknown"),
        ([1, 99, 2, 3, 10, 11, 12, 13], False, {}, "unknown"),
        ([5, 6, 7, 8], False, {}, "unknown"),
    ],
)
def test_the_first_difference_names_the_cause(next_ids, is_text_equal, names, cause):
    found = check(next_ids, is_text_equal=is_text_equal, token_names=names)
    assert (found.verdict, found.level, found.cause) == ("break", "tokens", cause)


def test_reuse_is_told_for_each_block_size_and_for_all_or_nothing():
    found = check([*PROMPT, 10, 99, 11, 12, 13], block_sizes=(2, 4, 16))
    assert (found.total_tokens, found.shared_tokens, found.is_prompt_prefix) == (7, 4, True)
    assert found.reuse.paged == {2: 4, 4: 4, 16: 0}
    assert found.reuse.exact_end_only == 0
