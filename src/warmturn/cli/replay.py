"""`warmturn replay`: what other policies would have done with a gateway's decision log."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmturn.router import DecisionRecord, Replay, TurnEnd

__all__ = ["replay"]


def replay(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Files that `--decision-log` wrote.")
    ],
    *,
    policy: Annotated[
        list[str] | None, typer.Option(help="Ask this one too, by name; may be given again.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless every decision comes out again.")
    ] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
) -> None:
    """Make the decisions of a log again, by the policies that made them and by others.

    Each policy is judged on the views as they were: had it been in charge, loads and caches would
    have become different ones.

    JSON keys: log (num_decisions, num_answers, prompt_tokens, delivered_cached_tokens,
    predicted_cached_tokens, mean_ttft_s), policies (policy, num_decisions, num_equal,
    num_later_turns, num_kept, new_tokens, requests_of, num_differing, differing, kept_share,
    imbalance), reproduces.
    """
    check_json_target(json_file)
    from rich.console import Console

    from warmturn.router import Replayer, policy_named

    console = Console(stderr=json_file == "-")
    replayers = [Replayer(None), *(Replayer(policy_named(name)) for name in policy or ())]
    facts = _LogFacts()
    with console.status("reading ..."):
        for entry in _entries(logs):
            if isinstance(entry, tuple):
                for replayer in replayers:
                    replayer.add(entry[0])
                facts.add_decision(entry[0])
            else:
                facts.add_end(entry)
    results = [replayer.result for replayer in replayers]
    if not facts.num_decisions:
        raise InvalidInput(f"no decision stands in {', '.join(map(str, logs))}")
    reproduces = results[0].reproduces
    data = {
        "log": facts.data,
        "policies": [_data(result) for result in results],
        "reproduces": reproduces,
    }
    _print(data, console)
    write_json(data, json_file)
    raise typer.Exit(1 if check and not reproduces else 0)


def _entries(logs: list[Path]) -> "Iterator[tuple[DecisionRecord, Any] | TurnEnd]":
    from warmturn.router import read_decision_log

    for log in logs:
        try:
            with log.open("rb") as lines:
                yield from read_decision_log(lines)
        except OSError as error:
            raise InvalidInput(f"{log}: {error.strerror}; name a decision log") from error
        except InvalidInput as error:
            raise InvalidInput(f"{log}: {error}") from error


@dataclass(slots=True)
class _LogFacts:
    """What the log tells without asking anybody again."""

    num_decisions: int = 0
    num_answers: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_tokens: int = 0
    num_ttft: int = 0
    ttft_s: float = 0.0

    def add_decision(self, record: "DecisionRecord") -> None:
        self.num_decisions += 1
        self.predicted_tokens += record.decision.predicted_tokens

    def add_end(self, end: "TurnEnd") -> None:
        self.num_answers += 1
        self.prompt_tokens += end.prompt_tokens or 0
        self.cached_tokens += end.cached_tokens or 0
        if end.ttft_s is not None:
            self.num_ttft += 1
            self.ttft_s += end.ttft_s

    @property
    def data(self) -> dict[str, Any]:
        return {
            "num_decisions": self.num_decisions,
            "num_answers": self.num_answers,
            "prompt_tokens": self.prompt_tokens,
            "delivered_cached_tokens": self.cached_tokens,
            "predicted_cached_tokens": self.predicted_tokens,
            "mean_ttft_s": self.ttft_s / self.num_ttft if self.num_ttft else None,
        }


def _data(result: "Replay") -> dict[str, Any]:
    counts = list(result.requests_of.values())
    later = result.num_later_turns
    return {
        **asdict(result),
        "kept_share": result.num_kept / later if later else None,
        "imbalance": max(counts) * len(counts) / sum(counts) if counts else None,
    }


def _print(data: dict[str, Any], console: Any) -> None:
    from rich.table import Table

    log = data["log"]
    console.print(
        f"{log['num_decisions']:,} decisions, {log['num_answers']:,} answers with "
        f"{log['prompt_tokens']:,} prompt tokens, {log['delivered_cached_tokens']:,} of them cached",
        highlight=False,
    )
    columns = ("policy", "later turns kept", "new tokens", "busiest/mean", "as in the log")
    table = Table(*columns, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in data["policies"]:
        table.add_row(
            one["policy"],
            "-" if one["kept_share"] is None else f"{one['kept_share']:.1%}",
            f"{one['new_tokens']:,}",
            "-" if one["imbalance"] is None else f"{one['imbalance']:.2f}",
            f"{one['num_equal']:,} of {one['num_decisions']:,}",
        )
    console.print(table)
    first = data["policies"][0]
    if data["reproduces"]:
        console.print("every decision came out as logged", highlight=False)
    else:
        where = ", ".join(map(str, first["differing"][:5]))
        console.print(
            f"{first['num_differing']:,} decisions DIFFER from the log (numbers {where} …)",
            highlight=False,
        )
