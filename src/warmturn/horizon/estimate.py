"""The horizon from counters that a server shows anyway, and how far to believe it.

    P - A = R * T + H * g      P  tokens of the pool          from the engine's configuration
                               A  held by running requests    mean share over the window, times P
                               R  tokens per second entering  prompts not found, and outputs
                               H  tokens per second found
                               g  mean idle time before a block is found again
                               T  the horizon

An idle block goes when all that were idle before it are gone: evicted, because something entered, or
taken out of the queue by a hit. `H * g` are the idle tokens that will be found again. Without it
the horizon is the plain `(P - A) / R`, which is what a pool without hits has and too long for one
with many; since g is at most T, `(P - A) / (R + H)` is too short. Where g is known (the engine's
histogram of reuse gaps, or think times) the horizon lies in between, else both ends are said.

What a tier below the device delivers enters the device's pool too, so only hits on the device are
taken off. Where pages reach far enough back, the horizon is also counted directly: the time in
which the last `P - A - H * g` tokens came.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from warmturn.cost import horizon_s
from warmturn.errors import InvalidInput
from warmturn.horizon.metrics_page import EngineFigures, IdleHistogram, MetricsPage
from warmturn.session.think_time import ThinkTimes

__all__ = ["HorizonEstimate", "TimedPage", "estimate_horizon"]

_CLOSE = 0.9
"""Ends of the horizon that are closer together need no remark."""
STEADY_RATIO = 1.3
"""Halves of the window whose rates differ by more are not steady: the estimate would be off by as
much."""


@dataclass(frozen=True, slots=True)
class TimedPage:
    """A page and when it was read."""

    time_s: float
    page: MetricsPage


@dataclass(frozen=True, slots=True)
class HorizonEstimate:
    """What a window of pages says. Rates in tokens per second, of all engines together."""

    window_s: float
    horizon_s: float
    """The best figure: corrected for hits where their gaps are known, else the plain one."""
    plain_s: float
    """`(P - A) / R`; never shorter than the truth under steady load."""
    least_s: float
    """`(P - A) / (R + H)`; never longer than the truth."""
    horizon_tokens: float
    """What enters before an idle block goes: LRU counts tokens, not seconds."""
    pool_tokens: float
    pinned_tokens: float
    miss_tokens_per_s: float
    """Prompt tokens not found on the device."""
    generated_tokens_per_s: float
    hit_tokens_per_s: float | None
    trailing_s: float | None
    """Time in which the last `horizon_tokens` came; None where the window is shorter."""
    engine_median_s: float | None
    """The engine's own median of idle time before eviction, in this window."""
    num_evicted: float
    """Blocks that figure is from."""
    host_extra_s: float | None
    """How much longer a block is found in the tier below; None without one."""
    by_engine: dict[str, float]
    """Horizon per engine, where there is more than one."""
    is_steady: bool
    num_restarts: int
    notes: tuple[str, ...]

    @property
    def new_tokens_per_s(self) -> float:
        """All that enters."""
        return self.miss_tokens_per_s + self.generated_tokens_per_s


def estimate_horizon(
    pages: Sequence[TimedPage],
    *,
    pool_tokens: float | None = None,
    pinned_tokens: float | None = None,
    host_tokens: float | None = None,
    think_times: ThinkTimes | None = None,
) -> HorizonEstimate:
    """Return the estimate over the window of `pages`, which are in order of time.

    `pool_tokens` and `pinned_tokens` stand in for what the engine does not say, `think_times` for
    its histogram of reuse gaps. Raises `InvalidInput` that names what is missing, and what can
    still be said.
    """
    _check(pages)
    steps = [_Step.between(a, b) for a, b in itertools.pairwise(pages)]
    window_s = pages[-1].time_s - pages[0].time_s
    pool = pool_tokens or pages[-1].page.total("capacity_tokens")
    if pool is None:
        raise InvalidInput(
            f"the engine ({pages[-1].page.name or 'unknown'}) does not say how many tokens its pool "
            f"holds; give --pool-tokens. It takes {_rate(steps, window_s):,.0f} new tokens per second"
        )
    pinned = pinned_tokens if pinned_tokens is not None else _mean_usage(pages, pool)
    if pinned is None:
        raise InvalidInput(
            "the engine does not say which share of its pool running requests hold; give "
            f"--running. Without any the horizon is at most {pool / _rate(steps, window_s):,.0f} s"
            if _rate(steps, window_s)
            else "the engine does not say which share of its pool is held; give --running"
        )
    rate = _rate(steps, window_s)
    idle_tokens = max(0.0, pool - pinned)
    hits = _hit_rate(steps, window_s)
    plain = horizon_s(pool_tokens=pool, pinned_tokens=pinned, new_tokens_per_s=rate)
    least = idle_tokens / (rate + (hits or 0.0)) if rate else plain
    waiting = _tokens_found_again(pages, think_times, idle_tokens, rate, hits or 0.0)
    best = plain if waiting is None or not rate else max(least, (idle_tokens - waiting) / rate)
    volume = best * rate if rate else idle_tokens
    idle = _idle_of(pages)
    host = None
    if host_tokens is not None:
        host = horizon_s(pool_tokens=host_tokens, pinned_tokens=0, new_tokens_per_s=rate)
    generated = sum(step.generated for step in steps) / window_s
    num_restarts = sum(step.is_restart for step in steps)
    is_steady, notes = _steadiness(steps, num_restarts)
    if waiting is None and least < _CLOSE * plain:
        notes.append(
            f"hits take blocks out of the queue too: the horizon lies between {least:,.3g} and "
            f"{plain:,.3g} s; think times (--think-median, --think-p90) or the engine's histogram of "
            "reuse gaps tell where"
        )
    if rate and window_s < best:
        notes.append(
            f"the window is shorter than the horizon ({window_s:,.0f} s): this is where the load of "
            "the window leads if it stays"
        )
    return HorizonEstimate(
        window_s=window_s,
        horizon_s=best,
        plain_s=plain,
        least_s=least,
        horizon_tokens=volume,
        pool_tokens=pool,
        pinned_tokens=pinned,
        miss_tokens_per_s=rate - generated,
        generated_tokens_per_s=generated,
        hit_tokens_per_s=hits,
        trailing_s=_trailing(steps, volume),
        engine_median_s=None if idle is None else idle.median_s,
        num_evicted=0.0 if idle is None else idle.num_blocks,
        host_extra_s=host,
        by_engine=_by_engine(pages, steps, window_s),
        is_steady=is_steady,
        num_restarts=num_restarts,
        notes=tuple(notes),
    )


def _check(pages: Sequence[TimedPage]) -> None:
    if len(pages) < 2:
        raise InvalidInput(
            f"{len(pages)} pages were read, and a rate needs two; poll a URL, or give two files"
        )
    if any(b.time_s <= a.time_s for a, b in itertools.pairwise(pages)):
        raise InvalidInput("the pages are not in order of time; give them oldest first")
    page = pages[-1].page
    if page.name is None:
        raise InvalidInput(
            "the page has metrics of no known engine (vLLM, SGLang, llama.cpp); is this the "
            "engine's own /metrics?"
        )
    if page.total("generated_tokens") is None or _looked_up(page) is None:
        raise InvalidInput(
            f"this {page.name} page does not count prompt and generated tokens; are its metrics "
            "switched on (SGLang: --enable-metrics, llama.cpp: --metrics)?"
        )


def _looked_up(page: MetricsPage) -> float | None:
    queries = page.total("queries")
    return queries if queries is not None else page.total("prompt_tokens")


@dataclass(frozen=True, slots=True)
class _Step:
    """What came between two pages."""

    seconds: float
    missed: float
    generated: float
    hits: float | None
    is_restart: bool
    by_engine: dict[str, float]

    @property
    def new(self) -> float:
        return self.missed + self.generated

    @classmethod
    def between(cls, earlier: TimedPage, later: TimedPage) -> "_Step":
        old, new = earlier.page, later.page
        is_restart = _is_restart(old, new)
        missed = generated = 0.0
        hits: float | None = None
        by_engine = {}
        for label, figures in new.engines.items():
            before = _before(old, new, label)
            found = _hits(figures, before)
            gone = max(0.0, _looked_up_since(figures, before) - (found or 0.0))
            made = _since(figures.generated_tokens, before.generated_tokens) or 0.0
            missed, generated = missed + gone, generated + made
            hits = hits if found is None else (hits or 0.0) + found
            by_engine[label] = gone + made
        seconds = later.time_s - earlier.time_s
        return cls(seconds, missed, generated, hits, is_restart, by_engine)


def _is_restart(old: MetricsPage, new: MetricsPage) -> bool:
    """Say whether any engine of the page began again."""
    return any(_is_new_life(old, new, label) for label in new.engines)


def _is_new_life(old: MetricsPage, new: MetricsPage, label: str) -> bool:
    """By the process's start where it is told, else by a counter that fell."""
    if old.start_s is not None and new.start_s is not None:
        return new.start_s > old.start_s
    if label not in old.engines:
        return False
    before, now = old.engines[label].generated_tokens, new.engines[label].generated_tokens
    return before is not None and now is not None and now < before


def _before(old: MetricsPage, new: MetricsPage, label: str) -> EngineFigures:
    """Return what an engine's counters grew from: nothing, where it began again."""
    if _is_new_life(old, new, label):
        return EngineFigures()
    return old.engines.get(label, EngineFigures())


def _since(now: float | None, before: float | None) -> float | None:
    """Return a counter's growth."""
    return None if now is None else max(0.0, now - (before or 0.0))


def _hits(now: EngineFigures, before: EngineFigures) -> float | None:
    if now.hits is not None:
        return _since(now.hits, before.hits)
    cached = _since(now.cached_tokens, before.cached_tokens)
    if cached is not None or now.hit_rate_gauge is None:
        return cached
    return now.hit_rate_gauge * _looked_up_since(now, before)


def _looked_up_since(now: EngineFigures, before: EngineFigures) -> float:
    if now.queries is not None:
        return _since(now.queries, before.queries) or 0.0
    return _since(now.prompt_tokens, before.prompt_tokens) or 0.0


def _rate(steps: Sequence[_Step], window_s: float) -> float:
    return sum(step.new for step in steps) / window_s


def _hit_rate(steps: Sequence[_Step], window_s: float) -> float | None:
    hits = [step.hits for step in steps if step.hits is not None]
    return sum(hits) / window_s if hits else None


def _tokens_found_again(
    pages: Sequence[TimedPage],
    think_times: ThinkTimes | None,
    idle_tokens: float,
    rate: float,
    hits: float,
) -> float | None:
    """Return the idle tokens that will be found again, by Little's law; None where unknown."""
    gap_s = _mean_reuse_gap_s(pages)
    if gap_s is not None:
        return min(idle_tokens, hits * gap_s)
    if think_times is None or not rate:
        return None
    low, high = 0.0, idle_tokens / rate
    for _ in range(60):  # what is left over shrinks as the horizon grows: one root
        middle = (low + high) / 2
        if rate * middle + hits * think_times.mean_within_s(middle) > idle_tokens:
            high = middle
        else:
            low = middle
    return idle_tokens - rate * low


def _mean_reuse_gap_s(pages: Sequence[TimedPage]) -> float | None:
    first, last = pages[0].page, pages[-1].page
    before = MetricsPage(None) if _is_restart(first, last) else first
    seconds = _since(last.total("reuse_gap_sum_s"), before.total("reuse_gap_sum_s"))
    count = _since(last.total("reuse_gap_count"), before.total("reuse_gap_count"))
    return seconds / count if seconds is not None and count else None


def _mean_usage(pages: Sequence[TimedPage], pool: float) -> float | None:
    """Return tokens held, averaged over time (trapezoids between pages)."""
    usage = [timed.page.mean("usage") for timed in pages]
    if any(value is None for value in usage):
        known = [value for value in usage if value is not None]
        return pool * sum(known) / len(known) if known else None
    area = 0.0
    for (a, b), (u, v) in zip(itertools.pairwise(pages), itertools.pairwise(usage), strict=True):
        area += (b.time_s - a.time_s) * ((u or 0.0) + (v or 0.0)) / 2
    return pool * area / (pages[-1].time_s - pages[0].time_s)


def _trailing(steps: Sequence[_Step], volume: float) -> float | None:
    """Walk back until `volume` tokens have come; a restart ends the walk, for it empties the pool."""
    seconds = passed = 0.0
    for step in reversed(steps):
        if step.is_restart:
            return None
        if step.new and passed + step.new >= volume:
            return seconds + step.seconds * (volume - passed) / step.new
        seconds, passed = seconds + step.seconds, passed + step.new
    return None


def _idle_of(pages: Sequence[TimedPage]) -> IdleHistogram | None:
    last, first = pages[-1].page, pages[0].page
    if last.idle is None:
        return None
    return last.idle.since(None if _is_restart(first, last) else first.idle)


def _by_engine(
    pages: Sequence[TimedPage], steps: Sequence[_Step], window_s: float
) -> dict[str, float]:
    engines = pages[-1].page.engines
    if len(engines) < 2:
        return {}
    found = {}
    for label, figures in engines.items():
        usage = [page.page.engines[label].usage for page in pages if label in page.page.engines]
        known = [value for value in usage if value is not None]
        if figures.capacity_tokens is None or not known:
            continue
        rate = sum(step.by_engine.get(label, 0.0) for step in steps) / window_s
        found[label] = horizon_s(
            pool_tokens=figures.capacity_tokens,
            pinned_tokens=figures.capacity_tokens * sum(known) / len(known),
            new_tokens_per_s=rate,
        )
    return found


def _steadiness(steps: Sequence[_Step], num_restarts: int) -> tuple[bool, list[str]]:
    notes = []
    if num_restarts:
        notes.append(f"{num_restarts} restarts in the window: each empties the pool")
    if len(steps) < 4:
        notes.append("too few pages to see whether the load is steady; poll for longer")
        return False, notes
    middle = len(steps) // 2
    halves = [
        _rate(part, sum(step.seconds for step in part)) for part in (steps[:middle], steps[middle:])
    ]
    low, high = sorted(halves)
    is_even = high <= low * STEADY_RATIO
    if not is_even:
        notes.append(
            f"the load is not steady: {halves[0]:,.0f} new tokens per second in the first half of "
            f"the window, {halves[1]:,.0f} in the second"
        )
    return is_even and not num_restarts, notes
