"""`warmturn engine`: one embedded replica behind an OpenAI-compatible server."""

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from warmturn.cli.model import DEFAULT_MODEL
from warmturn.cli.output import check_json_target, write_json
from warmturn.cli.stopping import stop_when_stdin_ends
from warmturn.errors import MissingExtra

if TYPE_CHECKING:
    from warmturn.engine.tiering import TierOptions

__all__ = ["engine"]


log = logging.getLogger("warmturn.engine")


def engine(
    model: Annotated[
        str, typer.Option(help="A Hugging Face directory, a GGUF file, a hub id, or the default.")
    ] = DEFAULT_MODEL,
    *,
    host: Annotated[str, typer.Option(help="Address to bind; loopback unless you say so.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to bind; 0 takes a free one.")] = 8000,
    served_model_name: Annotated[
        str | None, typer.Option(help="Model name in the API; default: the model's own.")
    ] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="auto takes bfloat16 where the processor multiplies it."),
    ] = "auto",
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where it computes.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Compute threads; default: all cores.")
    ] = None,
    num_blocks: Annotated[int, typer.Option(min=1, help="Blocks in the K/V pool.")] = 2048,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per block.")] = 16,
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Most tokens of prompt + reply; default: the model's.")
    ] = None,
    max_running: Annotated[int, typer.Option(min=1, help="Most requests in one step.")] = 64,
    max_body_mib: Annotated[int, typer.Option(min=1, help="Largest request body.")] = 16,
    prefix_caching: Annotated[
        bool, typer.Option(help="Reuse blocks between requests; off only to compare.")
    ] = True,
    exact_continuation: Annotated[
        bool, typer.Option(help="Splice generated ids back instead of tokenising replies again.")
    ] = False,
    hash_scheme: Annotated[
        Literal["native", "sha256", "sha256_cbor"],
        typer.Option(help="Block hashes: our own, or vLLM's, bit for bit."),
    ] = "native",
    kv_events: Annotated[
        str | None, typer.Option(help="Publish KV events on this ZMQ endpoint (ipc://PATH).")
    ] = None,
    kv_events_replay: Annotated[
        str | None, typer.Option(help="Answer replay requests on this ZMQ endpoint.")
    ] = None,
    kv_events_topic: Annotated[str, typer.Option(help="ZMQ topic of the events.")] = "",
    host_tier: Annotated[
        str | None, typer.Option(help="Keep blocks in host memory too: SIZE, such as 2GiB.")
    ] = None,
    disk_tier: Annotated[
        str | None, typer.Option(help="Keep blocks on a local disk too: PATH:SIZE.")
    ] = None,
    shared_tier: Annotated[
        str | None,
        typer.Option(help="Share blocks with other engines: redis://HOST, unix://SOCKET, file://."),
    ] = None,
    stop_with_stdin: Annotated[
        bool, typer.Option("--stop-with-stdin", help="Stop when standard input ends.")
    ] = False,
    json_file: Annotated[
        str | None,
        typer.Option("--json", help="Write address and sizes here once it listens; - for stdout."),
    ] = None,
) -> None:
    """Run one embedded engine with an OpenAI-compatible server.

    JSON keys: url, model, pid, dtype, num_blocks, block_size, max_model_len, pool_bytes, tiers.
    """
    check_json_target(json_file)
    if stop_with_stdin:
        stop_when_stdin_ends()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        from warmturn.engine.assembly import EngineOptions, EngineServer
        from warmturn.engine.fetch import resolve_model
        from warmturn.engine.listening import listening_socket, url_of
    except ModuleNotFoundError as error:
        what = f"the embedded engine ({error.name} is not installed)"
        raise MissingExtra(what, extra="engine") from error

    tiers = _tier_options(host_tier, disk_tier, shared_tier)
    listener = listening_socket(host, port)
    model_dir = resolve_model(model)
    server = EngineServer(
        EngineOptions(
            model_dir=model_dir,
            model_name=served_model_name or model_dir.resolve().name,  # "." has no name
            dtype=dtype,
            device=device,
            threads=threads,
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            max_running=max_running,
            max_body_bytes=max_body_mib << 20,
            prefix_caching=prefix_caching,
            exact_continuation=exact_continuation,
            hash_scheme=hash_scheme,
            kv_events=kv_events,
            kv_events_replay=kv_events_replay,
            kv_events_topic=kv_events_topic,
            tiers=tiers,
        )
    )
    facts = {"url": url_of(listener), **server.facts}
    asyncio.run(server.serve(listener, on_ready=lambda: _announce(facts, json_file)))


def _tier_options(host: str | None, disk: str | None, shared: str | None) -> "TierOptions":
    """Read the tiers' options, before anything is loaded. Raises `InvalidInput`."""
    from warmturn.engine.tiering import TierOptions
    from warmturn.stores.opening import check_shared_url, disk_spec, size_in_bytes

    if shared is not None:
        check_shared_url(shared)
    return TierOptions(
        host_bytes=None if host is None else size_in_bytes(host, option="--host-tier"),
        disk=None if disk is None else disk_spec(disk),
        shared_url=shared,
    )


def _announce(facts: dict[str, Any], json_file: str | None) -> None:
    log.info(
        "%s in %s on %s/v1: %s blocks of %s tokens, at most %s tokens a request",
        *(facts[k] for k in ("model", "dtype", "url", "num_blocks", "block_size")),
        facts["max_model_len"],
    )
    write_json(facts, json_file)
