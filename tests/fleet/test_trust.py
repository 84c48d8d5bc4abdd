import pytest

from warmturn.fleet import HitFeedback, SourceState, trust_of


def feedback(*answers: tuple[int, int]) -> HitFeedback:
    made = HitFeedback()
    for predicted, delivered in answers:
        made.observe(predicted_tokens=predicted, delivered_tokens=delivered)
    return made


def test_the_state_gates_the_credit():
    trusts = [trust_of(SourceState[name]) for name in ("EXACT", "DEGRADED", "UNKNOWN")]
    assert trusts == [1.0, 0.5, 0.0]


def test_answers_that_keep_the_promise_leave_full_trust():
    kept = feedback(*[(100, 100), (100, 300)] * 20)
    assert trust_of(SourceState.EXACT, kept) == 1.0
    assert not kept.has_collapsed


def test_trust_follows_what_is_delivered():
    half = feedback(*[(100, 50)] * 60)
    assert trust_of(SourceState.EXACT, half) == pytest.approx(0.5, abs=0.01)
    assert (half.predicted_tokens, half.delivered_tokens) == (6000, 3000)


def test_hits_that_stop_coming_are_a_collapse_but_not_after_a_few():
    assert not feedback(*[(100, 0)] * 7).has_collapsed
    gone = feedback(*[(100, 0)] * 20)
    assert gone.has_collapsed
    gone.reset()
    assert (gone.has_collapsed, gone.delivered_share) == (False, 1.0)


def test_answers_without_a_prediction_say_nothing():
    assert feedback((0, 0), (0, 500)).num_answers == 0
