"""`warmturn check --server`: the server's own rendering, and a conversation played on it."""

import secrets
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from warmturn.check import Checker, Settings
from warmturn.check.prompt import PromptRenderer
from warmturn.check.shapes import SHAPES
from warmturn.cli.check_files import Outputs, report_console
from warmturn.cli.check_inputs import LogSource, Rendering, progress_console
from warmturn.cli.output import write_json
from warmturn.errors import InvalidInput, MissingExtra, PeerError, TemplateError
from warmturn.formats import LoggedRequest
from warmturn.report import CheckedLog, check_data, print_check
from warmturn.report.sides import aligned_sides, visible

if TYPE_CHECKING:
    from warmturn.probe.check_server import RenderingCheck
    from warmturn.probe.client import Client

__all__ = ["check_live"]

MOST_REQUESTS = 50
"""Of a log, rendered by the server: it is asked for each of them."""


def check_live(
    url: str, source: LogSource, rendering: Rendering, settings: Settings, outputs: Outputs
) -> int:
    """Compare renderings, play a conversation, report; return the exit code.

    Raises `PeerError` where the server does not answer, `InvalidInput` without a tokenizer.
    """
    try:
        from warmturn.probe.client import Client
    except ModuleNotFoundError as error:
        raise MissingExtra(f"--server ({error.name} is not installed)", extra="probe") from error
    if rendering.tokenizer is None:
        raise InvalidInput(
            "--server compares token ids: give --model, or --template and --tokenizer"
        )
    console = report_console(outputs)
    logged = list(islice(_requests(source), MOST_REQUESTS)) if source.paths else []
    if source.paths and not logged:
        raise InvalidInput(f"no request with messages could be read from {', '.join(source.paths)}")
    with Client(url.rstrip("/").removesuffix("/v1")) as client:
        model = client.model_name()
        compared = logged or list(_shape_requests())
        renderings, refused = _compared(client, compared, model, rendering)
        log = _played(client, _turns(logged), model, rendering, settings, url)
    _print_renderings(renderings, refused, console)
    print_check(log, console)
    data = {
        "server": url,
        "renderings": [{**asdict(one), "blame": one.blame} for one in renderings],
        "num_refused": refused,
        "replay": check_data(log),
    }
    write_json(data, outputs.json_file)
    return 1 if log.figures.num_new_failures or any(not one.is_equal for one in renderings) else 0


def _requests(source: LogSource) -> Iterator[LoggedRequest]:
    for item in source.read(progress_console()):
        if isinstance(item, LoggedRequest) and item.messages:
            yield item


def _shape_requests() -> Iterator[LoggedRequest]:
    """Without a log: the later request of each standard shape."""
    for shape in SHAPES:
        yield shape.requests()[1]


def _compared(
    client: "Client", requests: list[LoggedRequest], model: str, rendering: Rendering
) -> tuple[list["RenderingCheck"], int]:
    """Return the comparisons, and how many requests one of both sides does not render."""
    from warmturn.probe.check_server import check_rendering

    renderer, tokenizer = PromptRenderer(rendering.template), rendering.tokenizer
    assert tokenizer is not None
    found, refusals = [], []
    for request in requests:
        try:
            found.append(
                check_rendering(
                    client, request, model=model, renderer=renderer, tokenizer=tokenizer
                )
            )
        except (PeerError, TemplateError) as error:
            refusals.append(error)
    if not found:
        raise PeerError(f"not one of {len(requests)} requests could be compared: {refusals[0]}")
    return found, len(refusals)


def _turns(logged: list[LoggedRequest]) -> tuple[dict[str, Any], ...]:
    """Return what the client wrote in the longest conversation of the log, or our own questions."""
    from warmturn.probe.check_replay import QUESTIONS, user_turns

    longest = max((user_turns(request.messages or ()) for request in logged), key=len, default=())
    return longest or QUESTIONS


def _played(
    client: "Client",
    turns: tuple[dict[str, Any], ...],
    model: str,
    rendering: Rendering,
    settings: Settings,
    url: str,
) -> CheckedLog:
    from warmturn.probe.check_replay import replay

    checker = Checker(template=rendering.template, tokenizer=rendering.tokenizer, settings=settings)
    for request in replay(client, turns, model=model, salt=secrets.token_hex(16)):
        checker.add(request)
    about = f"a conversation played on {url}, with the ids it reports; {rendering.about}"
    return CheckedLog(
        report=checker.report(),
        files=(url,),
        rendered_with=about,
        fail_under=settings.fail_under,
        block_tokens=settings.block_size,
        prefill_tokens_per_s=settings.prefill_tokens_per_s,
    )


def _print_renderings(renderings: list["RenderingCheck"], refused: int, console: Console) -> None:
    equal = sum(one.is_equal for one in renderings)
    line = f"{equal} of {len(renderings)} prompts are rendered by the server as here"
    _say(console, f"{line}, {refused} could not be compared" if refused else line, style="bold")
    for one in renderings:
        if not one.is_equal:
            _print_rendering(one, console)
    console.print()


def _print_rendering(one: "RenderingCheck", console: Console) -> None:
    _say(console, f"  {visible(one.request_id)}: {', '.join(one.causes)}   blame: {one.blame}")
    _say(console, f"    {visible(one.detail)} ({one.path})")
    sides = aligned_sides(one.local_at, one.server_at, width=max(24, console.width - 13))
    for label, rest in (("here", sides.earlier), ("server", sides.later)):
        parts: list[Any] = [(f"    {label:8}", "dim"), sides.shared, (rest, "reverse")]
        console.print(Text.assemble(*parts), soft_wrap=True)
    if one.fix is not None:
        _say(console, f"    fix     {one.fix}", style="green")


def _say(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
