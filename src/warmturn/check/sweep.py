"""A template on its own: which shapes of conversation it breaks, where, and what helps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from warmturn.check.checker import check_turn
from warmturn.check.names import Blame, Level, Verdict
from warmturn.check.prompt import PromptRenderer, prompt_of
from warmturn.check.report import Fix, TurnCheck
from warmturn.check.settings import Settings
from warmturn.check.shapes import SHAPES, Shape, with_compact_arguments
from warmturn.errors import WarmturnError
from warmturn.formats.record import LoggedRequest
from warmturn.render import ChatTemplate

__all__ = ["Place", "ShapeCheck", "TemplateSweep", "sweep_template"]

Place: TypeAlias = Literal["generated", "generation-prompt", "prompt"]
"""Where a break lies: in the model's words (that turn is lost), in the tail that opens the
answer (that turn too), or before it (all turns behind that place are lost)."""


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """How one shape fares with one template."""

    shape: str
    verdict: Verdict | None
    """None where nothing was compared: the template refuses the shape, or it says nothing."""
    cause: str = "none"
    level: Level | None = None
    blame: Blame = "nobody"
    place: Place | None = None
    lost_chars: int = 0
    detail: str = ""
    """What the break is; without a verdict, why there is none."""
    earlier_at: str = ""
    later_at: str = ""
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateSweep:
    """One template against all shapes."""

    name: str
    error: str | None
    """Why no shape was tried: the template does not compile."""
    shapes: tuple[ShapeCheck, ...] = ()

    @property
    def num_breaks(self) -> int:
        """Shapes that break."""
        return sum(shape.verdict == "break" for shape in self.shapes)

    @property
    def renders(self) -> bool:
        """Whether the template rendered any shape."""
        return any(shape.verdict is not None for shape in self.shapes)


def sweep_template(
    source: str,
    *,
    name: str,
    special_tokens: Mapping[str, str],
    shapes: Sequence[Shape] = SHAPES,
) -> TemplateSweep:
    """Try every shape on one template. Never raises for what the template does."""
    try:
        template = ChatTemplate(source, special_tokens=special_tokens)
    except WarmturnError as error:
        return TemplateSweep(name, str(error))
    return TemplateSweep(name, None, tuple(_check(shape, template) for shape in shapes))


def _check(shape: Shape, template: ChatTemplate) -> ShapeCheck:
    renderer = PromptRenderer(template)
    try:
        earlier, later = shape.requests()
        if shape.is_compact:
            compact = with_compact_arguments(earlier, renderer)
            if compact is None:
                return ShapeCheck(shape.name, None, detail="prints no arguments as JSON")
            earlier = compact
        turn = check_turn(earlier, later, template=template, settings=Settings(fail_under=1.0))
        return _result(shape, turn, earlier, renderer)
    except WarmturnError as error:
        return ShapeCheck(shape.name, None, detail=str(error))


def _result(
    shape: Shape, turn: TurnCheck, earlier: LoggedRequest, renderer: PromptRenderer
) -> ShapeCheck:
    first = turn.findings[0] if turn.findings else None
    is_broken = turn.verdict == "break"
    return ShapeCheck(
        shape.name,
        turn.verdict,
        turn.cause,
        turn.level,
        turn.blame,
        _place(turn, earlier, renderer) if is_broken else None,
        turn.cached_chars - turn.shared_chars if is_broken else 0,
        "" if first is None else first.detail,
        "" if first is None else first.earlier_at,
        "" if first is None else first.later_at,
        turn.fixes,
    )


def _place(turn: TurnCheck, earlier: LoggedRequest, renderer: PromptRenderer) -> Place:
    if turn.shared_chars >= turn.earlier_prompt_chars:
        return "generated"
    closed = renderer.text(prompt_of(earlier), add_generation_prompt=False)
    return "generation-prompt" if turn.shared_chars >= len(closed) else "prompt"
