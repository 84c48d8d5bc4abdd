"""The plain form of the turn-2 probe: given pauses, so many trials each, medians."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from warmturn.errors import InvalidInput
from warmturn.probe.client import Client
from warmturn.probe.probe_turns import PrimedTurn, ProbeAnswer, ProbeText, prime, probe

__all__ = ["PlainProbe", "PlainRow", "parse_pauses", "plain_probe"]


@dataclass(frozen=True, slots=True)
class PlainRow:
    """One pause."""

    pause_s: float
    ttft_s: float
    """Median of the second turns."""
    cached_share: float | None
    """Median of the shares found; None where the server does not say."""

    @property
    def line(self) -> str:
        """As it is printed."""
        found = "" if self.cached_share is None else f"  {self.cached_share:.0%} cached"
        return f"pause={self.pause_s:>6g}s  turn-2 TTFT median={self.ttft_s * 1000:.0f} ms{found}"


@dataclass(frozen=True, slots=True)
class PlainProbe:
    """All rows, with what their times lie between."""

    rows: tuple[PlainRow, ...]
    floor_s: tuple[float, ...]
    """Times of second turns without a pause."""
    full_s: tuple[float, ...]
    """Times of first turns, which are always computed whole."""


def parse_pauses(text: str) -> list[float]:
    """Return the pauses of `0,10,30`. Raises `InvalidInput`."""
    try:
        pauses = [float(word) for word in text.split(",")]
    except ValueError:
        pauses = []
    if not 0 < len(pauses) <= 100 or not all(0 <= pause <= 86_400 for pause in pauses):
        raise InvalidInput(f"--pauses {text[:40]!r} are no pauses; write seconds, as 0,10,30")
    return pauses


def plain_probe(
    url: str,
    pauses: Sequence[float],
    trials: int,
    *,
    model: str,
    text: ProbeText,
    on_row: Callable[[PlainRow], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> PlainProbe:
    """Probe each pause `trials` times; the trials of one pause wait together. Raises `PeerError`.

    First turns go one by one, so that their times are of a prefill and not of a queue.
    """
    full: list[float] = []

    def answers_after(pause_s: float) -> list[ProbeAnswer]:
        with Client(url) as client, ThreadPoolExecutor(trials) as pool:
            primed = [prime(client, text, model=model, clock=clock) for _ in range(trials)]
            full.extend(turn.first.ttft_s for turn in primed)

            def one(turn: PrimedTurn) -> ProbeAnswer:
                due = turn.ended_s + pause_s
                sleep(max(0.0, due - clock()))
                with Client(url) as own:
                    return probe(own, text, turn, model=model, due_s=due, clock=clock)

            return list(pool.map(one, primed))

    at_once = answers_after(0.0)
    rows = []
    for pause in pauses:
        row = _row(pause, answers_after(pause) if pause else at_once)
        rows.append(row)
        on_row(row)
    return PlainProbe(
        tuple(rows), tuple(answer.ttft_s - answer.lag_s for answer in at_once), tuple(full)
    )


def _row(pause_s: float, answers: Sequence[ProbeAnswer]) -> PlainRow:
    shares = [answer.cached_share for answer in answers if answer.cached_share is not None]
    times = [answer.ttft_s - answer.lag_s for answer in answers]
    return PlainRow(pause_s, median(times), median(shares) if shares else None)
