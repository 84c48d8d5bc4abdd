from dataclasses import replace

from tests.support.checked import checked, clock, clock_log, conversation
from tests.support.logged import assistant, user
from tests.support.tiny_renderer import TinyTokenizer
from warmturn.report.checked_log import share_of


def test_causes_are_grouped_with_the_dearest_first():
    log = checked(
        *conversation("short", orders=clock, num_turns=2),
        *conversation("long", orders=clock, num_turns=5),
    )
    (group,) = log.figures.causes
    assert group.cause == "client.timestamp_in_system"
    assert group.num_turns == 5
    assert (group.conversation_id, group.worst.turn) == ("long", 4)
    assert group.lost_tokens == sum(map(log.lost_tokens, log.report.turns()))


def test_the_dearest_cause_comes_first():
    cheap = conversation("cheap", num_turns=2)
    cheap[1] = replace(cheap[1], messages=(*cheap[1].messages[:2], assistant("Other."), user("x")))
    dear = conversation("dear", orders=clock)
    for requests in ([*cheap, *dear], [*dear, *cheap]):
        causes = [group.cause for group in checked(*requests).figures.causes]
        assert causes == ["client.timestamp_in_system", "client.message_edited"]


def test_without_a_tokenizer_lost_tokens_are_a_quarter_of_the_characters():
    log = clock_log()
    turn = next(iter(log.failures()))[1]
    assert not log.figures.has_tokens
    assert log.lost_tokens(turn) == (turn.cached_chars - turn.shared_chars) // 4


def test_with_a_tokenizer_lost_tokens_are_whole_blocks_of_the_engine():
    requests = conversation("clock", orders=clock)
    paged = checked(*requests, tokenizer=TinyTokenizer(), block_tokens=16)
    exact = checked(*requests, tokenizer=TinyTokenizer(), engine="exact-end")
    turn = next(iter(paged.failures()))[1]
    cached = turn.cost.shared_tokens + turn.cost.lost_tokens
    assert paged.lost_tokens(turn) == (cached // 16 - turn.cost.shared_tokens // 16) * 16
    assert exact.lost_tokens(turn) == cached


def test_seconds_need_a_measured_rate():
    assert clock_log().lost_s(500) is None
    assert clock_log(prefill_tokens_per_s=1000.0).lost_s(500) == 0.5


def test_the_first_turn_of_a_conversation_has_no_share():
    first, second, _ = clock_log().report.conversations[0].turns
    assert share_of(first) is None
    assert 0 < share_of(second) < 0.9


def test_requests_the_template_refuses_are_counted():
    refusing = "{{ raise_exception('no') }}"
    log = checked(*conversation("any"), source=refusing)
    assert log.figures.num_not_rendered == 3
