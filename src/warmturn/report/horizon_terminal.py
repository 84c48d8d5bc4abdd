"""The horizon on a terminal: the figure, what it is made of, and how far to believe it."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from warmturn.horizon import GapBracket, HorizonEstimate, LogEstimate, SteadyState
from warmturn.report.figures import seconds_text

__all__ = ["bracket_text", "print_horizon", "print_log_horizon", "print_rows"]

_LABEL = 26


def print_horizon(
    found: HorizonEstimate,
    states: Sequence[tuple[float, SteadyState]],
    console: Console,
) -> None:
    """Print an estimate, and for each asked pool where it would settle."""
    steady = "steady load" if found.is_steady else "load not steady: take it as an order"
    line = f"horizon {seconds_text(found.horizon_s)}"
    console.print(Text.assemble((line, "bold"), f"   {steady}"), soft_wrap=True)
    print_rows(console, _estimate_rows(found))
    for pool, state in states:
        print_rows(console, _state_row(pool, state))
    for note in found.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def print_log_horizon(found: LogEstimate, console: Console) -> None:
    """Print what a request log says."""
    line = "horizon unknown without --pool-tokens"
    if found.horizon_s is not None:
        line = f"horizon {seconds_text(found.horizon_s)}"
    console.print(Text(line, style="bold"), soft_wrap=True)
    print_rows(console, _log_rows(found))


def print_rows(console: Console, rows: Iterator[tuple[str, str]]) -> None:
    """Print label and text, one line each."""
    for label, text in rows:
        console.print(Text(f"  {label:{_LABEL}}{text}"), soft_wrap=True)


def bracket_text(bracket: GapBracket) -> str:
    """Return the bracket and what was set aside."""
    odd = bracket.count("contradiction")
    aside = f"; {odd:,} misses at gaps that hit elsewhere are not age" if odd else ""
    if bracket.upper_s == float("inf"):
        return f"above {seconds_text(bracket.lower_s)}: no miss for age{aside}"
    between = f"{seconds_text(bracket.lower_s)} and {seconds_text(bracket.upper_s)}"
    return f"between {between}{aside}"


def _estimate_rows(found: HorizonEstimate) -> Iterator[tuple[str, str]]:
    yield "in tokens", f"{found.horizon_tokens:,.0f} enter before an idle block goes"
    waiting = found.pool_tokens - found.pinned_tokens - found.horizon_tokens
    again = f", {waiting:,.0f} idle that will be found again" if waiting >= 1 else ""
    yield (
        "pool",
        f"{found.pool_tokens:,.0f} tokens, {found.pinned_tokens:,.0f} of them running{again}",
    )
    yield (
        "new tokens per second",
        (
            f"{found.new_tokens_per_s:,.1f} = {found.miss_tokens_per_s:,.1f} missed + "
            f"{found.generated_tokens_per_s:,.1f} generated, over {seconds_text(found.window_s)}"
        ),
    )
    if found.hit_tokens_per_s is not None:
        yield "hit tokens per second", f"{found.hit_tokens_per_s:,.1f}"
    if found.trailing_s is not None:
        yield "counted back", f"that many tokens came in the last {seconds_text(found.trailing_s)}"
    if found.engine_median_s is not None:
        yield (
            "the engine's own",
            (
                f"half of {found.num_evicted:,.0f} evicted blocks lay idle for less than "
                f"{seconds_text(found.engine_median_s)}"
            ),
        )
    if found.host_extra_s is not None:
        yield "in the tier below", f"{seconds_text(found.host_extra_s)} more"
    for engine, seconds in found.by_engine.items():
        yield f"engine {engine}", seconds_text(seconds)


def _state_row(pool: float, state: SteadyState) -> Iterator[tuple[str, str]]:
    yield (
        f"with {pool:,.0f} tokens",
        (
            f"{seconds_text(state.horizon_s)}, {state.hit_share:.0%} of later turns in time, "
            f"{state.new_tokens_per_s:,.1f} new tokens per second"
        ),
    )


def _log_rows(found: LogEstimate) -> Iterator[tuple[str, str]]:
    yield (
        "new tokens per second",
        (
            f"{found.new_tokens_per_s:,.1f} = {found.miss_tokens_per_s:,.1f} missed + "
            f"{found.generated_tokens_per_s:,.1f} generated, {found.num_requests:,} requests over "
            f"{seconds_text(found.window_s)}"
        ),
    )
    if found.pinned_tokens is not None:
        yield "held by running requests", f"{found.pinned_tokens:,.0f} tokens on average"
    if found.bracket is not None:
        yield "the log's hits and misses", bracket_text(found.bracket)
