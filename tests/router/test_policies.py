import pytest

from tests.support.tiny_fleet import source
from warmturn.errors import InvalidInput
from warmturn.fleet import LearnedRates, LoadView, PrefixMatch
from warmturn.router import (
    POLICY_NAMES,
    Affinity,
    Bounds,
    Candidate,
    LeastLoad,
    Linear,
    Prefix,
    PrefixHit,
    Price,
    RoundRobin,
    RoutingRequest,
    hit_of,
    policy_named,
    ranked,
)

RATES = LearnedRates(s_per_token=0.001, s_per_running=0.1, base_s=0.0)


def candidate(name: str, hit: int | PrefixHit = 0, **fields) -> Candidate:
    load = LoadView(**{k: fields.pop(k) for k in list(fields) if k in LoadView.__slots__})
    belief = hit if isinstance(hit, PrefixHit) else PrefixHit(hit, hit, hit)
    return Candidate(source(name), load=load, rates=RATES, hit=belief, **fields)


def request(last: str | None = None, tokens: int = 1000, **fields) -> RoutingRequest:
    last_source = None if last is None else source(last)
    return RoutingRequest(session="s", prompt_tokens=tokens, last_source=last_source, **fields)


def chosen(policy, candidates, asked=None) -> str | None:
    decision = policy.choose(asked or request(), candidates, 0.0)
    return decision.source and decision.source.replica


def terms(policy, candidates, asked=None) -> dict[str, dict[str, float]]:
    decision = policy.choose(asked or request(), candidates, 0.0)
    return {entry.source.replica: entry.terms for entry in decision.candidates}


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_answers_for_nobody_the_dead_and_any_order(name):
    policy = policy_named(name)
    assert policy.name == name
    nobody = policy.choose(request(), [candidate("a", is_alive=False)], 0.0)
    assert (nobody.source, nobody.reason) == (None, "nobody")
    assert [entry.reason for entry in nobody.candidates] == ["not alive"]
    fleet = [candidate("a", 900, is_alive=False)]
    fleet += [candidate(n, 200, smoothed_requests=load) for n, load in (("b", 0.1), ("c", 0.7))]
    fleet += [candidate(n, 100, smoothed_requests=0.3, weight=1.7) for n in "de"]
    orders = [fleet, fleet[::-1], [*fleet[2:], *fleet[:2]]]
    one, two, three = (policy.choose(request(), order, 0.0) for order in orders)
    assert one == two == three
    assert one.source != source("a")
    assert {entry.source.replica for entry in one.candidates} == set("abcde")


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(InvalidInput, match="price, affinity"):
        policy_named("magic")


def test_a_weight_or_capacity_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match="weight 0"):
        candidate("a", weight=0)
    with pytest.raises(InvalidInput, match="capacity of 0"):
        candidate("a", capacity_tokens=0)


def test_a_hit_never_covers_the_whole_prompt():
    match = PrefixMatch(device=2, host=0, storage=0, near=3, anywhere=4)
    assert hit_of(match, block_size=16, prompt_tokens=64) == PrefixHit(32, 48, 48)
    assert hit_of(match, block_size=16, prompt_tokens=65) == PrefixHit(32, 48, 64)
    assert hit_of(match, block_size=16, prompt_tokens=0) == PrefixHit()


def test_round_robin_counts_with_the_requests_number():
    fleet = [candidate("b"), candidate("a"), candidate("c")]
    turns = [chosen(RoundRobin(), fleet, request(number=n)) for n in range(4)]
    assert turns == ["a", "b", "c", "a"]


def test_least_load_goes_by_load_per_weight_and_takes_turns_among_equals():
    fleet = [candidate("a", smoothed_requests=6, weight=4), candidate("b", smoothed_requests=2)]
    assert chosen(LeastLoad(), fleet) == "a"
    equal = [candidate("a"), candidate("b")]
    assert [chosen(LeastLoad(), equal, request(number=n)) for n in range(2)] == ["a", "b"]


def test_prefix_weighs_the_hit_of_each_against_its_load():
    fleet = [
        candidate("hot", 900, smoothed_requests=20),
        candidate("warm", 300),
        candidate("cold", 0),
    ]
    assert chosen(Prefix(), fleet) == "warm"
    assert chosen(Prefix(beta=0.0), fleet) == "hot"
    untrusted = [candidate("a", 900, trust=0.0), candidate("b", 100)]
    assert chosen(Prefix(), untrusted) == "b"


def test_linear_is_the_rule_of_new_and_queued_tokens():
    fleet = [candidate("a", 800, queued_prefill_tokens=1000), candidate("b", 200)]
    decision = Linear().choose(request(), fleet, 0.0)
    assert [entry.price for entry in decision.candidates] == [700.0, 800.0]
    assert chosen(Linear(beta=1.0), fleet) == "b"
    assert decision.predicted_tokens == 800


# --- affinity -----------------------------------------------------------------------------------


def test_a_session_stays_where_it_was_unless_that_one_is_overloaded():
    names = [c.source.replica for c in ranked("s", [candidate(n) for n in "abc"])]
    last = names[2]
    fleet = [candidate(n) for n in names]
    assert chosen(Affinity(), fleet, request(last)) == last
    busy = [candidate(n, smoothed_requests=30 if n == last else 2) for n in names]
    decision = Affinity().choose(request(last), busy, 0.0)
    assert (decision.source.replica, decision.reason) == (names[0], "moved")
    assert decision.candidates[-1].reason == "overloaded"


def test_below_the_floor_nobody_is_overloaded():
    fleet = [candidate("a", smoothed_requests=8), candidate("b")]
    assert chosen(Affinity(), fleet, request("a")) == "a"
    fleet = [candidate("a", smoothed_requests=9), candidate("b")]
    assert chosen(Affinity(), fleet, request("a")) == "b"


def test_where_all_are_overloaded_the_least_loaded_takes_it():
    bounds = Bounds(load_floor_requests=0.0, load_factor=0.1)
    fleet = [candidate("a", smoothed_requests=9), candidate("b", smoothed_requests=3)]
    assert chosen(Affinity(bounds), fleet, request("a")) == "b"


def test_a_new_session_passes_by_a_replica_that_holds_more_than_its_share():
    names = [c.source.replica for c in ranked("s", [candidate(n) for n in "abc"])]
    fleet = [candidate(n, session_tokens=9000 if n == names[0] else 3000) for n in names]
    assert chosen(Affinity(), fleet) == names[1]
    assert chosen(Affinity(), fleet, request(names[0])) == names[0], "only new ones"


def test_shares_go_by_capacity_where_all_are_known():
    bounds, new = Bounds(), 100
    sizes = {"a": 30_000, "b": 10_000}
    fleet = [candidate(n, session_tokens=3000, capacity_tokens=size) for n, size in sizes.items()]
    assert bounds.crowded(fleet, new) == {source("b")}
    fleet[1] = candidate("b", session_tokens=3000)
    assert bounds.crowded(fleet, new) == frozenset()


# --- price --------------------------------------------------------------------------------------


def test_the_price_is_the_sum_of_its_terms_in_milliseconds():
    fleet = [
        candidate("a", 600, queued_prefill_tokens=200, num_running=3),
        candidate("b", 0),
    ]
    decision = Price().choose(request(), fleet, 0.0)
    prices = {entry.source.replica: entry.price for entry in decision.candidates}
    assert prices == pytest.approx({"a": 200 + 300 + 400, "b": 1000})
    assert all(e.price == pytest.approx(sum(e.terms.values())) for e in decision.candidates)
    assert decision.predicted_tokens == 600


def test_trust_and_survival_gate_the_hit_but_never_the_load():
    fleet = [candidate("a", 800, trust=0.5, survival=0.5, queued_prefill_tokens=100)]
    found = terms(Price(), fleet)["a"]
    assert found["prefill_ms"] == pytest.approx(1000 - 200)
    assert found["queue_ms"] == pytest.approx(100)
    assert Price().choose(request(), fleet, 0.0).predicted_tokens == 200


def test_a_tier_is_loaded_only_where_that_beats_computing_again():
    hit = PrefixHit(device_tokens=200, near_tokens=600, any_tokens=900)
    fast = candidate("a", hit=hit, host_tokens_per_s=10_000, storage_tokens_per_s=500)
    found = terms(Price(), [fast])["a"]
    assert found["load_ms"] == pytest.approx(40), "400 tokens at 10,000 per second"
    assert found["prefill_ms"] == pytest.approx(400), "storage is slower than prefill"
    unknown = terms(Price(), [candidate("a", hit=hit)])["a"]
    assert (unknown["load_ms"], unknown["prefill_ms"]) == pytest.approx((0, 800))


def test_behind_a_tier_that_is_not_loaded_nothing_is_either():
    hit = PrefixHit(device_tokens=200, near_tokens=600, any_tokens=900)
    gap = candidate("a", hit=hit, storage_tokens_per_s=1e6)
    assert terms(Price(), [gap])["a"]["prefill_ms"] == pytest.approx(800)


def test_leaving_home_costs_more_the_more_turns_are_left_up_to_a_limit():
    fleet = [candidate("home", 900), candidate("away", 0)]
    costs = [
        terms(Price(), fleet, request("home", turns_left=n))["away"]["moving_ms"]
        for n in (0, 2, 8, 100)
    ]
    assert costs == pytest.approx([0, 450, 1800, 1800])
    assert terms(Price(), fleet, request("home"))["home"]["moving_ms"] == 0


def test_a_session_moves_when_staying_is_twice_as_dear_as_moving():
    """Away 1,000 ms of prefill and 450 of coming back; at home 200 ms and the queue."""
    asked = request("home", turns_left=2)
    for queued, expected in ((2600, "home"), (2750, "away")):
        busy = {"queued_prefill_tokens": queued, "num_running": 1, "smoothed_requests": 1.0}
        fleet = [candidate("home", 900, **busy), candidate("away", 0)]
        assert chosen(Price(), fleet, asked) == expected
        assert chosen(Price(move_margin=1.0), fleet, asked) == "away"


def test_a_queue_that_came_this_moment_moves_nobody():
    asked = request("home", turns_left=2)
    burst = {"queued_prefill_tokens": 9000, "num_running": 4, "smoothed_requests": 0.5}
    fleet = [candidate("home", 900, **burst), candidate("away", 0)]
    assert chosen(Price(), fleet, asked) == "home"
    assert chosen(Price(), fleet) == "away"  # a new session goes by what is there now


def test_a_dead_home_costs_nothing_to_leave():
    fleet = [candidate("home", 900, is_alive=False), candidate("away", 0)]
    assert terms(Price(), fleet, request("home"))["away"]["moving_ms"] == 0


def test_beyond_the_load_bound_even_the_cheapest_is_not_eligible():
    fleet = [candidate("a", 999, smoothed_requests=20), candidate("b", 0)]
    decision = Price().choose(request(), fleet, 0.0)
    assert decision.source == source("b")
    assert decision.candidates[-1].reason == "overloaded"
    assert decision.candidates[-1].price is None
    alone = Price().choose(request(), fleet[:1], 0.0)
    assert alone.source == source("a")


def test_only_a_new_session_pays_for_crowding():
    fleet = [candidate("a", 500, session_tokens=9000), candidate("b", 0)]
    assert chosen(Price(), fleet) == "b"
    assert chosen(Price(), fleet, request("a")) == "a"
    assert terms(Price(), fleet)["b"]["crowding_ms"] == 0


def test_equal_prices_are_settled_by_the_sessions_own_ranking():
    fleet = [candidate(n) for n in "abcdef"]
    first = ranked("s", fleet)[0].source.replica
    assert chosen(Price(), fleet) == chosen(Price(), fleet[::-1]) == first
    assert len({chosen(Price(), fleet, RoutingRequest(f"s{n}", 10)) for n in range(40)}) == 6
