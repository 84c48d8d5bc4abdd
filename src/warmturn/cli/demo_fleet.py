"""`warmturn demo-fleet`: two engines behind the gateway, round robin beside KV-aware routing."""

import json
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmturn.cli.model import DEFAULT_MODEL
from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console

    from warmturn.probe.fleet_talk import FleetShape, FleetTurn

__all__ = ["demo_fleet"]

POLICIES = ("round_robin", "price")
"""The baseline, and the one this is about."""


def demo_fleet(
    *,
    replicas: Annotated[int, typer.Option(min=2, max=8, help="Engines behind the gateway.")] = 2,
    sessions: Annotated[int, typer.Option(min=1, max=64, help="Conversations at once.")] = 4,
    turns: Annotated[int, typer.Option(min=2, help="Turns of each.")] = 5,
    system_words: Annotated[int, typer.Option(min=1, help="Of the shared system prompt.")] = 150,
    user_words: Annotated[int, typer.Option(min=10, help="Of each question.")] = 200,
    reply_tokens: Annotated[int, typer.Option(min=1, help="Length of each reply.")] = 24,
    think_time_s: Annotated[float, typer.Option(min=0, help="Mean, between turns.")] = 6.0,
    num_blocks: Annotated[int, typer.Option(min=16, help="Blocks in each engine's pool.")] = 2048,
    model: Annotated[str, typer.Option(help="As for `warmturn engine`.")] = DEFAULT_MODEL,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
) -> None:
    """Play the same conversations through the gateway twice, once per policy, and compare.

    JSON keys: model, replicas, shape (sessions, turns, system_words, user_words,
    reply_tokens, think_time_s),
    policies (policy, num_turns, kept_share, prompt_tokens, cached_tokens, prefilled_tokens,
    ttft_later_s, ttft_first_s, imbalance, requests_of), prefilled_ratio.
    Exit code 0 only if KV-aware routing keeps more turns and prefills fewer tokens.
    """
    check_json_target(json_file)
    from rich.console import Console

    try:
        from warmturn.probe.fleet_talk import FleetShape
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo ({error.name} is not installed)", extra="all") from error

    shape = FleetShape(sessions, turns, system_words, user_words, reply_tokens, think_time_s)
    engine_options = f"--num-blocks {num_blocks} --exact-continuation"
    fleet = ("--embedded", str(replicas), "--model", model)
    options = (*fleet, "--engine-option", engine_options)
    console = Console(stderr=json_file == "-")
    console.print(
        f"{replicas} engines; {sessions} conversations of {turns} turns share a system prompt of "
        f"{system_words} words; think time {think_time_s:g} s",
        highlight=False,
    )
    played = [_play(policy, options, shape, console) for policy in POLICIES]
    baseline, aware = played
    result = {
        "model": model,
        "replicas": replicas,
        "shape": asdict(shape),
        "policies": played,
        "prefilled_ratio": baseline["prefilled_tokens"] / max(1, aware["prefilled_tokens"]),
    }
    _print(result, console)
    write_json(result, json_file)
    is_better = aware["prefilled_tokens"] < baseline["prefilled_tokens"]
    raise typer.Exit(0 if is_better and aware["kept_share"] > baseline["kept_share"] else 1)


def _play(
    policy: str, options: tuple[str, ...], shape: "FleetShape", console: "Console"
) -> dict[str, Any]:
    """Run the gateway with one policy and fresh engines, talk, and count."""
    from rich.progress import Progress

    from warmturn.probe.client import Client
    from warmturn.probe.fleet_talk import talk
    from warmturn.probe.local_engine import running_gateway

    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{policy}: starting engines", total=None)
        with running_gateway("--policy", policy, *options) as facts:
            total = shape.sessions * shape.turns
            progress.update(task, description=f"{policy}: talking", total=total)
            done = talk(
                facts["url"],
                facts["models"][0],
                shape,
                on_turn=lambda _: progress.advance(task),
            )
            with Client(facts["admin_url"]) as admin:
                text = admin.get_text(f"/warmturn/decisions?limit={total}")
    return _counted(policy, done, json.loads(text)["decisions"])


def _counted(
    policy: str, done: "list[FleetTurn]", decisions: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return what was seen by the clients, and by the gateway."""
    requests_of: dict[str, int] = {}
    for decision in decisions:
        requests_of[decision["replica"]] = requests_of.get(decision["replica"], 0) + 1
    later = [decision["reason"] for decision in decisions if decision["reason"] != "new"]
    counts = list(requests_of.values())
    return {
        "policy": policy,
        "num_turns": len(done),
        "kept_share": later.count("kept") / len(later),
        "prompt_tokens": sum(turn.prompt_tokens for turn in done),
        "cached_tokens": sum(turn.cached_tokens for turn in done),
        "prefilled_tokens": sum(turn.prefilled_tokens for turn in done),
        "ttft_first_s": median(turn.ttft_s for turn in done if turn.turn == 1),
        "ttft_later_s": median(turn.ttft_s for turn in done if turn.turn > 1),
        "imbalance": max(counts) * len(counts) / sum(counts),
        "requests_of": requests_of,
    }


def _print(result: dict[str, Any], console: "Console") -> None:
    from rich.table import Table

    columns = ("policy", "later turns kept", "prompt", "cached", "prefilled")
    table = Table(*columns, "TTFT later", "busiest/mean", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in result["policies"]:
        tokens = [f"{one[f'{what}_tokens']:,}" for what in ("prompt", "cached", "prefilled")]
        ttft, imbalance = f"{one['ttft_later_s'] * 1e3:,.0f} ms", f"{one['imbalance']:.2f}"
        table.add_row(one["policy"], f"{one['kept_share']:.0%}", *tokens, ttft, imbalance)
    console.print(table)
    baseline, aware = result["policies"]
    console.print(
        f"KV-aware routing prefilled {result['prefilled_ratio']:.1f} times fewer tokens; median "
        f"TTFT of later turns {aware['ttft_later_s'] * 1e3:,.0f} ms, by round robin "
        f"{baseline['ttft_later_s'] * 1e3:,.0f} ms",
        highlight=False,
        soft_wrap=True,
    )
