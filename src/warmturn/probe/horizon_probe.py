"""The turn-2 probe: conversations that pause in parallel, and what their second turns say.

    stage 0   8 conversations answered cold, and continued at once: the two kinds of time, and
              whether a continuation hits at all
    waves     as `horizon.Campaign` plans them: all of a wave wait at the same time

Evidence is the share of cached tokens where the server reports it, else the time to first token.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from warmturn.errors import InvalidInput, PeerError
from warmturn.horizon import Campaign, CampaignResult, Evidence, TtftModel, calibrate_ttft
from warmturn.probe.client import Client
from warmturn.probe.probe_turns import PrimedTurn, ProbeAnswer, ProbeText, prime, probe

__all__ = ["HorizonProbe", "ProbeReport", "ProbeSample"]

_HIT_SHARE = 0.5
_MOST_LAG = 0.05
"""Of the gap between both kinds of time: a probe this program sent later than that is dropped."""
_SLOW_HIT = 20.0
"""A hit whose time is so many times likelier of a miss came from a lower tier."""


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """One probe as reported."""

    pause_s: float
    ttft_s: float | None
    cached_share: float | None
    verdict: str
    """`hit`, `slow hit`, `miss`, `unclear`, `late` or `failed`."""


@dataclass(slots=True)
class ProbeReport:
    """All that was seen."""

    result: CampaignResult
    calibration: TtftModel | None
    has_cached_tokens: bool
    samples: list[ProbeSample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class HorizonProbe:
    """Drives one campaign against one server."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        text: ProbeText,
        campaign: Campaign,
        block_size: int = 16,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_step: Callable[[str, CampaignResult], object] = lambda *_: None,
    ) -> None:
        """`on_step` is told what happens next and what is known so far."""
        self._url, self._model, self._text = url, model, text
        self._campaign, self._block_size = campaign, block_size
        self._clock, self._sleep, self._on_step = clock, sleep, on_step
        self._samples: list[ProbeSample] = []
        self._failures: list[str] = []

    def run(self, *, num_calibration: int = 8) -> ProbeReport:
        """Calibrate, probe wave by wave, report.

        Raises `PeerError` where the server does not answer, `InvalidInput` where neither cached
        tokens nor times could tell a hit from a miss.
        """
        self._on_step(f"calibrating with {num_calibration} conversations", self._campaign.result)
        at_once = [self._cold_and_continued() for _ in range(num_calibration)]
        has_cached = all(answer.cached_share is not None for _, answer in at_once)
        model = _calibration(at_once)
        if not has_cached and (model is None or not model.is_separable):
            raise InvalidInput(_cannot_tell(model))
        evidence = [self._evidence(answer, model) for _, answer in at_once]
        self._campaign.record_at_once([found for found in evidence if found is not None])
        while self._campaign.result.outcome != "routing" and (wave := self._campaign.next_wave()):
            self._on_step(
                f"{len(wave)} conversations pause for up to {wave[-1]:.0f} s", self._campaign.result
            )
            self._run_wave(wave, model)
        self._on_step("done", self._campaign.result)
        return ProbeReport(self._campaign.result, model, has_cached, self._samples, self._failures)

    def _cold_and_continued(self) -> tuple[PrimedTurn, ProbeAnswer]:
        with Client(self._url) as client:
            primed = prime(client, self._text, model=self._model, clock=self._clock)
            return primed, self._probe(client, primed, self._clock())

    def _probe(self, client: Client, primed: PrimedTurn, due_s: float) -> ProbeAnswer:
        return probe(
            client,
            self._text,
            primed,
            model=self._model,
            due_s=due_s,
            block_size=self._block_size,
            clock=self._clock,
        )

    def _run_wave(self, pauses: Sequence[float], model: TtftModel | None) -> None:
        with ThreadPoolExecutor(len(pauses)) as pool:
            answers = list(pool.map(self._paused, pauses))
        for pause, answer in zip(pauses, answers, strict=True):
            if answer is None:
                self._samples.append(ProbeSample(pause, None, None, "failed"))
                self._campaign.record(None)
                continue
            found = self._evidence(answer, model)
            self._samples.append(_sample(answer, found, model))
            self._campaign.record(found)

    def _paused(self, pause_s: float) -> ProbeAnswer | None:
        try:
            with Client(self._url) as client:
                primed = prime(client, self._text, model=self._model, clock=self._clock)
                due = primed.ended_s + pause_s
                self._sleep(max(0.0, due - self._clock()))
                return self._probe(client, primed, due)
        except PeerError as error:
            self._failures.append(str(error)[:200])
            return None

    def _evidence(self, answer: ProbeAnswer, model: TtftModel | None) -> Evidence | None:
        pause = max(answer.pause_s, 1e-3)
        if answer.cached_share is not None:
            is_hit = answer.cached_share >= _HIT_SHARE
            return Evidence(pause, float(is_hit), float(not is_hit))
        if model is None or answer.lag_s > _MOST_LAG * (model.miss_s - model.hit_s):
            return None
        return Evidence(pause, *model.likelihoods(answer.ttft_s))


def _calibration(at_once: Sequence[tuple[PrimedTurn, ProbeAnswer]]) -> TtftModel | None:
    cold = [primed.first.ttft_s for primed, _ in at_once]
    warm = [answer.ttft_s for _, answer in at_once]
    return calibrate_ttft(cold, warm) if len(at_once) >= 3 else None


def _cannot_tell(model: TtftModel | None) -> str:
    times = "too few times"
    if model is not None:
        times = f"cold {model.miss_s * 1e3:,.0f} ms against {model.hit_s * 1e3:,.0f} ms repeated"
    return (
        f"hits cannot be told from misses: the server reports no cached_tokens, and its times overlap "
        f"({times}). Switch the report on (vLLM: --enable-prompt-tokens-details), or lengthen the "
        "prompt (--words)"
    )


def _sample(answer: ProbeAnswer, found: Evidence | None, model: TtftModel | None) -> ProbeSample:
    share = answer.cached_share
    if found is None:
        verdict = "late"
    elif share is None:
        ratio = found.if_hit / max(found.if_miss, 1e-300)
        verdict = "hit" if ratio > 3 else "miss" if ratio < 1 / 3 else "unclear"
    elif not found.leans_to_hit:
        verdict = "miss"
    else:
        verdict = "slow hit" if _is_slow(answer, model) else "hit"
    return ProbeSample(answer.pause_s, answer.ttft_s, share, verdict)


def _is_slow(answer: ProbeAnswer, model: TtftModel | None) -> bool:
    if model is None or not model.is_separable:
        return False
    if_hit, if_miss = model.likelihoods(answer.ttft_s)
    return if_miss > _SLOW_HIT * if_hit
