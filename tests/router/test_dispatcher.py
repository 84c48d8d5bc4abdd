"""The books of one gateway: what is in flight where, who is bound where, and who drains."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.tiny_fleet import source
from warmturn.errors import BrokenInvariant, InvalidInput
from warmturn.router import (
    Affinity,
    Bounds,
    Dispatcher,
    PrefixHit,
    Price,
    RoundRobin,
    policy_named,
    replay,
)

NAMES = ["r0", "r1", "r2", "r3"]


def dispatcher(policy=None, *, names=NAMES, **options) -> Dispatcher:
    made = Dispatcher(policy or Affinity(), **options)
    for name in names:
        made.add_source(source(name), now=0.0)
    return made


def served(made, session, *, now, took_s=0.5, tokens=100, **options):
    """Place one turn and let it end well."""
    placement = made.place(session, prompt_tokens=tokens, now=now, **options)
    made.sent(placement, now)
    made.first_byte(placement, now + took_s / 2, is_streamed=True)
    made.ended(placement, now + took_s, num_tokens=tokens + 20)
    return placement


def test_a_session_stays_where_it_was():
    made = dispatcher()
    places = {served(made, "s", now=float(i), is_first_turn=i == 0).source for i in range(5)}
    assert len(places) == 1
    made.check()


def test_what_a_turn_occupies_is_given_back_exactly_once():
    made = dispatcher(names=["a"])
    placement = made.place("s", prompt_tokens=100, now=0.0)
    account = made.account(source("a"))
    assert (account.num_own, account.queued_prefill_tokens, made.num_open) == (1, 100, 1)
    made.first_byte(placement, 1.0, is_streamed=True)
    made.first_byte(placement, 1.0, is_streamed=True)
    assert account.queued_prefill_tokens == 0
    made.ended(placement, 2.0)
    made.ended(placement, 2.0)
    made.failed(placement, 2.0)
    assert (account.num_own, made.num_open) == (0, 0)
    made.check()


def test_a_trial_changes_nothing():
    made = dispatcher(names=["a"])
    trial = made.place("s", prompt_tokens=100, now=0.0, is_trial=True)
    assert trial.source == source("a")
    assert (made.account(source("a")).num_own, len(made.bindings)) == (0, 0)


def test_a_later_turn_is_expected_to_find_its_turn_before():
    made = dispatcher()
    served(made, "s", now=0.0, tokens=100)
    turn = made.place("s", prompt_tokens=300, now=5.0, is_first_turn=False)
    assert (turn.reason, turn.predicted_tokens, turn.queued_tokens) == ("kept", 120, 180)
    shorter = made.place("s", prompt_tokens=50, now=6.0, is_first_turn=False)
    assert shorter.predicted_tokens == 49  # one token is always computed


def test_a_failed_try_goes_elsewhere_and_the_session_with_it():
    made = dispatcher(names=["a", "b"])
    first = made.place("s", prompt_tokens=100, now=0.0)
    made.failed(first, 0.1)
    second = made.place("s", prompt_tokens=100, now=0.1, tried=[first.source])
    assert {first.source, second.source} == {source("a"), source("b")}
    assert made.place(
        "s", prompt_tokens=100, now=1.0, tried=[first.source, second.source]
    ).reason == ("nobody")
    made.ended(second, 1.0)
    assert served(made, "s", now=2.0, is_first_turn=False).source == second.source
    made.check()


def test_a_fork_begins_where_its_parent_is():
    made = dispatcher()
    for number in range(12):
        parent = served(made, f"parent-{number}", now=float(number)).source
        child = served(made, f"child-{number}", now=number + 0.5, parent=f"parent-{number}")
        assert child.source == parent
    assert made.place_of("child-0", None, 13.0) is not None


def test_one_session_id_with_two_models_has_two_places():
    made = Dispatcher(Affinity())
    made.add_source(source("big"), models=["big"], now=0.0)
    made.add_source(source("small"), models=["small"], now=0.0)
    for turn in range(3):
        for model in ("big", "small"):
            placement = served(made, "s", now=float(turn), model=model, is_first_turn=turn == 0)
            assert placement.source == source(model)
            assert placement.reason == ("kept" if turn else "new")
    assert made.serving("other") == []


def test_a_replica_added_again_starts_with_clean_books():
    made = dispatcher(names=["a"])
    old = made.place("s", prompt_tokens=100, now=0.0)
    made.remove_replica(source("a").replica)
    made.add_source(source("a"), now=1.0)
    made.ended(old, 2.0)
    assert made.account(source("a")).num_own == 0
    made.check()


def test_a_name_that_is_taken_or_a_senseless_number_changes_nothing():
    made = dispatcher(names=["a"])
    with pytest.raises(InvalidInput, match="there already"):
        made.add_source(source("a"), now=0.0)
    with pytest.raises(InvalidInput, match="weight"):
        made.add_source(source("b"), weight=0.0, now=0.0)
    with pytest.raises(InvalidInput, match="at least 1"):
        Dispatcher(Affinity(), max_running=0)
    assert [a.source for a in made.accounts] == [source("a")]


def test_draining_takes_nothing_new_and_hands_over_bit_by_bit():
    made = dispatcher(names=["a", "b"])
    sessions = [f"s{i}" for i in range(200)]
    on_a = [s for s in sessions if served(made, s, now=0.0).source == source("a")]
    made.account(source("a")).drain(over_s=100.0, now=10.0)
    assert all(
        made.place(f"new-{i}", prompt_tokens=9, now=10.0, is_trial=True).source == source("b")
        for i in range(20)
    )
    for elapsed, wanted in ((1, 0.99), (50, 0.5), (99, 0.01), (100, 0.0)):
        left = [
            made.place(s, prompt_tokens=100, now=10.0 + elapsed, is_first_turn=False, is_trial=True)
            for s in on_a
        ]
        kept = sum(p.source == source("a") for p in left) / len(on_a)
        assert kept == pytest.approx(wanted, abs=0.12), elapsed
    made.account(source("a")).undrain()
    assert made.place(on_a[0], prompt_tokens=9, now=200.0, is_first_turn=False).reason == "kept"


def test_rates_are_learned_from_streams_only():
    made = dispatcher(names=["a"])
    for number in range(40):
        placement = made.place(
            f"s{number}", prompt_tokens=1000 * (1 + number % 5), now=10.0 * number
        )
        made.sent(placement, 10.0 * number)
        ttft_s = placement.ahead_tokens / 2000
        made.first_byte(placement, 10.0 * number + ttft_s, is_streamed=True)
        made.ended(placement, 10.0 * number + ttft_s)
    assert made.account(source("a")).rates.s_per_token == pytest.approx(1 / 2000, rel=0.05)
    whole = dispatcher(names=["a"])
    before = whole.account(source("a")).rates
    for number in range(40):
        placement = whole.place(f"s{number}", prompt_tokens=1000, now=float(number))
        whole.sent(placement, float(number))
        whole.first_byte(placement, number + 0.9, is_streamed=False)
        whole.ended(placement, number + 0.9)
    assert whole.account(source("a")).rates == before


def test_hits_that_do_not_come_lower_what_is_predicted_and_are_told():
    made = dispatcher(names=["a"])
    told, now = [], 0.0
    served(made, "s", now=now, tokens=1000)
    for _ in range(30):
        now += 5.0
        placement = made.place("s", prompt_tokens=1100, now=now, is_first_turn=False)
        told.append(made.ended(placement, now + 1, cached_tokens=0, num_tokens=1100))
    assert placement.predicted_tokens < 0.1 * placement.believed_tokens
    assert not told[5]
    assert told[-1]


def test_the_delivered_share_settles_at_the_truth_and_not_at_its_root():
    """What is compared is what was believed, not the prediction that the share is already in."""
    made = dispatcher(names=["a"])
    served(made, "s", now=0.0, tokens=1000)
    for number in range(1, 120):
        placement = made.place("s", prompt_tokens=1100, now=5.0 * number, is_first_turn=False)
        delivered = placement.believed_tokens // 4
        made.ended(placement, 5.0 * number + 1, cached_tokens=delivered, num_tokens=1100)
    assert made.account(source("a")).feedback.delivered_share == pytest.approx(0.25, abs=0.02)


def test_others_requests_count_as_load_until_the_metrics_say_otherwise():
    made = dispatcher(names=["a", "b"])
    made.account(source("a")).observe_running(40, now=0.0)
    placement = made.place("s", prompt_tokens=10, now=60.0)
    views = {str(c.source): c.load.num_running for c in placement.candidates}
    assert views == {"a/0": 40, "b/0": 0}
    assert placement.source == source("b")


def test_survival_is_asked_for_the_sessions_place_and_its_idle_time():
    asked = []

    def survival(at, idle_s):
        asked.append((str(at), idle_s))
        return 0.5

    made = dispatcher(names=["a"], survival=survival)
    served(made, "s", now=0.0, tokens=100)
    placement = made.place("s", prompt_tokens=500, now=60.0, is_first_turn=False)
    assert asked == [("a/0", 60.0)]
    assert placement.predicted_tokens == 60


def test_more_than_the_limit_times_the_living_is_full():
    made = dispatcher(names=["a", "b"], max_running=2)
    placements = [made.place(f"s{i}", prompt_tokens=1, now=0.0) for i in range(3)]
    assert not made.is_full(None)
    placements.append(made.place("t", prompt_tokens=1, now=0.0))
    assert made.is_full(None)
    made.ended(placements[0], 1.0)
    assert not made.is_full(None)
    made.account(source("b")).set_alive(is_alive=False)
    made.place("u", prompt_tokens=1, now=2.0)
    assert made.is_full(None)


class HitOf:
    """A belief by table."""

    def __init__(self, **tokens: int) -> None:
        self._tokens = tokens

    def of(self, at):
        tokens = self._tokens.get(at.replica, 0)
        return PrefixHit(tokens, tokens, tokens), 1.0


def test_a_belief_about_the_prompt_decides_where_a_price_is_asked():
    made = dispatcher(Price())
    placement = made.place("s", prompt_tokens=5000, now=0.0, belief=HitOf(r2=4000))
    assert (placement.source, placement.predicted_tokens) == (source("r2"), 4000)


def test_a_shadow_policy_is_asked_with_the_same_views_and_never_followed():
    made = dispatcher(Affinity(), shadow=RoundRobin())
    differ = 0
    for number in range(8):
        placement = served(made, "s", now=float(number), number=number, is_first_turn=number == 0)
        assert placement.shadow == RoundRobin().choose(placement.request, placement.candidates, 0.0)
        differ += placement.shadow.source != placement.source
    assert differ == 6
    assert dispatcher().place("s", prompt_tokens=1, now=0.0).shadow is None


@pytest.mark.parametrize("name", ["affinity", "price", "least_load", "round_robin"])
def test_every_record_reproduces_its_decision(name):
    made, rng, records, open_ = dispatcher(policy_named(name)), np.random.default_rng(0), [], []
    for number in range(300):
        session, now = f"s{rng.integers(12)}", 0.2 * number
        placement = made.place(
            session, prompt_tokens=int(rng.integers(1, 9000)), number=number, now=now
        )
        records.append(placement)
        open_.append(placement)
        while len(open_) > rng.integers(1, 60):
            done = open_.pop(int(rng.integers(len(open_))))
            made.ended(done, now, cached_tokens=int(rng.integers(500)), num_tokens=900)
    written = [p.record(at_s=0.0) for p in records]  # long after: nothing may have changed in them
    for placement in records:
        placement.check()
    assert replay(written, policy_named(name)).reproduces


def test_a_placement_that_lies_is_found_out():
    placement = dispatcher().place("s", prompt_tokens=100, now=0.0)
    placement.reason = "kept"
    with pytest.raises(BrokenInvariant, match="acted on"):
        placement.check()


def test_an_overloaded_replicas_session_moves_once():
    made = dispatcher()
    first = served(made, "s", now=0.0).source
    crowd = 0
    places = []
    for second in range(1, 90):
        if second < 30:
            for _ in range(2):  # somebody else's requests pile up there and stay
                crowd += 1
                made.account(first).observe_running(crowd, now=float(second))
        places.append(served(made, "s", now=float(second), is_first_turn=False).source)
    changes = sum(a != b for a, b in zip([first, *places], places, strict=False))
    assert (changes, places[-1] == first) == (1, False)


class Books(RuleBasedStateMachine):
    """Anything in any order: the books stay whole, and lazy decisions equal eager ones."""

    def __init__(self):
        super().__init__()
        bounds = Bounds(load_floor_requests=1.0)  # so that few requests overload a source
        self.made = dispatcher(Affinity(bounds), names=["a", "b", "c"])
        self.open, self.now, self.number = [], 0.0, 0

    @rule(session=st.sampled_from("stuvw"), tokens=st.integers(1, 500), later=st.booleans())
    def place(self, session, tokens, later):
        self.number += 1
        placement = self.made.place(
            session, prompt_tokens=tokens, number=self.number, now=self.now, is_first_turn=not later
        )
        assert (placement.source is None) == (placement.reason == "nobody")
        if placement.source is not None:
            self.open.append(placement)
        placement.check()

    @rule(seconds=st.floats(0.0, 30.0))
    def wait(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.open)
    @rule(how=st.sampled_from(["sent", "first_byte", "failed", "ended"]), pick=st.integers(0, 99))
    def go_on(self, how, pick):
        placement = self.open[pick % len(self.open)]
        match how:
            case "sent":
                self.made.sent(placement, self.now)
            case "first_byte":
                self.made.first_byte(placement, self.now, is_streamed=True)
            case "failed":
                self.made.failed(placement, self.now)
            case "ended":
                self.made.ended(placement, self.now, cached_tokens=pick, num_tokens=2 * pick)
        if not placement.is_open:
            self.open.remove(placement)

    @rule(
        name=st.sampled_from("abc"), what=st.sampled_from(["up", "down", "drain", "again", "busy"])
    )
    def change(self, name, what):
        account = self.made.account(source(name))
        match what:
            case "up":
                account.set_alive(is_alive=True)
                account.undrain()
            case "down":
                account.set_alive(is_alive=False)
            case "drain":
                account.drain(over_s=20.0, now=self.now)
            case "busy":
                account.observe_running(9, now=self.now)
            case "again":
                self.made.remove_replica(source(name).replica)
                self.made.add_source(source(name), now=self.now)

    @invariant()
    def books_are_whole(self):
        self.made.check()
        assert self.made.num_open == len(self.open)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
