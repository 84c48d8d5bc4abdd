"""`warmturn serve`: the gateway over replicas people run, or over engines of its own."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from warmturn.cli.output import check_json_target, write_json
from warmturn.cli.stopping import stop_when_stdin_ends
from warmturn.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from warmturn.gateway.config import Config, ModelPart, ReplicaPart
    from warmturn.gateway.server import Gateway

__all__ = ["serve"]

log = logging.getLogger("warmturn.gateway")

PolicyName = Literal["price", "affinity", "prefix", "linear", "least_load", "round_robin"]

_GC_THRESHOLDS = (50_000, 20, 100)
"""Session tables are large and hold no cycles: a full collection over 200,000 of them stops all
requests for some 100 ms, so it has to be rare."""


def serve(
    replica: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A replica's http://HOST:PORT; give one for each."),
    ] = None,
    *,
    embedded: Annotated[
        int | None, typer.Option(min=1, max=64, help="Start so many engines of our own.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --embedded: what they load, as for `warmturn engine`.")
    ] = None,
    engine_option: Annotated[
        list[str] | None,
        typer.Option(metavar="'--OPTION VALUE'", help="With --embedded: an option of the engines."),
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=DIR", help="Where a model's tokenizer.json is."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with all settings; options go before it.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address for clients; loopback unless you say so.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for clients, 8000; 0: a free one.")
    ] = None,
    admin_host: Annotated[str | None, typer.Option(help="Address for admin; loopback.")] = None,
    admin_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for admin, 8001; 0: a free one.")
    ] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="File with the token that the admin port asks for.")
    ] = None,
    policy: Annotated[PolicyName | None, typer.Option(help="Who takes a turn: price.")] = None,
    shadow_policy: Annotated[
        PolicyName | None, typer.Option(help="Also asked, never obeyed; counted.")
    ] = None,
    session_header: Annotated[
        str | None, typer.Option(help="Your own header that names a session.")
    ] = None,
    identity_header: Annotated[
        str | None, typer.Option(help="Header with the authenticated caller: a salt for each.")
    ] = None,
    identity_scheme: Annotated[
        str | None, typer.Option(help="Word before it, such as bearer.")
    ] = None,
    salt_key_file: Annotated[
        Path | None, typer.Option(help="Secret that salts are made with; equal on all gateways.")
    ] = None,
    anonymous: Annotated[
        Literal["refuse", "session", "shared"] | None,
        typer.Option(help="Callers without identity: refused unless you say otherwise."),
    ] = None,
    decision_log: Annotated[
        Path | None, typer.Option(help="Write every decision here, for `warmturn replay`.")
    ] = None,
    stop_with_stdin: Annotated[
        bool, typer.Option("--stop-with-stdin", help="Stop when standard input ends.")
    ] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", help="Write addresses and replicas here once it listens; - for stdout."
        ),
    ] = None,
) -> None:
    """Keep every conversation on its warm replica, behind one OpenAI-compatible address.

    JSON keys: url, admin_url, pid, policy, shadow, models, replicas (name, url, state), warnings.
    SIGTERM and SIGINT drain it, SIGHUP reads --config again.
    """
    check_json_target(json_file)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each probe otherwise
    try:
        import warmturn.gateway.server  # noqa: F401 - to say what is missing before any work
    except ModuleNotFoundError as error:
        what = f"the gateway ({error.name} is not installed)"
        raise MissingExtra(what, extra="gateway") from error

    overlay: dict[str, dict[str, Any]] = {
        "listen": {"host": host, "port": port},
        "admin": {"host": admin_host, "port": admin_port, "token_file": admin_token_file},
        "routing": {
            "policy": policy, "shadow": shadow_policy, "session_header": session_header
        },
        "identity": {
            "header": identity_header,
            "scheme": identity_scheme,
            "salt_key_file": salt_key_file,
            "anonymous": anonymous,
        },
        "decision_log": {"file": decision_log},
    }  # fmt: skip

    def load() -> "Config":
        return _configured(config, overlay, replica or [], tokenizer or [])

    settings = load()
    if embedded is None and not settings.replicas:
        raise InvalidInput(
            "there is nothing to serve: give --replica URL, --embedded N, or --config FILE"
        )
    if embedded is None and (model or engine_option):
        raise InvalidInput("--model and --engine-option are for --embedded N; give that as well")
    engines = None if embedded is None else _Engines.asked(embedded, model, engine_option or [])
    if stop_with_stdin:
        stop_when_stdin_ends()
    reload = None if config is None else load
    _run(_serve(settings, engines, reload, json_file))


def _configured(
    file: Path | None, overlay: dict[str, dict[str, Any]], urls: list[str], tokenizers: list[str]
) -> "Config":
    """Return the file's settings with the options before them."""
    from warmturn.gateway.config import Config, ReplicaPart
    from warmturn.gateway.config_file import read_config
    from warmturn.session.tenant import Anonymous

    config = Config() if file is None else read_config(file)
    for name, options in overlay.items():
        given = {key: value for key, value in options.items() if value is not None}
        if "anonymous" in given:
            given["anonymous"] = Anonymous(given["anonymous"])
        config = replace(config, **{name: replace(getattr(config, name), **given)})
    replicas = (*config.replicas, *(ReplicaPart(url=url) for url in urls))
    models = config.models
    for entry in tokenizers:
        models = _with_tokenizer(models, entry)
    return replace(config, replicas=replicas, models=models)


def _with_tokenizer(models: tuple["ModelPart", ...], entry: str) -> tuple["ModelPart", ...]:
    from warmturn.gateway.config import ModelPart

    name, is_there, folder = entry.partition("=")
    if not (name and is_there and folder):
        raise InvalidInput(f"--tokenizer {entry!r}: give MODEL=DIR, MODEL as the replicas call it")
    known = next((one for one in models if one.name == name), ModelPart(name=name))
    others = tuple(one for one in models if one.name != name)
    return (*others, replace(known, tokenizer=Path(folder)))


@dataclass(frozen=True, slots=True)
class _Engines:
    """The engines to start, and what they load."""

    num: int
    model_dir: Path
    options: tuple[str, ...]

    @classmethod
    def asked(cls, num: int, model: str | None, options: list[str]) -> "_Engines":
        import shlex

        try:
            from warmturn.engine.fetch import resolve_model
        except ModuleNotFoundError as error:
            what = f"an embedded engine ({error.name} is not installed)"
            raise MissingExtra(what, extra="engine") from error
        from warmturn.cli.model import DEFAULT_MODEL

        words = [word for option in options for word in shlex.split(option)]
        if "--threads" not in words:
            words += ["--threads", str(max(1, (os.cpu_count() or 1) // num))]
        model_dir = resolve_model(model or DEFAULT_MODEL)
        return cls(num, model_dir, ("--model", str(model_dir), *words))


async def _serve(
    config: "Config",
    engines: _Engines | None,
    load: "Callable[[], Config] | None",
    json_file: str | None,
) -> None:
    from warmturn.gateway.server import Gateway

    stopped = _stop_signals()
    async with _embedded(engines) as own:
        if stopped.is_set():
            return
        gateway = Gateway(
            _with_own_models(config, own, engines), own_replicas=own, load_config=load
        )
        async with gateway:
            _announce(gateway, json_file)
            if load is not None:
                _reload_on_hangup(gateway)
            gc.collect()
            gc.freeze()  # what is there now stays: no collection needs to look at it again
            gc.set_threshold(*_GC_THRESHOLDS)
            await stopped.wait()
            log.info("stopping: requests in flight may end")


@asynccontextmanager
async def _embedded(engines: _Engines | None) -> "AsyncIterator[tuple[ReplicaPart, ...]]":
    """Run the engines, if any, and yield them as replicas."""
    if engines is None:
        yield ()
        return
    from rich.console import Console

    from warmturn.gateway.config import ReplicaPart
    from warmturn.gateway.embedded import EmbeddedEngines

    console = Console(stderr=True)
    with console.status("") as status:

        def show(ready: int) -> None:
            status.update(f"starting engines: {ready} of {engines.num} ready ...")

        show(0)
        fleet = EmbeddedEngines(engines.num, engines.options, on_ready=show)
        await fleet.__aenter__()
    try:
        yield tuple(
            ReplicaPart(
                url=one.url,
                name=one.name,
                models=(one.model,),
                events=one.events,
                replay=one.replay,
                block_size=one.block_size,
                capacity_tokens=one.capacity_tokens,
            )
            for one in fleet.engines
        )
    finally:
        await fleet.__aexit__(None, None, None)


def _with_own_models(
    config: "Config", own: "tuple[ReplicaPart, ...]", engines: _Engines | None
) -> "Config":
    """Say where the embedded engines' tokenizer is, unless the configuration does."""
    from warmturn.gateway.config import ModelPart

    if engines is None:
        return config
    name = own[0].models[0]
    known = next((one for one in config.models if one.name == name), ModelPart(name=name))
    known = replace(known, tokenizer=known.tokenizer or engines.model_dir)
    others = tuple(one for one in config.models if one.name != name)
    return replace(config, models=(*others, known))


def _announce(gateway: "Gateway", json_file: str | None) -> None:
    facts = {**gateway.facts, "pid": os.getpid(), "warnings": gateway.warnings}
    for warning in gateway.warnings:
        log.warning("%s", warning)
    up = sum(one["state"] == "up" for one in facts["replicas"])
    log.info(
        "%s/v1 by %s over %s replicas, %s of them up; admin on %s",
        *(facts["url"], facts["policy"], len(facts["replicas"]), up, facts["admin_url"]),
    )
    write_json(facts, json_file)


def _stop_signals() -> asyncio.Event:
    """Return what SIGTERM and SIGINT set; a second one ends the process at once."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        if stopped.is_set():
            os._exit(130)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopped


def _reload_on_hangup(gateway: "Gateway") -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            await gateway.reload()
        except InvalidInput as error:
            log.error("%s; the gateway goes on as before", error)  # noqa: TRY400 - no failure of ours

    def start() -> None:
        task = loop.create_task(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, start)


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is, else on Python's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ModuleNotFoundError):
        from uvloop import new_event_loop as factory
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
