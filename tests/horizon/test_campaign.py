"""Campaigns against simulated servers whose horizon is known."""

import itertools
import math
import random
from dataclasses import dataclass
from statistics import median

import pytest

from tests.support.soak import examples
from warmturn.errors import InvalidInput
from warmturn.horizon import Campaign, Evidence, HorizonPosterior, TtftModel, calibrate_ttft

HIT_S, MISS_S = 0.15, 0.6


@dataclass
class Server:
    """Each conversation's horizon is log-normal around the median; times are log-normal too."""

    horizon_s: float
    spread: float
    noise: float | None
    """Of log TTFT; None: the server reports cached tokens."""
    rng: random.Random

    def __post_init__(self):
        if self.noise is not None:
            cold, warm = ([self.ttft(base) for _ in range(8)] for base in (MISS_S, HIT_S))
            self.model = calibrate_ttft(cold, warm)

    def ttft(self, base_s):
        return base_s * math.exp(self.rng.gauss(0, self.noise))

    def probe(self, pause_s):
        is_hit = pause_s < self.horizon_s * math.exp(self.rng.gauss(0, self.spread))
        if self.noise is None:
            return Evidence(pause_s, float(is_hit), float(not is_hit))
        return Evidence(pause_s, *self.model.likelihoods(self.ttft(HIT_S if is_hit else MISS_S)))


def run(server, *, max_pause_s=7200, budget=24):
    campaign = Campaign(max_pause_s=max_pause_s, budget=budget)
    while wave := campaign.next_wave():
        for pause in wave:
            campaign.record(server.probe(pause))
        campaign.check()
    return campaign.result


def runs(noise, num):
    """Return (relative error of the median, was the truth in the interval) of simulated runs."""
    found = []
    for seed in range(num):
        rng = random.Random(1000 * seed + 7)
        truth = math.exp(rng.uniform(math.log(10), math.log(3600)))
        result = run(Server(truth, rng.uniform(0.05, 0.2), noise, rng))
        is_inside = result.interval.low_s <= truth <= result.interval.high_s
        found.append((abs(result.median_s / truth - 1), is_inside))
    return found


@pytest.mark.parametrize(
    ("noise", "most_error"), [(None, 0.06), (0.25, 0.08), (0.5, 0.08), (0.8, None)]
)
def test_intervals_hold_the_truth_and_medians_are_close(noise, most_error):
    """200 runs here, 1,000 in a soak: 93 percent of the intervals at least hold the truth."""
    num = min(1000, examples(200))
    found = runs(noise, num)
    assert sum(inside for _, inside in found) >= 0.93 * num
    if most_error is not None:
        assert median(error for error, _ in found) <= most_error


def test_a_horizon_beyond_the_longest_pause_is_no_number():
    result = run(Server(1e9, 0.1, None, random.Random(1)), max_pause_s=60)
    assert result.outcome == "beyond"
    assert result.interval.low_s > 50, "but it has a lower bound"


def test_a_horizon_below_the_shortest_pause_is_said():
    assert run(Server(0.01, 0.1, None, random.Random(1)), max_pause_s=60).outcome == "below"


def test_probes_that_hit_by_chance_of_routing_are_told_from_eviction():
    campaign = Campaign(max_pause_s=60)
    campaign.record_at_once([Evidence(0, 1.0, 0.0)] + [Evidence(0, 0.0, 1.0)] * 3)
    assert campaign.result.outcome == "routing"
    assert campaign.result.at_once_hit_share == 0.25


def test_probes_that_tell_nothing_are_counted_and_change_nothing():
    campaign = Campaign(max_pause_s=60)
    before = campaign.posterior.median_s
    for _ in campaign.next_wave():
        campaign.record(None)
    campaign.check()
    assert campaign.posterior.median_s == before
    assert (campaign.result.outcome, campaign.result.num_unknown) == ("no-evidence", 8)


def test_the_first_wave_is_a_ladder_and_later_ones_gather_at_the_horizon():
    server = Server(35, 0.05, None, random.Random(2))
    campaign = Campaign(max_pause_s=640)
    first = campaign.next_wave()
    assert first[0] == pytest.approx(1)
    assert first[-1] == pytest.approx(640)
    assert len({round(b / a, 6) for a, b in itertools.pairwise(first)}) == 1
    for pause in first:
        campaign.record(server.probe(pause))
    second = campaign.next_wave()
    assert len(second) == 8
    assert 10 < min(second) < 35 < max(second) < 110


def test_it_stops_when_the_interval_is_narrow_and_never_beyond_the_budget():
    sharp = run(Server(35, 0.02, None, random.Random(3)), max_pause_s=120, budget=48)
    assert sharp.num_probes < 48
    assert sharp.interval.ratio < 1.35
    vague = run(Server(35, 0.6, 0.8, random.Random(3)), max_pause_s=7200, budget=20)
    assert vague.num_probes == 20


def test_the_longest_it_can_take_is_known_before():
    assert Campaign(max_pause_s=60, budget=24).most_seconds == 180


@pytest.mark.parametrize(
    "given", [{"budget": 7}, {"min_pause_s": 0}, {"min_pause_s": 100}, {"max_pause_s": math.inf}]
)
def test_campaigns_that_make_no_sense_are_refused(given):
    with pytest.raises(InvalidInput):
        Campaign(**{"max_pause_s": 60.0} | given)


# --- the posterior ----------------------------------------------------------------------------


def test_hits_push_the_horizon_up_and_misses_down():
    posterior = HorizonPosterior(min_pause_s=1, max_pause_s=1000)
    prior = posterior.median_s
    posterior.observe(100, if_hit=1, if_miss=0)
    up = posterior.median_s
    posterior.observe(200, if_hit=0, if_miss=1)
    posterior.check()
    assert prior < up
    assert 100 < posterior.median_s < 200


def test_an_answer_that_says_nothing_changes_nothing():
    posterior = HorizonPosterior(min_pause_s=1, max_pause_s=1000)
    posterior.observe(100, if_hit=1, if_miss=0)
    before = posterior.weights
    posterior.observe(10, if_hit=0.3, if_miss=0.3)
    assert posterior.weights == pytest.approx(before)


def test_contradicting_answers_are_borne():
    posterior = HorizonPosterior(min_pause_s=1, max_pause_s=1000)
    for pause in (1, 1000, 2, 500):
        posterior.observe(pause, if_hit=float(pause > 10), if_miss=float(pause <= 10))
    posterior.check()


@pytest.mark.parametrize("given", [(0, 1, 0), (1, 0, 0), (1, -1, 2)])
def test_answers_that_cannot_be_are_refused(given):
    posterior = HorizonPosterior(min_pause_s=1, max_pause_s=10)
    pause, if_hit, if_miss = given
    with pytest.raises(InvalidInput):
        posterior.observe(pause, if_hit=if_hit, if_miss=if_miss)


# --- time to first token ----------------------------------------------------------------------


def test_times_of_both_kinds_are_told_apart():
    model = calibrate_ttft([0.6, 0.7, 0.5, 0.6], [0.1, 0.2, 0.15, 0.12])
    assert model.is_separable
    assert model.auc == 1
    hit, miss = model.likelihoods(0.13)
    assert hit > 10 * miss
    hit, miss = model.likelihoods(0.6)
    assert miss > 10 * hit


def test_a_time_in_the_middle_says_little():
    model = TtftModel(hit_s=0.1, miss_s=0.4, log_spread=0.5, auc=0.95, num_samples=16)
    hit, miss = model.likelihoods(0.2)
    assert hit == pytest.approx(miss)


def test_times_that_overlap_are_refused_as_evidence():
    assert not calibrate_ttft([0.2, 0.1, 0.3], [0.2, 0.15, 0.25]).is_separable
    assert not calibrate_ttft([0.1] * 3, [0.5] * 3).is_separable, "repeats slower than cold ones"


@pytest.mark.parametrize(("cold", "warm"), [([1, 1], [1, 1, 1]), ([1, 1, 0], [1, 1, 1])])
def test_too_few_or_impossible_times_are_refused(cold, warm):
    with pytest.raises(InvalidInput):
        calibrate_ttft(cold, warm)
