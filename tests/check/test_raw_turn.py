"""Turns without messages: what can be said, and what cannot."""

import numpy as np

from tests.check.test_raw_lineage import ASK, FIRST, OPEN, REPLY, RULES, SECOND, ids, text
from tests.support.logged import request, user
from tests.support.tiny_renderer import TinyTokenizer
from warmturn.check import check_conversations, check_turn

NO_MESSAGES = "the log has no messages"


def report(*log, tokenizer=None):
    return check_conversations(log, template=None, tokenizer=tokenizer)


def turn(*log, tokenizer=None):
    found = report(*log, tokenizer=tokenizer).conversations
    assert len(found) == 1
    return found[0].turns[-1]


def test_a_prompt_that_only_appends_is_clean():
    found = turn(text(FIRST, REPLY), text(SECOND))
    assert (found.verdict, found.cause, found.evidence) == ("append-only", "none", "text")
    assert found.shared_chars == found.cached_chars == len(FIRST + REPLY)
    assert found.cost is None


def test_nothing_is_said_of_messages():
    found = turn(text(FIRST, REPLY), text(SECOND))
    assert found.are_messages_append_only is None
    assert (found.latent, found.across) == ((), ())


def test_changed_text_is_a_break_without_a_cause():
    found = turn(text(FIRST, REPLY), text(SECOND.replace("for one.", "for two.")))
    (finding,) = found.findings
    assert (found.verdict, found.level, found.cause, found.blame) == (
        "break", "text", "unknown", "nobody",
    )  # fmt: skip
    assert finding.shared_chars == FIRST.index("one.")
    assert finding.detail.startswith("in the earlier prompt")
    assert finding.earlier_at != finding.later_at
    assert NO_MESSAGES in found.notes[0]
    assert found.is_failure
    assert found.fixes == ()


def test_a_changed_reply_is_a_break_behind_the_prompt():
    found = turn(text(FIRST, REPLY), text(SECOND.replace(REPLY, REPLY.replace("ten", "20"))))
    assert found.findings[0].detail.startswith("in the earlier reply")
    assert found.earlier_prompt_chars == len(FIRST) < found.shared_chars < found.cached_chars


def test_a_generation_prompt_that_is_gone_is_the_templates():
    opened = FIRST + "<think>\n"
    found = turn(text(opened, REPLY), text(SECOND, conversation_id=None))
    assert (found.cause, found.blame) == (
        "template.generation_prompt_not_in_history", "template",
    )  # fmt: skip
    assert "'<think>\\n'" in found.findings[0].detail
    assert found.notes == ()


def test_a_break_inside_the_last_token_is_none():
    found = turn(text(FIRST, REPLY.replace("<|end|>", "<|return|>")), text(SECOND))
    assert found.verdict == "append-only"


def test_with_a_tokenizer_lengths_are_tokens():
    found = turn(text(FIRST, REPLY), text(SECOND), tokenizer=TinyTokenizer())
    assert found.cost.shared_tokens > 0
    assert found.cost.cached_share == 1.0


def test_ids_need_no_tokenizer():
    first = list(range(64))
    found = turn(ids(first, [7, 8, 9]), ids([*first, 7, 8, 9, 5]))
    assert (found.verdict, found.evidence) == ("append-only", "ids")
    assert (found.cost.shared_tokens, found.cost.prompt_tokens) == (66, 68)


def test_another_id_in_the_reply_is_retokenised():
    first = list(range(64))
    found = turn(ids(first, [7, 8, 9, 10]), ids([*first, 7, 99, 9, 10, 5, 6, 7, 8]))
    assert (found.level, found.cause, found.blame) == (
        "tokens", "token.retokenised_output", "client",
    )  # fmt: skip
    assert found.cost.shared_tokens == 65


def test_another_id_in_the_prompt_may_be_anything():
    first = list(range(200))
    later = [*first[:50], 999, *first[51:], 7, 8, 9, 5]
    found = turn(ids(first, [7, 8, 9]), ids(later))
    assert (found.level, found.cause, found.cost.shared_tokens) == ("tokens", "unknown", 50)
    assert "became [999" in found.token_finding.detail
    assert NO_MESSAGES in found.notes[0]
    assert found.is_failure


def test_ids_and_a_tokenizer_tell_drift_from_other_text():
    tokenizer = TinyTokenizer()
    prompt = tokenizer.encode(RULES + ASK + OPEN)
    reply = tokenizer.encode("good day")
    same = ids(prompt, reply), ids(np.concatenate([prompt, reply, tokenizer.encode(ASK)]))
    assert turn(*same, tokenizer=tokenizer).verdict == "append-only"
    other = tokenizer.encode("good night")
    changed = same[0], ids(np.concatenate([prompt, other, tokenizer.encode(ASK)]))
    assert turn(*changed, tokenizer=tokenizer).level == "text"


def test_a_pair_without_messages_is_checked_by_itself():
    found = check_turn(text(FIRST, REPLY), text("x" + SECOND), template=None)
    assert (found.verdict, found.cause, found.shared_chars) == ("break", "unknown", 0)


def test_requests_with_and_without_messages_stand_beside_each_other():

    found = report(text(FIRST), request(user("Hi")), text(SECOND))
    assert [t.parent_number for t in found.turns()] == [None, 1, None]
    assert found.verdict == "append-only"
