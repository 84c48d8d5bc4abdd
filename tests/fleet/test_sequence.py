import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_fleet import source
from warmturn.cache.events import EventBatch
from warmturn.fleet import Arrival, SourceState
from warmturn.fleet import sequence as sequence_module
from warmturn.fleet.sequence import EventSequence

EXACT, DEGRADED, UNKNOWN = SourceState.EXACT, SourceState.DEGRADED, SourceState.UNKNOWN


class Recorder:
    """A sequence whose effects can be read: numbers applied, `x` where all was forgotten."""

    def __init__(self) -> None:
        self.effects: list[object] = []
        self.sequence = EventSequence(
            source("a"),
            apply=lambda batch: self.effects.append(int(batch.timestamp_s)),
            forget=lambda: self.effects.append("x"),
        )

    def live(self, *numbers: int):
        return [self.sequence.receive(n, batch(n)) for n in numbers][-1]

    def answer(self, request, *numbers: int, answered: bool = True):
        for number in numbers:
            self.sequence.replayed(request, number, batch(number))
        return self.sequence.replay_ended(request, answered=answered)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def batch(number: int) -> EventBatch:
    return EventBatch(float(number), ())


def test_a_source_is_unknown_before_its_first_batch_and_exact_from_number_0(recorder):
    assert recorder.sequence.state is UNKNOWN
    assert recorder.live(0).arrival is Arrival.APPLIED
    assert recorder.live(1).replay is None
    assert (recorder.sequence.state, recorder.effects) == (EXACT, [0, 1])


def test_replay_takes_effect_before_the_batch_that_showed_the_gap(recorder):
    recorder.live(0)
    received = recorder.live(3)
    assert received.arrival is Arrival.HELD
    assert received.replay.from_seq == 1
    assert recorder.live(4).arrival is Arrival.HELD
    assert recorder.effects == [0]
    assert recorder.answer(received.replay, 1, 2, 3, 4) is None
    assert recorder.effects == [0, 1, 2, 3, 4]
    assert recorder.sequence.state is EXACT
    assert recorder.sequence.num_replayed_twice == 2, "3 and 4 came live"


@pytest.mark.parametrize("replayed", [(), (2,)])
def test_a_gap_that_stays_degrades_until_everything_is_cleared(recorder, replayed):
    recorder.live(0)
    request = recorder.live(3).replay
    recorder.answer(request, *replayed, answered=bool(replayed))
    assert recorder.effects == [0, *replayed, 3]
    assert recorder.sequence.state is DEGRADED
    recorder.live(4)
    assert recorder.sequence.state is DEGRADED
    recorder.sequence.cleared()
    assert recorder.sequence.state is EXACT


def test_a_consumer_that_joins_late_asks_from_the_start(recorder):
    request = recorder.live(17).replay
    assert request.from_seq == 0
    recorder.answer(request, *range(17))
    assert recorder.effects == list(range(18))
    assert recorder.sequence.state is EXACT


def test_the_buffer_may_no_longer_reach_back_to_the_start(recorder):
    recorder.answer(recorder.live(17).replay, *range(10, 20))
    assert recorder.effects == list(range(10, 18))
    assert recorder.sequence.state is DEGRADED


def test_a_late_batch_never_takes_effect(recorder):
    recorder.answer(recorder.live(4998).replay, answered=False)
    recorder.answer(recorder.live(5000).replay, answered=False)
    assert recorder.live(4999).arrival is Arrival.LATE
    assert recorder.live(5000).arrival is Arrival.DUPLICATE
    assert recorder.effects == [4998, 5000]


def test_number_0_again_is_a_restart_that_forgets_everything_first(recorder):
    recorder.live(0, 1, 2)
    assert recorder.live(0).arrival is Arrival.RESTARTED
    assert recorder.effects == [0, 1, 2, "x", 0]
    assert recorder.sequence.state is EXACT
    assert recorder.sequence.last_seq == 0
    assert recorder.sequence.num_restarts == 1


def test_a_restart_whose_first_batches_were_missed_is_a_restart_all_the_same(recorder):
    recorder.live(*range(100))
    received = recorder.live(2)
    assert received.arrival is Arrival.RESTARTED
    assert received.replay.from_seq == 0
    assert recorder.sequence.state is UNKNOWN
    recorder.answer(received.replay, 0, 1)
    assert recorder.effects[100:] == ["x", 0, 1, 2]
    assert recorder.sequence.state is EXACT


def test_a_lower_number_with_a_later_time_is_a_restart_however_close():
    recorder = Recorder()
    recorder.live(*range(10))
    late, newer = EventBatch(3.0, ()), EventBatch(99.0, ())
    assert recorder.sequence.receive(3, late).arrival is Arrival.LATE
    received = recorder.sequence.receive(3, newer)
    assert received.arrival is Arrival.RESTARTED
    assert received.replay.from_seq == 0


def test_the_first_batch_twice_is_no_restart_but_another_first_batch_is(recorder):
    recorder.live(0)
    assert recorder.live(0).arrival is Arrival.DUPLICATE
    other = EventBatch(9.0, ())
    assert recorder.sequence.receive(0, other).arrival is Arrival.RESTARTED
    assert recorder.effects == [0, "x", 9]


def test_answers_to_a_request_that_a_restart_overtook_are_ignored(recorder):
    recorder.live(0)
    stale = recorder.live(5).replay
    recorder.live(0)
    recorder.answer(stale, 1, 2, 3)
    assert recorder.effects == [0, "x", 0]
    assert recorder.sequence.state is EXACT


def test_a_batch_that_cannot_be_decoded_makes_the_source_unknown_not_empty(recorder):
    recorder.live(0)
    recorder.sequence.receive(1, None)
    assert recorder.sequence.state is UNKNOWN
    assert recorder.live(2).replay is None, "its number was seen"
    assert recorder.sequence.state is UNKNOWN
    assert recorder.effects == [0, 2]


def test_on_connection_everything_is_asked_for_and_live_batches_wait(recorder):
    request = recorder.sequence.connect()
    assert request.from_seq == 0
    assert recorder.live(2).arrival is Arrival.HELD
    recorder.answer(request, 0, 1, 2)
    assert recorder.effects == [0, 1, 2]
    assert recorder.sequence.state is EXACT


def test_a_publisher_that_announced_nothing_yet_is_exactly_known(recorder):
    recorder.answer(recorder.sequence.connect())
    assert recorder.sequence.state is EXACT
    assert recorder.live(0).arrival is Arrival.APPLIED


def test_a_publisher_that_does_not_answer_stays_unknown(recorder):
    recorder.answer(recorder.sequence.connect(), answered=False)
    assert recorder.sequence.state is UNKNOWN


def test_a_gap_among_the_held_batches_asks_again(recorder):
    recorder.live(0)
    first = recorder.live(2).replay
    recorder.live(5)
    second = recorder.answer(first, 1)
    assert second.from_seq == 3
    assert recorder.effects == [0, 1, 2]
    recorder.answer(second, 3, 4)
    assert recorder.effects == [0, 1, 2, 3, 4, 5]
    assert recorder.sequence.state is EXACT


def test_a_replay_that_never_ends_is_given_up(recorder, monkeypatch):
    monkeypatch.setattr(sequence_module, "MAX_HELD_BATCHES", 3)
    recorder.live(0)
    recorder.live(2, 3, 4)
    assert recorder.effects == [0]
    recorder.live(5)
    assert recorder.effects == [0, 2, 3, 4, 5]
    assert recorder.sequence.state is DEGRADED


@given(st.lists(st.integers(0, 12), max_size=40), st.sets(st.integers(0, 12)))
def test_whatever_arrives_effects_are_in_order_within_each_life(numbers, buffer):
    recorder = Recorder()
    for number in numbers:
        request = recorder.live(number).replay
        while request is not None:
            known = [n for n in buffer if request.from_seq <= n]
            request = recorder.answer(request, *known, answered=bool(known))
    life: list[int] = []
    for effect in recorder.effects:
        assert effect == "x" or not life or effect > life[-1]
        life = [] if effect == "x" else [*life, effect]
    if recorder.sequence.state is EXACT:
        assert life == list(range(len(life)))
