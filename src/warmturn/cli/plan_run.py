"""The plan behind the options: arithmetic, terminal, JSON and chart put together."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console

from warmturn.cost import (
    ConversationShape,
    DeviceBudget,
    KvCost,
    PlannedModel,
    Split,
    device_budget,
    splits,
)
from warmturn.cost.plan import Workload, plan_for
from warmturn.errors import InvalidInput
from warmturn.horizon import exposure, tier_need
from warmturn.report.chart import Axis, Line, line_chart
from warmturn.report.figures import bytes_text
from warmturn.report.plan_json import plan_json
from warmturn.report.plan_terminal import print_plan, print_splits
from warmturn.session.think_time import ThinkTimes

__all__ = ["Request", "run_plan"]

_WEIGHT_BYTES_PER_PARAMETER = 2


@dataclass(frozen=True, slots=True)
class Request:
    """All that was asked for."""

    model: PlannedModel
    cost: KvCost
    workload: Workload
    think_times: ThinkTimes
    target_share: float
    gpu_bytes: int | None
    weight_bytes: int | None
    activation_bytes: int
    utilisation: float


def run_plan(request: Request, *, is_shown: bool) -> tuple[dict[str, Any], str]:
    """Print the plan if it is to be shown, and return it as JSON and its chart as SVG."""
    plan = plan_for(request.model, request.cost, request.workload)
    exposed = exposure(
        request.think_times, horizon_s=plan.horizon_s, tokens_per_miss=plan.reused_tokens
    )
    need = tier_need(
        request.think_times,
        target_share=request.target_share,
        pool_tokens=plan.pool_tokens,
        pinned_tokens=request.workload.pinned_tokens,
        new_tokens_per_s=request.workload.new_tokens_per_s,
    )
    device = _device(request, plan.conversation_tokens)
    if is_shown:
        console = Console(highlight=False)
        print_plan(request.model, request.cost, plan, exposed, need, console)
        if device is not None:
            print_splits(
                _budget_line(device[0], request.cost),
                device[1],
                sequence_tokens=plan.conversation_tokens,
                console=console,
            )
    result = plan_json(request.model, request.cost, plan, exposed, need, device)
    return result, _chart(request.workload.shape)


def _device(request: Request, sequence_tokens: int) -> tuple[DeviceBudget, list[Split]] | None:
    if request.gpu_bytes is None:
        return None
    budget = device_budget(
        total_bytes=request.gpu_bytes,
        weight_bytes=_weight_bytes(request),
        num_gpus=request.cost.parallelism.num_gpus,
        activation_bytes=request.activation_bytes,
        utilisation=request.utilisation,
    )
    shares = splits(
        request.cost,
        pool_bytes=budget.pool,
        sequence_tokens=sequence_tokens,
        new_tokens_per_s=request.workload.new_tokens_per_s,
    )
    return budget, shares


def _weight_bytes(request: Request) -> int:
    known = request.weight_bytes or request.model.weight_bytes
    if known is not None:
        return known
    if request.model.parameters is None:
        raise InvalidInput(
            f"the config of {request.model.name} does not say how many parameters there are; give "
            "the bytes of its weights (--weights)"
        )
    return int(request.model.parameters.total * _WEIGHT_BYTES_PER_PARAMETER)


def _budget_line(budget: DeviceBudget, cost: KvCost) -> str:
    gpus = cost.parallelism.num_gpus
    return (
        f"{gpus} GPU{'s' if gpus > 1 else ''} of {bytes_text(budget.total)}: "
        f"{bytes_text(budget.weights)} weights, {bytes_text(budget.activations)} activations, "
        f"{bytes_text(budget.pool)} pool each"
    )


def _chart(shape: ConversationShape) -> str:
    cold, warm = [0], [0]
    for turn in range(1, shape.num_turns + 1):
        cold.append(cold[-1] + shape.prompt_tokens(turn))
        warm.append(warm[-1] + shape.new_tokens(turn))
    return line_chart(
        "Tokens prefilled by the end of each turn",
        Axis("turn", 0, shape.num_turns),
        Axis("tokens", 0, cold[-1]),
        [
            Line("without reuse", list(enumerate(cold))),
            Line("with reuse", list(enumerate(warm))),
        ],
    )
