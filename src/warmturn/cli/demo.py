"""`warmturn demo`: one conversation on real weights, with reuse and without."""

import secrets
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from warmturn.cli.engine import DEFAULT_MODEL
from warmturn.cli.output import write_json
from warmturn.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from warmturn.probe.client import Answer, Client
    from warmturn.probe.conversation import Shape

__all__ = ["demo"]

TIE_MARGIN = 0.25
"""bfloat16 logits of this model lie on a grid of 0.0625 to 0.125 and first differences were
seen at margins of 0 to 0.25 (docs/design/executor.md); a first token may differ within it."""


def demo(
    *,
    turns: Annotated[int, typer.Option(min=1, help="Turns of the conversation.")] = 8,
    system_tokens: Annotated[int, typer.Option(min=1, help="Length of the system prompt.")] = 1000,
    user_tokens: Annotated[int, typer.Option(min=1, help="Length of each user message.")] = 100,
    reply_tokens: Annotated[int, typer.Option(min=1, help="Length of each reply.")] = 64,
    seed_shape: Annotated[
        bool, typer.Option("--seed-shape", help="1,500 / 150 / 350 tokens over 10 turns.")
    ] = False,
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="In float32 all replies must be equal, in bfloat16 the first tokens."),
    ] = "float32",
    model: Annotated[str, typer.Option(help="As for `warmturn engine`.")] = DEFAULT_MODEL,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
) -> None:
    """Play a conversation with reuse, then the same prompts without, and compare.

    JSON keys: turns (turn, prompt_tokens, cached_tokens, prefilled_tokens, ttft_s),
    total_prefilled_tokens, total_prefilled_tokens_without_reuse, bound_prefilled_tokens,
    ttft_last_turn_s, ttft_last_turn_without_reuse_s, outputs_equal, and what was asked for.
    Exit code 0 only if outputs and bounds hold.
    """
    from rich.console import Console

    try:
        from warmturn.probe.client import Client
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo ({error.name} is not installed)", extra="engine") from error
    from warmturn.probe.conversation import SEED_SHAPE, Shape
    from warmturn.probe.local_engine import running_engine

    shape = SEED_SHAPE if seed_shape else Shape(turns, system_tokens, user_tokens, reply_tokens)
    console = Console(stderr=json_file == "-")
    num_blocks = 2 * (shape.longest_tokens // 16 + 2)  # room for a warm and a cold turn
    options = ["--model", model, "--dtype", dtype, "--num-blocks", str(num_blocks)]
    with ExitStack() as stack:
        with console.status("starting the engine (fetches the model the first time) ..."):
            facts = stack.enter_context(running_engine(*options, "--exact-continuation"))
        _print_head(facts, shape, console)
        played = _play(stack.enter_context(Client(facts["url"])), shape, facts, console)
    result = _result(shape, dtype, facts, played)
    _print_totals(result, console)
    write_json(result, json_file)
    raise typer.Exit(0 if result["outputs_equal"] and result["bounds_hold"] else 1)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn both ways."""

    turn: int
    warm: "Answer"
    cold: "Answer"


# --- both passes ----------------------------------------------------------------------------


def _play(
    client: "Client", shape: "Shape", facts: dict[str, Any], console: "Console"
) -> list[_Turn]:
    from rich.live import Live

    from warmturn.probe.conversation import play, replay_without_reuse

    table = _turn_table()
    warm: list[Answer] = []
    played: list[_Turn] = []
    with Live(table, console=console, refresh_per_second=4):
        salt, margins = secrets.token_hex(16), facts["dtype"] != "float32"
        for answer in play(client, shape, model=facts["model"], salt=salt, margins=margins):
            warm.append(answer)
            _add_turn(table, len(warm), answer, without=None)
        table.add_section()
        for turn, answer in enumerate(warm, start=1):
            cold = replay_without_reuse(client, list(answer.prompt_token_ids), shape)
            played.append(_Turn(turn, answer, cold))
            _add_turn(table, turn, cold, without=answer)
    if not console.is_terminal:
        console.print()  # a live table ends its last line only on a terminal
    return played


def _result(
    shape: "Shape", dtype: str, facts: dict[str, Any], played: list[_Turn]
) -> dict[str, Any]:
    prefilled = sum(t.warm.prefilled_tokens for t in played)
    without = sum(t.cold.prefilled_tokens for t in played)
    slack = (shape.turns - 1) * facts["block_size"]  # a hit ends at a full block
    different = [t.turn for t in played if not _equal(t, dtype)]
    return {
        "shape": asdict(shape),
        "dtype": dtype,
        "model": facts["model"],
        "block_size": facts["block_size"],
        "turns": [
            {
                "turn": t.turn,
                "prompt_tokens": t.warm.prompt_tokens,
                "cached_tokens": t.warm.cached_tokens,
                "prefilled_tokens": t.warm.prefilled_tokens,
                "ttft_s": t.warm.ttft_s,
                "ttft_without_reuse_s": t.cold.ttft_s,
            }
            for t in played
        ],
        "total_prefilled_tokens": prefilled,
        "total_prefilled_tokens_without_reuse": without,
        "bound_prefilled_tokens": shape.bound_tokens,
        "ttft_last_turn_s": played[-1].warm.ttft_s,
        "ttft_last_turn_without_reuse_s": played[-1].cold.ttft_s,
        "outputs_equal": not different,
        "turns_with_different_outputs": different,
        "ties": sum(_is_tie(t) for t in played) if dtype != "float32" else 0,
        "bounds_hold": without == shape.total_tokens and prefilled <= shape.bound_tokens + slack,
    }


def _equal(turn: _Turn, dtype: str) -> bool:
    """float32: the whole reply; bfloat16: the first token, or a tie within the margin."""
    warm, cold = turn.warm.token_ids, turn.cold.token_ids
    if dtype == "float32":
        return warm == cold
    return warm[0] == cold[0] or _is_tie(turn)


def _is_tie(turn: _Turn) -> bool:
    margin = turn.warm.first_margin
    return turn.warm.token_ids[0] != turn.cold.token_ids[0] and (
        margin is not None and margin <= TIE_MARGIN
    )


# --- what the user sees -----------------------------------------------------------------------


def _print_head(facts: dict[str, Any], shape: "Shape", console: "Console") -> None:
    console.print(
        f"{facts['model']} in {facts['dtype']}, pool of {facts['num_blocks']} blocks of "
        f"{facts['block_size']} tokens; {shape.turns} turns: {shape.system_tokens} system, "
        f"{shape.user_tokens} user, {shape.reply_tokens} reply tokens",
        highlight=False,
        soft_wrap=True,
    )


def _turn_table() -> "Table":
    from rich.table import Table

    table = Table("", "turn", "prompt", "cached", "prefilled", "TTFT", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _add_turn(table: "Table", turn: int, answer: "Answer", *, without: "Answer | None") -> None:
    cells = [str(turn), f"{answer.prompt_tokens:,}", f"{answer.cached_tokens or 0:,}"]
    cells += [f"{answer.prefilled_tokens:,}", f"{answer.ttft_s * 1e3:,.0f} ms"]
    table.add_row("with reuse" if without is None else "without", *cells)


def _print_totals(result: dict[str, Any], console: "Console") -> None:
    with_reuse = result["total_prefilled_tokens"]
    without = result["total_prefilled_tokens_without_reuse"]
    bound = result["bound_prefilled_tokens"]
    warm, cold = result["ttft_last_turn_s"], result["ttft_last_turn_without_reuse_s"]
    console.print(
        f"prefilled tokens: {with_reuse:,} with reuse, {without:,} without "
        f"({without / with_reuse:.1f} times less); perfect reuse needs {bound:,}\n"
        f"{_growth(result)}\n"
        f"TTFT of the last turn: {warm * 1e3:,.0f} ms with reuse, {cold * 1e3:,.0f} ms without "
        f"({cold / warm:.1f} times)\n"
        f"{_verdict(result)}",
        highlight=False,
        soft_wrap=True,
    )


def _growth(result: dict[str, Any]) -> str:
    """Compare the first half of the turns with all of them: linear doubles, square quadruples."""
    turns = result["turns"]
    half = len(turns) // 2
    if not half:
        return "growth: one turn shows none"
    warm = [t["prefilled_tokens"] for t in turns]
    cold = [t["prompt_tokens"] for t in turns]
    return (
        f"growth from turn {half} to turn {len(turns)}: {sum(warm) / sum(warm[:half]):.1f} times "
        f"with reuse (linear), {sum(cold) / sum(cold[:half]):.1f} times without (square)"
    )


def _verdict(result: dict[str, Any]) -> str:
    what = "replies" if result["dtype"] == "float32" else "first tokens"
    different = result["turns_with_different_outputs"]
    equal = f"{what} equal in all {len(result['turns'])} turns"
    ties = f", {result['ties']} of them ties within {TIE_MARGIN}" if result["ties"] else ""
    differ = f"{what} DIFFER in turns {', '.join(map(str, different))}"
    bounds = "bounds hold" if result["bounds_hold"] else "bounds DO NOT hold"
    return f"{differ if different else equal + ties}; {bounds}"
