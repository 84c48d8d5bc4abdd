"""Prompts without messages: who continues whom."""

from itertools import count

import pytest

from tests.support.logged import request
from warmturn.check.lineage import Lineage
from warmturn.check.raw_lineage import RawIndex, raw_of

RULES = "<|system|>You answer for a library. Books are lent for four weeks, films for one.<|end|>"
ASK = (
    "<|user|>How long may I keep a book that somebody else waits for, and what do I pay if I bring "
    "it back a week too late?<|end|>"
)
OPEN = "<|assistant|>"
FIRST = RULES + ASK + OPEN
REPLY = "Four weeks as well; after that ten cents a day.<|end|>"
SECOND = FIRST + REPLY + "<|user|>And films?<|end|>" + OPEN


def text(prompt, reply=None, **fields):
    return request(messages=None, prompt_text=prompt, reply_text=reply, **fields)


def ids(prompt, reply=None, **fields):
    reply = None if reply is None else tuple(reply)
    return request(messages=None, prompt_token_ids=tuple(prompt), reply_token_ids=reply, **fields)


def placed(*requests):
    """Return the number of each request's parent and its relation."""
    lineage = Lineage(most_open=100)
    found = [lineage.place(one) for one in requests]
    return [(f.parent and f.parent.number, f.relation) for f in found]


def test_a_prompt_continues_the_longest_one_it_begins_with():
    third = SECOND + "Seven days.<|end|><|user|>Thanks.<|end|>" + OPEN
    assert placed(text(FIRST), text(SECOND), text(third)) == [
        (None, "root"), (1, "turn"), (2, "turn"),
    ]  # fmt: skip


def test_another_conversation_with_the_same_system_text_is_a_root():
    other = RULES + "<|user|>Do you have a room for twelve people on Monday evening?<|end|>" + OPEN
    assert placed(text(FIRST), text(other)) == [(None, "root"), (None, "root")]


def test_a_changed_system_text_is_the_same_conversation_if_what_was_asked_reappears():
    changed = SECOND.replace("for one.", "for two.")
    assert placed(text(FIRST, REPLY), text(changed)) == [(None, "root"), (1, "turn")]
    assert placed(text(FIRST), text(changed)) == [(None, "root"), (1, "turn")]


def test_without_a_common_start_only_an_id_ties_two_prompts():
    clock = "<|system|>It is 10:03. " + FIRST.removeprefix("<|system|>")
    later = "<|system|>It is 10:04. " + SECOND.removeprefix("<|system|>")
    assert placed(text(clock, REPLY), text(later))[1] == (None, "root")
    tied = placed(text(clock, REPLY, conversation_id="c"), text(later, conversation_id="c"))
    assert tied[1] == (1, "turn")


def test_a_side_request_under_one_id_is_a_root():
    title = "<|system|>Write a title for the text.<|end|><|user|>A book.<|end|>" + OPEN
    assert placed(text(FIRST, conversation_id="c"), text(title, conversation_id="c"))[1] == (
        None, "root",
    )  # fmt: skip


@pytest.mark.parametrize("field", ["model", "adapter", "cache_salt", "conversation_id"])
def test_only_one_model_salt_and_conversation_is_looked_at(field):
    assert placed(text(FIRST, **{field: "a"}), text(SECOND, **{field: "b"}))[1] == (None, "root")


def test_a_repeated_prompt_is_a_retry_and_a_second_continuation_a_fork():
    other = FIRST + REPLY + "<|user|>Thanks.<|end|>" + OPEN
    found = placed(text(FIRST), text(FIRST), text(SECOND), text(SECOND), text(other))
    assert [relation for _, relation in found] == ["root", "root", "turn", "retry", "fork"]


def test_of_equal_prompts_the_one_with_this_reply_is_continued():
    others = [text(FIRST, REPLY), text(FIRST, "Some other answer, quite long.<|end|>")]
    assert placed(*others, text(SECOND))[2] == (1, "turn")


def test_a_short_prompt_is_found_too():
    assert placed(text("Hi"), text("Hi there"))[1] == (1, "turn")
    assert placed(text(""), text("Hi there"))[1] == (None, "root")


def test_ids_are_found_as_text_is():
    first = range(200)
    log = [ids(first, [7, 8, 9]), ids([*first, 7, 8, 9, 5])]
    assert placed(*log) == [(None, "root"), (1, "turn")]
    changed = [*range(50), 999, *range(51, 200), 7, 8, 9, 5]
    assert placed(log[0], ids(changed))[1] == (1, "turn")
    unlike = [*range(20), *range(500, 600)]
    assert placed(log[0], ids(unlike))[1] == (None, "root")


def test_text_and_ids_are_not_compared():
    prompt = "abcd" * 40
    same = memoryview(prompt.encode()).cast("i").tolist()
    assert placed(text(prompt), ids([*same, 1]))[1] == (None, "root")


def test_text_is_preferred_where_both_are_logged():
    assert raw_of(request(messages=None, prompt_text="a", prompt_token_ids=(1,))) == "a"
    assert raw_of(ids([1, 256])) == b"\1\0\0\0\0\1\0\0"


def test_what_is_forgotten_leaves_nothing_behind():
    index, number = RawIndex(), count(1)
    for _ in range(3):
        index.add(next(number), text(FIRST, conversation_id="c"))
    for one in (2, 1, 3):
        index.remove(one)
    assert index.parent_of(text(SECOND, conversation_id="c")) is None
    assert not index._open
    assert not index._by_key


def test_the_lineage_forgets_old_prompts():
    lineage = Lineage(most_open=3)
    for number in range(20):
        lineage.place(text(f"{number} {FIRST}"))
    assert len(lineage) == len(lineage._raw._open) == 3
    assert lineage.place(text(f"19 {SECOND}")).parent is not None
    assert lineage.place(text(f"3 {SECOND}")).parent is None
