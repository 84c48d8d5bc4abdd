"""`warmturn demo-tiers`: a conversation comes back after others took its blocks."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmturn.cli.model import DEFAULT_MODEL
from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from warmturn.probe.client import Answer
    from warmturn.probe.conversation import Shape
    from warmturn.probe.returning import Return

__all__ = ["demo_tiers"]

WAYS = ("pool", "recomputed", "host", "disk", "redis")
"""The two ends first: nothing was taken, and everything was and nothing is below."""
_EXPECTED_SOURCE = {
    "pool": "device",
    "host": "host",
    "disk": "disk",
    "redis": "external_unspecified",
}
_NO_REDIS = "not run: it needs `redis-server` and the redis package, or --redis URL"


def demo_tiers(
    *,
    turns: Annotated[int, typer.Option(min=2, help="Turns of the conversation.")] = 4,
    system_tokens: Annotated[int, typer.Option(min=1, help="Length of the system prompt.")] = 1000,
    user_tokens: Annotated[int, typer.Option(min=1, help="Length of each user message.")] = 100,
    reply_tokens: Annotated[int, typer.Option(min=1, help="Length of each reply.")] = 32,
    disk: Annotated[
        str | None, typer.Option(help="Folder for the disk tier; default: a temporary one.")
    ] = None,
    redis: Annotated[
        str | None, typer.Option(help="URL of a Redis; default: one of its own, if installed.")
    ] = None,
    model: Annotated[str, typer.Option(help="As for `warmturn engine`.")] = DEFAULT_MODEL,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
) -> None:
    """Send a conversation's last turn after its blocks left the pool, from every tier in turn.

    Each tier gets an engine of its own. JSON keys: model, dtype, block_size, num_blocks,
    shape (turns, system_tokens, user_tokens, reply_tokens), ways (way, prompt_tokens,
    cached_tokens, tokens_by_source, ttft_s, speedup, replies_equal, note),
    outputs_equal, tiers_used.
    Exit code 0 only if replies are equal and every tier that ran was used and beat recomputing.
    """
    check_json_target(json_file)
    from rich.console import Console

    try:
        from warmturn.probe.conversation import Shape
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo ({error.name} is not installed)", extra="engine") from error
    from warmturn.stores.opening import check_shared_url

    if redis is not None:
        check_shared_url(redis)
    shape = Shape(turns, system_tokens, user_tokens, reply_tokens)
    console = Console(stderr=json_file == "-")
    with tempfile.TemporaryDirectory() as scratch, _redis(redis) as redis_url:
        tiers = {
            "host": ("--host-tier", "2GiB"),
            "disk": ("--disk-tier", f"{disk or Path(scratch) / 'disk'}:2GiB"),
            "redis": None if redis_url is None else ("--shared-tier", redis_url),
        }
        result = _play(shape, model, tiers, console)
    _print_verdict(result, console)
    write_json(result, json_file)
    raise typer.Exit(0 if result["outputs_equal"] and result["tiers_used"] else 1)


@contextmanager
def _redis(url: str | None) -> Iterator[str | None]:
    """Yield the URL given, that of a server of our own, or None where there is none to start."""
    from warmturn.probe.local_redis import has_redis, running_redis

    if url is not None or not has_redis():
        yield url
        return
    with running_redis() as started:
        yield started


def _play(
    shape: "Shape", model: str, tiers: dict[str, tuple[str, str] | None], console: "Console"
) -> dict[str, Any]:
    from rich.live import Live

    num_blocks = shape.longest_tokens // 16 + 2  # room for this conversation and no other
    common = ("--model", model, "--dtype", "float32", "--num-blocks", str(num_blocks))
    table = _table()
    ways: list[dict[str, Any]] = []
    with Live(table, console=console, refresh_per_second=4) as live:

        def on_step(text: str) -> None:
            live.update(_with_status(table, text))

        def add(way: str, returned: "Return | None", note: str = "") -> None:
            ways.append(_row(way, returned, recorded[-1], note))
            _add_row(table, ways)

        on_step("starting an engine without tiers (fetches the model the first time)")
        facts, recorded, computed = _without_tiers(common, shape, on_step)
        add("pool", computed["pool"])
        add("recomputed", computed["recomputed"])
        for way, options in tiers.items():
            if options is None:
                add(way, None, _NO_REDIS)
                continue
            on_step(f"{way}: starting an engine")
            add(way, _with_tier((*common, *options), shape, recorded, way, on_step))
        live.update(table)
    if not console.is_terminal:
        console.print()  # a live table ends its last line only on a terminal
    return _result(shape, facts, ways)


def _without_tiers(
    options: tuple[str, ...], shape: "Shape", on_step: Any
) -> tuple[dict[str, Any], list["Answer"], dict[str, "Return"]]:
    """Play the conversation for the first time; then again with nothing left of it."""
    from warmturn.probe.client import Client
    from warmturn.probe.local_engine import running_engine
    from warmturn.probe.returning import Return, come_back, record

    with ExitStack() as stack:
        facts = stack.enter_context(running_engine(*options, "--exact-continuation"))
        client = stack.enter_context(Client(facts["url"]))
        recorded: list[Answer] = []
        for answer in record(client, shape, model=facts["model"]):
            recorded.append(answer)
            on_step(f"pool: turn {len(recorded)} of {shape.turns}")
        warm = Return(recorded[-1], {"device": recorded[-1].cached_tokens or 0})
        cold = come_back(
            client, recorded, shape, facts, on_step=lambda text: on_step(f"recomputed: {text}")
        )
    return facts, recorded, {"pool": warm, "recomputed": cold}


def _with_tier(
    options: tuple[str, ...], shape: "Shape", recorded: list["Answer"], way: str, on_step: Any
) -> "Return":
    from warmturn.probe.client import Client
    from warmturn.probe.local_engine import running_engine
    from warmturn.probe.returning import come_back

    with running_engine(*options) as facts, Client(facts["url"]) as client:
        return come_back(
            client, recorded, shape, facts, on_step=lambda text: on_step(f"{way}: {text}")
        )


# --- what came of it --------------------------------------------------------------------------


def _row(way: str, returned: "Return | None", recorded: "Answer", note: str) -> dict[str, Any]:
    if returned is None:
        return {"way": way, "note": note}
    answer = returned.answer
    return {
        "way": way,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens or 0,
        "tokens_by_source": returned.tokens_by_source,
        "ttft_s": answer.ttft_s,
        "replies_equal": answer.token_ids == recorded.token_ids,
        "note": note,
    }


def _result(shape: "Shape", facts: dict[str, Any], ways: list[dict[str, Any]]) -> dict[str, Any]:
    ran = {row["way"]: row for row in ways if "ttft_s" in row}
    cold_s = ran["recomputed"]["ttft_s"]
    for row in ran.values():
        row["speedup"] = cold_s / row["ttft_s"]
    tiers = [row for way, row in ran.items() if way not in ("pool", "recomputed")]
    return {
        **{name: facts[name] for name in ("model", "dtype", "block_size", "num_blocks")},
        "shape": asdict(shape),
        "ways": ways,
        "outputs_equal": all(row["replies_equal"] for row in ran.values()),
        "tiers_used": all(_was_used(row) and row["speedup"] > 1 for row in tiers)
        and ran["recomputed"]["cached_tokens"] == 0,
    }


def _was_used(row: dict[str, Any]) -> bool:
    """Tell whether most of what was not computed came from the tier that is shown."""
    from_there: int = row["tokens_by_source"].get(_EXPECTED_SOURCE[row["way"]], 0)
    return bool(2 * from_there > row["prompt_tokens"])


# --- what the user sees -----------------------------------------------------------------------


def _table() -> "Table":
    from rich.table import Table

    table = Table("last turn", "prompt", "cached", "TTFT", "", "reply", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    return table


def _with_status(table: "Table", text: str) -> Any:
    from rich.console import Group
    from rich.text import Text

    return Group(table, Text(text, style="dim"))


def _add_row(table: "Table", ways: list[dict[str, Any]]) -> None:
    row = ways[-1]
    if "ttft_s" not in row:
        table.add_row(row["way"], "", "", "", row["note"])
        return
    cold = next((w["ttft_s"] for w in ways if w["way"] == "recomputed"), None)
    faster = "" if cold is None or row["ttft_s"] == cold else f"{cold / row['ttft_s']:.1f} times"
    reply = "equal" if row["replies_equal"] else "DIFFERS"
    counts = [f"{row['prompt_tokens']:,}", f"{row['cached_tokens']:,}"]
    table.add_row(_name(row["way"]), *counts, f"{row['ttft_s'] * 1e3:,.0f} ms", faster, reply)


def _name(way: str) -> str:
    names = {"pool": "still in the pool", "recomputed": "recomputed", "redis": "from Redis"}
    return names.get(way, f"from {way}")


def _print_verdict(result: dict[str, Any], console: "Console") -> None:
    equal = "replies equal every way" if result["outputs_equal"] else "replies DIFFER"
    used = (
        "every tier was used" if result["tiers_used"] else "a tier was NOT used, or was no faster"
    )
    console.print(f"{equal}; {used}", highlight=False, soft_wrap=True)
