"""`warmturn route explain`: where a running gateway would send a request, and why."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import InvalidInput, MissingExtra, PeerError

__all__ = ["app"]

app = typer.Typer(name="route", help="Ask a running gateway about its decisions.")


@app.callback()
def _group() -> None:
    """Keep `explain` a command of its own, though it is the only one yet."""


@app.command("explain")
def explain(
    body: Annotated[
        str,
        typer.Argument(metavar="FILE", help="The request's body as JSON; - for standard input."),
    ] = "-",
    *,
    admin: Annotated[str, typer.Option(help="The gateway's admin port.")] = "http://127.0.0.1:8001",
    path: Annotated[str, typer.Option(help="Which API the body is for.")] = "/v1/chat/completions",
    header: Annotated[
        list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="A header of the request.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the admin port's token.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the answer here; - for standard output.")
    ] = None,
) -> None:
    """Show all candidates for one request, with prices and reasons; nothing is sent or changed.

    JSON keys: session, session_source, session_name, is_salted, model, prompt_tokens, is_counted,
    is_first_turn, previous_replica, policy, replica, rank, reason, predicted_cached_tokens,
    candidates (replica, rank, price, reason, terms, is_alive, believed_tokens, trust, survival,
    smoothed_requests, queued_prefill_tokens, session_tokens), shadow.
    """
    check_json_target(json_file)
    from rich.console import Console

    asked = {"body": _read(body), "path": path, "headers": dict(map(_header, header or ()))}
    data = _asked(admin, asked, token_file)
    _print(data, Console(stderr=json_file == "-"))
    write_json(data, json_file)


def _read(source: str) -> Any:
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise InvalidInput(f"{source}: {error.strerror}; name a file with a JSON body") from error
    except ValueError as error:
        raise InvalidInput(f"{source} is not JSON: {error}") from error


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise InvalidInput(f"--header {line!r}: give 'NAME: VALUE'")
    return name.strip(), value.strip()


def _asked(admin: str, asked: dict[str, Any], token_file: Path | None) -> dict[str, Any]:
    try:
        import httpx

        from warmturn.gateway.replica_urls import first_line
    except ModuleNotFoundError as error:
        what = f"asking a gateway ({error.name} is not installed)"
        raise MissingExtra(what, extra="gateway") from error
    headers = {}
    if token_file is not None:
        headers["authorization"] = f"Bearer {first_line(token_file, what='--token-file')}"
    url = f"{admin.rstrip('/')}/warmturn/explain"
    try:
        with httpx.Client(timeout=30, trust_env=False) as client:
            answer = client.post(url, json=asked, headers=headers)
        data: dict[str, Any] = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PeerError(f"{url} gave no answer ({error}); is --admin the admin port?") from error
    except ValueError as error:
        raise PeerError(f"{url} answered {answer.status_code} without JSON") from error
    if answer.is_error:
        message = data.get("error", {}).get("message", answer.text[:200])
        raise InvalidInput(f"the gateway refused ({answer.status_code}): {message}")
    return data


def _print(data: dict[str, Any], console: Any) -> None:
    from rich.table import Table

    counted = "" if data["is_counted"] else "about "
    console.print(
        f"{data['replica'] or 'nobody'}: {data['reason']}, by {data['policy']}; "
        f"{data['predicted_cached_tokens']:,} of {counted}{data['prompt_tokens']:,} tokens "
        f"expected warm\nsession {data['session']} by {data['session_source']}"
        f"{'' if data['session_name'] is None else ' ' + data['session_name']}, "
        f"{'salted' if data['is_salted'] else 'no salt'}, "
        f"before on {data['previous_replica'] or 'none'}",
        highlight=False,
        soft_wrap=True,
    )
    names = {name for one in data["candidates"] for name, value in one["terms"].items() if value}
    terms = [*sorted(names), "believed_tokens", "smoothed_requests"]
    shown = {"believed_tokens": "held", "smoothed_requests": "load"}
    headings = [shown.get(name, name.removesuffix("_ms")) for name in terms]
    table = Table("candidate", "price", "why", *headings, box=None, pad_edge=False)
    for column in (table.columns[1], *table.columns[3:]):
        column.justify = "right"
    for one in data["candidates"]:
        values = [one["price"], *(one["terms"].get(name, one.get(name)) for name in terms)]
        price, *cells = ("-" if value is None else f"{value:,.1f}" for value in values)
        table.add_row(f"{one['replica']}/{one['rank']}", price, one["reason"], *cells)
    console.print(table)
