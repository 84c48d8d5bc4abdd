"""`warmturn plan`: what a model's conversations need, before anything is bought."""

from typing import Annotated

import typer

from warmturn.cli.output import check_json_target, check_target, write_json, write_text
from warmturn.cli.sizes import bytes_of
from warmturn.errors import InvalidInput

__all__ = ["plan"]


def plan(
    model: Annotated[
        str | None,
        typer.Argument(help="config.json, model directory, GGUF file, or a name of --list."),
    ] = None,
    *,
    list_models: Annotated[bool, typer.Option("--list", help="Name the known models.")] = False,
    kv_dtype: Annotated[str, typer.Option(help="Format of the cache: bfloat16, fp8 …")] = (
        "bfloat16"
    ),
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    dp_attention: Annotated[
        int, typer.Option(min=1, help="Data-parallel attention groups of the ranks.")
    ] = 1,
    speculation: Annotated[
        bool, typer.Option("--speculation", help="Multi-token prediction is on.")
    ] = False,
    conv_dtype: Annotated[str, typer.Option(help="Of recurrent layers' windows.")] = "bfloat16",
    state_dtype: Annotated[str, typer.Option(help="Of recurrent layers' states.")] = "float32",
    system: Annotated[int, typer.Option(min=0, help="Tokens of the system prompt.")] = 1500,
    user: Annotated[int, typer.Option(min=1, help="Tokens of each user message.")] = 150,
    reply: Annotated[int, typer.Option(min=0, help="Tokens of each reply.")] = 350,
    turns: Annotated[int, typer.Option(min=1, max=100_000, help="Turns.")] = 10,
    pool: Annotated[str, typer.Option(help="Memory for keys and values on each GPU.")] = "40GiB",
    running: Annotated[
        float, typer.Option(min=0, help="Tokens that running requests hold.")
    ] = 120_000,
    rate: Annotated[
        float, typer.Option(min=0, help="New tokens per second: misses and outputs.")
    ] = 6_000,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas behind the balancer.")] = 8,
    tenants: Annotated[int, typer.Option(min=1, help="Tenants with a salt each.")] = 1,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per block.")] = 16,
    think_median: Annotated[float, typer.Option(help="Half of the turns come within, s.")] = 20,
    think_p90: Annotated[float, typer.Option(help="90 percent come within, s.")] = 120,
    target: Annotated[float, typer.Option(help="Share of later turns that shall hit.")] = 0.9,
    link: Annotated[str, typer.Option(help="Bytes per second from the tier below.")] = "25GB",
    tflops: Annotated[
        float, typer.Option(min=0.001, help="TFLOP/s achieved in prefill, all GPUs.")
    ] = 400,
    parameters: Annotated[
        float | None, typer.Option(min=0.000001, help="Active parameters, in billions.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="Memory of one GPU: prints what a pool of it gives.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Bytes of all weights; default: 2 per parameter.")
    ] = None,
    activations: Annotated[str, typer.Option(help="Memory for activations and graphs.")] = "2GiB",
    utilisation: Annotated[float, typer.Option(help="Share of the GPU that may be used.")] = 0.9,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
    plot: Annotated[str | None, typer.Option(help="Write prefill over turns as SVG here.")] = None,
) -> None:
    """Size the pool: bytes per token, conversations held, prefill saved, horizon, tiers.

    Without options it answers for the conversation of the documentation. JSON keys:
    docs/reference/plan.md. Exit codes: 0 fine, 2 bad input.
    """
    check_json_target(json_file)
    check_target(plot, option="--plot")
    if list_models:
        _print_models()
        return
    if model is None:
        raise InvalidInput("no model was named; give a config.json, a directory, or one of --list")
    from warmturn.cli.plan_run import Request, run_plan
    from warmturn.cost import ConversationShape, KvCost, Parallelism, read_model
    from warmturn.cost.plan import Workload
    from warmturn.session.think_time import LogNormalThinkTime

    planned = read_model(model)
    cost = KvCost(
        planned.geometry,
        kv_dtype=kv_dtype,
        parallelism=Parallelism(tp, pp, dp_attention),
        has_speculation=speculation,
        conv_dtype=conv_dtype,
        recurrent_dtype=state_dtype,
    )
    workload = Workload(
        shape=ConversationShape(system, user, reply, turns),
        pool_bytes=bytes_of(pool, option="--pool"),
        pinned_tokens=running,
        new_tokens_per_s=rate,
        num_replicas=replicas,
        num_tenants=tenants,
        block_size=block_size,
        link_bytes_per_s=bytes_of(link, option="--link"),
        operations_per_s=tflops * 1e12,
        parameters=None if parameters is None else parameters * 1e9,
    )
    request = Request(
        model=planned,
        cost=cost,
        workload=workload,
        think_times=LogNormalThinkTime(think_median, think_p90),
        target_share=target,
        gpu_bytes=None if gpu is None else bytes_of(gpu, option="--gpu"),
        weight_bytes=None if weights is None else bytes_of(weights, option="--weights"),
        activation_bytes=bytes_of(activations, option="--activations"),
        utilisation=utilisation,
    )
    result, chart = run_plan(request, is_shown=json_file != "-")
    write_json(result, json_file)
    if plot is not None:
        write_text([chart], plot, option="--plot")


def _print_models() -> None:
    from warmturn.cost import KvCost, geometry_of, presets

    for name, preset in presets().items():
        cost = KvCost(geometry_of(preset.config, name=name))
        typer.echo(f"{name:24}{cost.bytes_per_token:>10,} bytes per token  {preset.source}")
