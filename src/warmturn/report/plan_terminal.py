"""A plan on a terminal: each answer with the sum it comes from."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from warmturn.cost import HeadCache, KvCost, LatentCache, PlannedModel, Split
from warmturn.cost.plan import Plan
from warmturn.horizon import Exposure, TierNeed
from warmturn.report.figures import bytes_text, seconds_text

__all__ = ["print_plan", "print_splits"]

_LABEL = 26


def print_plan(
    model: PlannedModel,
    cost: KvCost,
    plan: Plan,
    exposed: Exposure,
    need: TierNeed,
    console: Console,
) -> None:
    """Print all parts of `plan`."""
    _head(console, model.name, f"{cost.dtype.name}; {model.source}")
    _rows(console, "Keys and values", _kv_rows(cost, plan))
    shape = plan.workload.shape
    title = (
        f"Prefill over {shape.num_turns} turns: system prompt {shape.system_tokens:,} tokens, "
        f"message {shape.user_tokens:,}, reply {shape.reply_tokens:,}"
    )
    _rows(console, title, _prefill_rows(plan))
    each = " on each GPU" if cost.parallelism.num_gpus > 1 else ""
    _rows(console, f"Pool of {bytes_text(plan.workload.pool_bytes)}{each}", _pool_rows(plan))
    _rows(console, "Users who think", _think_rows(plan, exposed, need))
    title = f"Back from host memory, or computed again: {plan.reused_tokens:,} tokens"
    _rows(console, title, _reload_rows(plan))
    if plan.tenants is not None:
        _rows(console, f"{plan.tenants.num_tenants:,} tenants with a salt each", _tenant_rows(plan))
    for note in model.geometry.notes:
        _say(console, f"note: {note}", "dim")


def print_splits(
    budget_line: str, rows: Sequence[Split], *, sequence_tokens: int, console: Console
) -> None:
    """Print what a GPU's pool gives when it is divided."""
    lines = [
        (
            f"{int(split.running_share * 100)} % running",
            (
                f"decode batch of {split.decode_batch:,}, horizon {seconds_text(split.horizon_s)}, "
                f"{split.idle_conversations:,} idle conversations"
            ),
        )
        for split in rows
    ]
    _rows(console, f"{budget_line}, requests of {sequence_tokens:,} tokens", lines)


def _kv_rows(cost: KvCost, plan: Plan) -> Iterator[tuple[str, str]]:
    growth, short = cost.bytes_per_token, cost.short_bytes_per_token
    yield "per token", f"{growth:,} bytes ({bytes_text(growth)}){_formula(cost)}"
    if cost.window_bytes:
        yield (
            "constant per sequence",
            (
                f"{bytes_text(cost.window_bytes)} in window layers once they are full; "
                f"{short:,} bytes per token until then"
            ),
        )
    if cost.state.total:
        yield "state per sequence", f"{bytes_text(cost.state.total)} in recurrent layers"
    if cost.parallelism.num_gpus > 1:
        yield (
            "per token and GPU",
            (
                f"{cost.bytes_per_token_per_gpu:,} bytes on each of {cost.parallelism.num_gpus}; "
                f"each token lies there {cost.num_token_copies:.3g} times"
            ),
        )
    yield (
        f"at turn {plan.workload.shape.num_turns}",
        (f"{plan.conversation_tokens:,} tokens: {bytes_text(plan.conversation_bytes)}"),
    )


def _formula(cost: KvCost) -> str:
    """Return the sum where all layers are alike, nothing elsewhere."""
    caches = {layer.cache for layer in cost.geometry.layers if layer.cache is not None}
    if len(caches) != 1 or cost.dtype.kind != "plain":
        return ""
    cache, layers = caches.pop(), cost.geometry.num_owning_layers
    size = cost.dtype.element_bytes
    match cache:
        case HeadCache(heads, key, value, None) if key == value:
            return f" = 2 x {layers} layers x {heads} KV heads x {key} x {size}"
        case LatentCache(latent, rope, None, None):
            return f" = {layers} layers x ({latent} latent + {rope} rotary) x {size}"
    return ""


def _prefill_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    blocks = plan.workload.block_size
    yield "without reuse", f"{plan.cold_tokens:,} tokens; grows with the square of the turns"
    yield (
        "with reuse",
        (f"{plan.warm_tokens:,} tokens; grows linearly: {plan.prefill_ratio:.1f} times less"),
    )
    yield f"in blocks of {blocks}", f"{plan.warm_tokens_in_blocks:,} tokens"
    yield (
        "first token of last turn",
        (
            f"after {plan.workload.shape.new_tokens(plan.workload.shape.num_turns):,} tokens of "
            f"prefill with reuse, {plan.conversation_tokens:,} without"
        ),
    )


def _pool_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    work = plan.workload
    yield (
        "holds",
        (
            f"{plan.pool_tokens:,} tokens: {plan.num_conversations:,} conversations of "
            f"{plan.conversation_tokens:,}"
        ),
    )
    yield (
        "horizon",
        (
            f"({plan.pool_tokens:,} - {work.pinned_tokens:,.0f} running) / "
            f"{work.new_tokens_per_s:,.0f} new tokens per second = {seconds_text(plan.horizon_s)}"
        ),
    )
    missing = work.num_replicas - 1
    yield (
        "without affinity",
        (
            f"{missing} of {work.num_replicas} later turns miss over {work.num_replicas} replicas "
            f"({plan.miss_share_without_affinity:.1%})"
        ),
    )


def _think_rows(plan: Plan, exposed: Exposure, need: TierNeed) -> Iterator[tuple[str, str]]:
    yield (
        "come back in time",
        (
            f"{exposed.hit_share:.0%} of later turns; the others recompute "
            f"{exposed.lost_tokens_per_turn:,.0f} tokens per later turn on average"
        ),
    )
    if need.tier_tokens:
        size = bytes_text(need.tier_tokens * plan.bytes_per_token)
        what = f"{need.tier_tokens:,.0f} tokens below the pool ({size})"
    else:
        what = "the pool is enough"
    yield f"for {need.target_share:.0%} in time", f"{seconds_text(need.horizon_s)}: {what}"


def _reload_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    estimate = plan.reload
    if estimate is None:
        yield "recompute", "unknown: the config does not say how many parameters; --parameters"
        return
    rate = plan.workload.link_bytes_per_s / 1e9
    yield (
        f"load at {rate:,.0f} GB/s",
        (f"{bytes_text(estimate.num_bytes)} in {estimate.reload_s * 1e3:,.0f} ms"),
    )
    yield (
        "compute",
        (
            f"{estimate.work.weights:.2g} operations at "
            f"{plan.workload.operations_per_s / 1e12:,.0f} TFLOP/s: {estimate.recompute_s * 1e3:,.0f} "
            f"ms; with attention ({estimate.work.attention:.2g} more) "
            f"{estimate.recompute_with_attention_s * 1e3:,.0f} ms"
        ),
    )
    yield "break-even", f"{estimate.break_even_bytes_per_s / 1e9:,.1f} GB/s"


def _tenant_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    tenants = plan.tenants
    assert tenants is not None
    yield (
        "system prompt kept",
        (
            f"{tenants.num_tenants:,} times instead of once: {tenants.salted_tokens:,} tokens, "
            f"{bytes_text(tenants.salted_bytes)}"
        ),
    )
    yield (
        "horizon",
        (
            f"{seconds_text(tenants.horizon_s)} instead of {seconds_text(tenants.horizon_before_s)}"
            + ("" if tenants.fits else ": the copies and the running requests fill the pool")
        ),
    )
    yield "hits lost", f"{tenants.lost_hit_tokens:,} tokens prefilled once more"


def _head(console: Console, name: str, detail: str) -> None:
    console.print(Text.assemble((name, "bold"), f"  {detail}"), soft_wrap=True)


def _rows(
    console: Console, title: str, rows: Iterator[tuple[str, str]] | list[tuple[str, str]]
) -> None:
    console.print()
    _say(console, title, "bold")
    for label, text in rows:
        _say(console, f"  {label:{_LABEL}}{text}")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
