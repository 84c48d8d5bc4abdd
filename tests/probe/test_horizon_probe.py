"""The probe's driver against a server of a known horizon, in virtual time."""

import threading

import pytest

from warmturn.errors import InvalidInput, PeerError
from warmturn.horizon import Campaign
from warmturn.probe import horizon_probe, plain_probe
from warmturn.probe.background_load import read_load
from warmturn.probe.client import Answer
from warmturn.probe.horizon_probe import HorizonProbe
from warmturn.probe.probe_turns import ProbeText

HIT_S, MISS_S, PROMPT = 0.05, 0.5, 1000


class FakeServer:
    """Conversations are there for `horizon_s` after their first turn; each client has its clock."""

    def __init__(self, horizon_s, *, reports=True, hit_s=HIT_S, num_replicas=1):
        self.horizon_s, self.reports, self.hit_s = horizon_s, reports, hit_s
        self.num_replicas, self.num_later = num_replicas, 0
        self.fails = lambda turn: False
        self.own = threading.local()
        self.primed = {}
        self.lock = threading.Lock()

    def clock(self):
        return getattr(self.own, "now", 0.0)

    def sleep(self, seconds):
        self.own.now = self.clock() + seconds

    def chat(self, messages, **_fields):
        nonce, is_later = messages[0]["content"], len(messages) > 2
        with self.lock:
            if self.fails(2 if is_later else 1):
                raise PeerError("429 too many requests")
            is_hit = is_later and self.clock() - self.primed[nonce] < self.horizon_s
            self.num_later += is_later
            is_hit = is_hit and self.num_later % self.num_replicas == 0
        ttft = self.hit_s if is_hit else MISS_S
        self.sleep(ttft)
        self.primed[nonce] = self.clock()
        cached = (PROMPT if is_hit else 16) if self.reports else None
        return Answer("reply", (), (1,) * 16, PROMPT, cached, None, ttft, ttft)


@pytest.fixture
def probing(monkeypatch):
    def build(server, **campaign):
        class Client:
            def __init__(self, _url, **_options):
                self.chat = server.chat

            def __enter__(self):
                return self

            def __exit__(self, *exc):
                pass

        for module in (horizon_probe, plain_probe):
            monkeypatch.setattr(module, "Client", Client)
        return HorizonProbe(
            "http://x",
            model="m",
            text=ProbeText.of_words(10),
            campaign=Campaign(**{"max_pause_s": 600.0, "budget": 24} | campaign),
            clock=server.clock,
            sleep=server.sleep,
        )

    return build


@pytest.mark.parametrize("reports", [True, False])
def test_the_horizon_is_found_by_cached_tokens_and_by_time(probing, reports):
    report = probing(FakeServer(35, reports=reports)).run()
    assert report.result.outcome == "measured"
    assert report.result.median_s == pytest.approx(35, rel=0.1)
    assert report.result.interval.low_s < 35 < report.result.interval.high_s
    assert report.has_cached_tokens is reports
    assert {sample.verdict for sample in report.samples} == {"hit", "miss"}


def test_no_miss_up_to_the_longest_pause_is_no_number(probing):
    assert probing(FakeServer(1e9), max_pause_s=60.0).run().result.outcome == "beyond"


def test_misses_without_a_pause_are_routing_and_no_probe_waits(probing):
    report = probing(FakeServer(1e9, num_replicas=8)).run()
    assert report.result.outcome == "routing"
    assert report.result.at_once_hit_share == pytest.approx(1 / 8)
    assert report.samples == []


def test_a_server_whose_times_overlap_and_that_reports_nothing_is_refused(probing):
    with pytest.raises(InvalidInput, match="cannot be told from misses"):
        probing(FakeServer(35, reports=False, hit_s=MISS_S)).run()


def test_a_hit_that_is_as_slow_as_a_miss_came_from_below(probing):
    server = FakeServer(1e9)
    probe = probing(server, max_pause_s=60.0)
    sleep = server.sleep

    def slower(seconds):
        server.hit_s = MISS_S if seconds > 20 else HIT_S
        sleep(seconds)

    probe._sleep = slower
    verdicts = {sample.verdict for sample in probe.run().samples if sample.pause_s > 20}
    assert "slow hit" in verdicts


def test_probes_that_fail_are_counted_and_named(probing):
    server = FakeServer(35)
    probe = probing(server)
    seen = [0]

    def fails(turn):
        seen[0] += turn == 1
        return turn == 1 and seen[0] > 8 and seen[0] % 4 == 0

    server.fails = fails
    report = probe.run()
    assert report.result.num_unknown == len(report.failures) > 0
    assert set(report.failures) == {"429 too many requests"}
    assert report.result.median_s == pytest.approx(35, rel=0.3)


def test_a_server_that_does_not_answer_at_all_is_an_error(probing):
    server = FakeServer(35)
    server.fails = lambda turn: True
    with pytest.raises(PeerError, match="429"):
        probing(server).run()


def test_a_probe_that_is_sent_late_is_dropped_when_times_are_the_evidence(probing):
    server = FakeServer(35, reports=False)
    probe = probing(server)
    sleep = server.sleep
    probe._sleep = lambda seconds: sleep(seconds + (0.2 if seconds > 5 else 0.0))
    report = probe.run()
    late = [sample for sample in report.samples if sample.verdict == "late"]
    assert late
    assert report.result.num_unknown == len(late)


# --- the plain form ---------------------------------------------------------------------------


def test_the_plain_form_prints_a_line_per_pause(probing):
    server = FakeServer(35)
    probing(server)
    lines = []
    found = plain_probe.plain_probe(
        "http://x",
        [0, 10, 60],
        3,
        model="m",
        text=ProbeText.of_words(10),
        on_row=lambda row: lines.append(row.line),
        clock=server.clock,
        sleep=server.sleep,
    )
    assert lines[0] == "pause=     0s  turn-2 TTFT median=50 ms  99% cached"
    assert lines[2].startswith("pause=    60s  turn-2 TTFT median=500 ms")
    assert len(lines) == 3
    assert found.floor_s == pytest.approx([HIT_S] * 3)
    assert set(found.full_s) == {MISS_S}
    assert len(found.full_s) == 9


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1e9", "nan"])
def test_pauses_that_are_none_are_refused(text):
    with pytest.raises(InvalidInput, match="--pauses"):
        plain_probe.parse_pauses(text)


def test_a_load_is_none_or_poisson():
    assert read_load("none") is None
    assert read_load("poisson:2.5").requests_per_s == 2.5


@pytest.mark.parametrize("text", ["poisson", "poisson:0", "poisson:-1", "trace:x", "poisson:inf"])
def test_a_load_that_is_none_is_refused(text):
    with pytest.raises(InvalidInput, match="--load"):
        read_load(text)
