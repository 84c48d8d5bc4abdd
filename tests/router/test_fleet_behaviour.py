"""Whole conversations over a few replicas: what stays, how load spreads, what a log replays."""

import heapq

import numpy as np
import pytest

from tests.support.tiny_fleet import Gateway, conversation, source
from warmturn.router import Affinity, LeastLoad, Policy, Price, RoundRobin, policy_named

NAMES = ["r0", "r1", "r2", "r3"]


def play(policy: Policy, *, sessions: int = 60, turns: int = 5) -> Gateway:
    """Turn after turn, the sessions of each in random order, with think time."""
    gateway, rng, now = Gateway(policy, NAMES), np.random.default_rng(0), 0.0
    for turn in range(turns):
        for session in rng.permutation(sessions):
            gateway.send(f"session-{session}", conversation(int(session), turn), now=now, turn=turn)
            now += 0.5
    gateway.check()
    return gateway


def play_at_once(
    policy: Policy, *, sessions: int, turns: int = 5, seed: int = 1, noise: float = 0.0
) -> Gateway:
    """All sessions at once: each answer takes a while, the next turn follows after a thought.

    `noise` is the standard deviation of the logarithm of the time to the first token.
    """
    gateway, rng = Gateway(policy, NAMES), np.random.default_rng(seed)
    events = [(float(rng.uniform(0, 2)), s, 0, None) for s in range(sessions)]
    heapq.heapify(events)
    while events:
        now, session, turn, running = heapq.heappop(events)
        if running is not None:
            gateway.end(running, now=now)
            if turn + 1 < turns:
                think_s = float(rng.exponential(3))
                heapq.heappush(events, (now + think_s, session, turn + 1, None))
            continue
        ids = conversation(session, turn)
        placement = gateway.place(f"session-{session}", ids, now=now, turn=turn)
        took_s = float(rng.uniform(0.5, 1.5))
        ttft_s = 0.1 * float(rng.lognormal(0.0, noise)) if noise else 0.1
        gateway.dispatcher.first_byte(placement, now + ttft_s, is_streamed=True)
        heapq.heappush(events, (now + took_s, session, turn, placement))
    gateway.check()
    assert gateway.dispatcher.num_open == 0
    return gateway


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sessions", [60, 48])
@pytest.mark.parametrize("name", ["affinity", "price"])
def test_sessions_at_once_with_a_shared_prompt_stay_and_spread(name, sessions, seed):
    gateway = play_at_once(policy_named(name), sessions=sessions, seed=seed)
    assert gateway.kept_share() >= 0.99
    assert max(gateway.imbalance()) <= 1.25


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sessions", [60, 48, 8])
def test_noise_in_the_learned_rates_moves_no_session(sessions, seed):
    """Times to the first token that vary by half make rates that differ between equal replicas."""
    gateway = play_at_once(Price(), sessions=sessions, turns=10, seed=seed, noise=0.5)
    assert gateway.kept_share() >= 0.99


@pytest.mark.parametrize("name", ["affinity", "price"])
def test_sixty_sessions_with_a_shared_prompt_stay_and_spread(name):
    gateway = play(policy_named(name))
    assert gateway.kept_share() >= 0.99
    assert max(gateway.imbalance()) <= 1.25


@pytest.mark.parametrize("policy", [RoundRobin(), LeastLoad()], ids=lambda p: p.name)
def test_the_baselines_keep_few_turns_and_prefill_more(policy):
    baseline, gateway = play(policy), play(Price())
    assert baseline.kept_share() < 0.5
    assert gateway.prefilled_tokens < 0.7 * baseline.prefilled_tokens


def test_what_affinity_prefills_is_near_the_least_possible():
    """Each replica once the shared prompt, each session its own tokens once."""
    gateway = play(Price())
    least = 4 * 480 + 60 * 5 * 160
    assert gateway.prefilled_tokens <= 1.1 * least


@pytest.mark.parametrize("shared_tokens", [16, 480, 16_000])
def test_a_prefix_that_all_share_does_not_attract_all(shared_tokens):
    """The trap of traces in which every request has block 0: one replica, all requests."""
    gateway = Gateway(Price(), NAMES, capacity_blocks=100_000)
    for session in range(40):
        ids = conversation(session, 0, shared_tokens=shared_tokens)
        gateway.send(f"session-{session}", ids, now=float(session))
    assert set(gateway.requests) == set(NAMES)
    assert max(gateway.imbalance()) <= 1.25


def test_two_gateways_without_shared_state_keep_nearly_all_turns():
    """Behind round robin each sees every second request, and knows nothing of the others."""
    made, places, rng = [Gateway(Affinity(), NAMES) for _ in range(2)], {}, np.random.default_rng(0)
    kept = later = 0
    for number, (turn, session) in enumerate(
        (turn, int(session)) for turn in range(5) for session in rng.permutation(60)
    ):
        ids = conversation(session, turn)
        place = made[number % 2].send(f"session-{session}", ids, now=float(number), turn=turn)
        later += turn > 0
        kept += turn > 0 and places[session] == place
        places[session] = place
    assert kept / later >= 0.95, kept / later


def test_adding_one_replica_moves_its_share_of_the_sessions_and_no_other():
    fleet = Gateway(Affinity(), NAMES).dispatcher
    sessions = [f"s{number}" for number in range(2000)]

    def ranked_first():
        """Places of later turns that this gateway never saw: the ranking alone decides."""
        trial = {"prompt_tokens": 640, "is_first_turn": False, "is_trial": True, "now": 0.0}
        return [fleet.place(session, **trial).source for session in sessions]

    before = ranked_first()
    fleet.add_source(source("r4"), now=0.0)
    after = ranked_first()
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {source("r4")}
    assert len(moved) / len(sessions) == pytest.approx(1 / 5, abs=0.03)
    fleet.remove_replica(source("r4").replica)
    assert ranked_first() == before
