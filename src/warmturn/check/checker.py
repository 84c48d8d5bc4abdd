"""The checker: requests in, one by one, in the order of the log; turns out, then a report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warmturn.check.cost import HYBRID_BLOCK_TOKENS, TurnCost, cost_of
from warmturn.check.fixes import fixes_for
from warmturn.check.lineage import MOST_OPEN_REQUESTS, Lineage, Node, Placement
from warmturn.check.names import Verdict, blame_of
from warmturn.check.prompt import Preparation, PromptRenderer, TranscriptTemplate
from warmturn.check.report import CheckReport, ConversationCheck, Fix, TurnCheck
from warmturn.check.tokens import Encoder
from warmturn.check.turn import (
    Comparison,
    Counts,
    Rendered,
    are_messages_append_only,
    compare,
    latent_causes_of,
    rendered,
)
from warmturn.errors import InvalidInput, WarmturnError
from warmturn.formats.record import LoggedRequest
from warmturn.render import ChatTemplate, Renderer

__all__ = ["Checker", "Settings", "check_conversations", "check_turn"]

_PLANNED_SHARE = 0.2
"""A history cut in at most every fifth turn is a plan, not a window that slides."""

_CUTS = frozenset({"client.history_window_slide", "client.history_summarised"})
_MOST_PROOFS_PER_CAUSE = 20
"""Each proof is two renders; a log of one cause throughout has no need of more."""

_SIDE = "lineage.side_request_or_fork"
_SWITCH = "client.model_switch"
_SWITCH_REBUILT = "client.model_switch_plus_rebuilt_system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How costs are counted. Defaults: vLLM's block size, the threshold of the case files."""

    block_size: int = 16
    hybrid_block_tokens: int = HYBRID_BLOCK_TOKENS
    fail_under: float = 0.9
    """A turn fails where it shares less than this of the earlier prompt, or of it with its reply."""
    prefill_tokens_per_s: float | None = None
    max_model_tokens: int | None = None
    proves_fixes: bool = True
    most_open_requests: int = MOST_OPEN_REQUESTS

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        if self.block_size < 1 or self.hybrid_block_tokens < 1 or self.most_open_requests < 2:
            raise InvalidInput(
                f"block_size={self.block_size}, hybrid_block_tokens={self.hybrid_block_tokens}, "
                f"most_open_requests={self.most_open_requests}: give positive numbers, and room "
                "for two open requests"
            )
        if not 0 <= self.fail_under <= 1:
            raise InvalidInput(f"fail_under={self.fail_under} is no share; give 0 to 1")


def check_conversations(
    requests: Iterable[LoggedRequest],
    *,
    template: ChatTemplate | Renderer | None,
    tokenizer: Encoder | None = None,
    preparation: Preparation = "as_served",
    template_kwargs: Mapping[str, object] = {},
    settings: Settings | None = None,
) -> CheckReport:
    """Check that each turn of each conversation in `requests` only appends to what is cached.

    Requests come in the order they were sent. `template` renders them; a `Renderer` brings its
    tokenizer along; with None only messages are compared. Without a tokenizer lengths are in
    characters and costs are left out. Memory: see `Settings.most_open_requests`, and a small
    record of each turn.
    """
    checker = Checker(
        template=template,
        tokenizer=tokenizer,
        preparation=preparation,
        template_kwargs=template_kwargs,
        settings=settings,
    )
    for request in requests:
        checker.add(request)
    return checker.report()


def check_turn(
    earlier: LoggedRequest,
    later: LoggedRequest,
    *,
    template: ChatTemplate | Renderer | None,
    tokenizer: Encoder | None = None,
    preparation: Preparation = "as_served",
    template_kwargs: Mapping[str, object] = {},
    settings: Settings | None = None,
) -> TurnCheck:
    """Check `later` as a turn that continues `earlier`, whatever their messages say.

    The verdict is `not-comparable` for two models, adapters or salts; sizes are given even then.
    Raises `TemplateError` where the template refuses one of them.
    """
    checker = Checker(
        template=template,
        tokenizer=tokenizer,
        preparation=preparation,
        template_kwargs=template_kwargs,
        settings=settings,
    )
    return checker.compare(earlier, later)


@dataclass(slots=True)
class _Thread:
    conversation_id: str
    turns: list[TurnCheck] = field(default_factory=list)


class Checker:
    """Checks a stream of requests. Not safe to use from several threads at once."""

    def __init__(
        self,
        *,
        template: ChatTemplate | Renderer | None,
        tokenizer: Encoder | None = None,
        preparation: Preparation = "as_served",
        template_kwargs: Mapping[str, object] = {},
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._renderer = PromptRenderer(
            TranscriptTemplate() if template is None else template,
            preparation=preparation,
            template_kwargs=template_kwargs,
        )
        self._transcript = PromptRenderer(TranscriptTemplate(), preparation=preparation)
        self._tokenizer = tokenizer
        if tokenizer is None and isinstance(template, Renderer):
            self._tokenizer = template.tokenizer
        self._lineage: Lineage[Rendered] = Lineage(most_open=self.settings.most_open_requests)
        self._threads: dict[int, _Thread] = {}
        self._num_threads_of: dict[str, int] = {}
        self._num_requests = 0
        self._first_break: TurnCheck | None = None
        self._num_proofs: dict[str, int] = {}

    def add(self, request: LoggedRequest) -> TurnCheck:
        """Check the next request of the log against the one it continues."""
        self._num_requests += 1
        placed = self._lineage.place(request)
        turn = self._checked(placed)
        thread = self._threads.setdefault(placed.node.thread, _Thread(self._name(placed)))
        thread.turns.append(turn)
        if self._first_break is None and _counts_as_break(turn):
            self._first_break = turn
        return turn

    def compare(self, earlier: LoggedRequest, later: LoggedRequest) -> TurnCheck:
        """Check one pair apart from the stream; see `check_turn`."""
        renderer = self._renderer_of(later)
        sides = [rendered(r, renderer, self._tokenizer) for r in (earlier, later)]
        nodes = [_lone_node(request) for request in (earlier, later)]
        blank = _blank_turn(Placement(nodes[1], nodes[0], "turn", None))
        blank = replace(blank, prompt_chars=len(sides[1].text))
        turn = self._compared(blank, sides[0], sides[1], renderer)
        if nodes[0].scope == nodes[1].scope:
            return _judged(turn, is_planned=False, settings=self.settings)
        return replace(turn, verdict="not-comparable", level=None, cause=_SWITCH, findings=())

    def report(self) -> CheckReport:
        """Return what was found so far."""
        conversations = tuple(
            _conversation(number, thread, self.settings) for number, thread in self._threads.items()
        )
        turns = [turn for conversation in conversations for turn in conversation.turns]
        costs = [turn.cost for turn in turns if turn.cost is not None]
        times = [cost.lost_ttft_s for cost in costs if cost.lost_ttft_s is not None]
        first = self._first_break
        is_split = len(conversations) > 1 or any(t.relation in {"fork", "retry"} for t in turns)
        cause = (_SIDE if is_split else "none") if first is None else first.cause
        return CheckReport(
            verdict="append-only" if first is None else "break",
            level=None if first is None else first.level,
            cause=cause,
            blame=blame_of(cause),
            conversations=conversations,
            fixes=_summed_fixes(turns),
            num_requests=self._num_requests,
            num_breaks=sum(_counts_as_break(turn) for turn in turns),
            num_failures=sum(turn.is_failure for turn in turns),
            shared_tokens=sum(cost.shared_tokens for cost in costs),
            cached_tokens=sum(cost.shared_tokens + cost.lost_tokens for cost in costs),
            lost_ttft_s=sum(times) if times else None,
        )

    def _checked(self, placed: Placement[Rendered]) -> TurnCheck:
        turn = _blank_turn(placed)
        renderer = self._renderer_of(placed.node.request)
        try:
            later = rendered(placed.node.request, renderer, self._tokenizer)
        except WarmturnError as error:
            return replace(turn, notes=(f"not rendered: {error}",))
        placed.node.payload = later
        turn = replace(turn, prompt_chars=len(later.text))
        if placed.relation == "other-model":
            return _switched(turn, placed)
        earlier = None if placed.parent is None else placed.parent.payload
        if earlier is None:
            return replace(turn, latent=latent_causes_of(later.prompt))
        return self._compared(turn, earlier, later, renderer)

    def _compared(
        self, turn: TurnCheck, earlier: Rendered, later: Rendered, renderer: PromptRenderer
    ) -> TurnCheck:
        found = compare(earlier, later, renderer)
        return replace(
            turn,
            verdict="break" if found.is_broken else "append-only",
            level=found.level,
            cause=found.cause,
            blame=blame_of(found.cause),
            findings=found.findings,
            token_finding=found.token_finding,
            evidence=earlier.generated.evidence,
            earlier_prompt_chars=len(earlier.text),
            cached_chars=len(found.pair.cached_text),
            shared_chars=found.pair.shared,
            are_messages_append_only=are_messages_append_only(earlier.prompt, later.prompt),
            is_loss_bounded=found.is_loss_bounded,
            latent=() if found.is_broken else found.latent,
            notes=found.notes,
            cost=_cost(found.counts, self.settings),
            fixes=self._fixes(found, turn.turn),
        )

    def _fixes(self, found: Comparison, turn: int) -> tuple[Fix, ...]:
        fixes: list[Fix] = []
        for step in found.steps if self.settings.proves_fixes else ():
            cause = step.finding.cause
            self._num_proofs[cause] = self._num_proofs.get(cause, 0) + 1
            # The step of a window is that of its whole conversation: one proof will do.
            most = 1 if cause in _CUTS else _MOST_PROOFS_PER_CAUSE
            if self._num_proofs[cause] <= most:
                fixes += fixes_for(
                    found.pair,
                    step,
                    is_only=len(found.steps) == 1,
                    turn=turn,
                    tokenizer=self._tokenizer,
                    max_model_tokens=self.settings.max_model_tokens,
                )
        return tuple(fixes)

    def _renderer_of(self, request: LoggedRequest) -> PromptRenderer:
        return self._transcript if request.level == "messages" else self._renderer

    def _name(self, placed: Placement[Rendered]) -> str:
        request = placed.node.request
        if request.conversation_id is None:
            return f"thread-{placed.node.thread + 1}"
        count = self._num_threads_of.get(request.conversation_id, 0) + 1
        self._num_threads_of[request.conversation_id] = count
        return request.conversation_id if count == 1 else f"{request.conversation_id}#{count}"


def _cost(counts: Counts | None, settings: Settings) -> TurnCost | None:
    if counts is None:
        return None
    return cost_of(
        prompt_tokens=counts.prompt_tokens,
        earlier_prompt_tokens=counts.earlier_prompt_tokens,
        generated_tokens=max(0, counts.cached_tokens - counts.earlier_prompt_tokens),
        shared_tokens=counts.shared_tokens,
        block_size=settings.block_size,
        hybrid_block_tokens=settings.hybrid_block_tokens,
        prefill_tokens_per_s=settings.prefill_tokens_per_s,
    )


def _lone_node(request: LoggedRequest) -> Node[Rendered]:
    return Lineage[Rendered]().place(request).node


def _blank_turn(placed: Placement[Rendered]) -> TurnCheck:
    return TurnCheck(
        request_id=_request_id(placed.node),
        parent_id=None if placed.parent is None else _request_id(placed.parent),
        source=placed.node.request.source,
        line=placed.node.request.line,
        turn=placed.node.turn,
        relation=placed.relation,
        verdict="append-only",
        level=None,
        cause="none",
        blame="nobody",
    )


def _request_id(node: Node[Rendered]) -> str:
    return node.request.request_id or f"{node.request.source}:{node.request.line}"


def _switched(turn: TurnCheck, placed: Placement[Rendered]) -> TurnCheck:
    """The same conversation on another model: nothing can be reused, and nothing is compared."""
    old, new = placed.derived_from, placed.node
    if old is None:
        return turn
    is_rebuilt = old.orders != new.orders
    note = f"went from {_scope_shown(old)} to {_scope_shown(new)}, after {_request_id(old)}"
    if is_rebuilt:
        note += f"; the system text {old.orders[:80]!r} became {new.orders[:80]!r}"
    return replace(
        turn,
        verdict="not-comparable",
        cause=_SWITCH_REBUILT if is_rebuilt else _SWITCH,
        blame="client",
        level="messages" if is_rebuilt else None,
        notes=(note,),
    )


def _scope_shown(node: Node[Rendered]) -> str:
    model, adapter, _salt = node.scope
    return f"{model}" if adapter is None else f"{model} with adapter {adapter}"


def _counts_as_break(turn: TurnCheck) -> bool:
    return turn.verdict == "break" or turn.cause == _SWITCH_REBUILT


def _conversation(number: int, thread: _Thread, settings: Settings) -> ConversationCheck:
    followed = [turn for turn in thread.turns if turn.parent_id is not None]
    cuts = sum(turn.cause in _CUTS for turn in followed)
    is_planned = 0 < cuts <= _PLANNED_SHARE * len(followed)
    turns = tuple(_judged(turn, is_planned=is_planned, settings=settings) for turn in thread.turns)
    first = next((turn for turn in turns if _counts_as_break(turn)), None)
    cause = "none" if first is None else first.cause
    verdict: Verdict = "append-only" if first is None else "break"
    return ConversationCheck(thread.conversation_id, number, verdict, cause, blame_of(cause), turns)


def _judged(turn: TurnCheck, *, is_planned: bool, settings: Settings) -> TurnCheck:
    planned = is_planned and turn.cause in _CUTS
    if turn.cost is not None:
        shares = turn.cost.prompt_share, turn.cost.cached_share
    else:
        prompt = min(turn.shared_chars, turn.earlier_prompt_chars)
        shares = (
            prompt / max(1, turn.earlier_prompt_chars),
            turn.shared_chars / max(1, turn.cached_chars),
        )
    is_low = min(shares) < settings.fail_under
    is_failure = turn.cause == _SWITCH_REBUILT or (
        turn.verdict == "break" and is_low and not planned
    )
    return replace(turn, is_planned=planned, is_failure=is_failure)


def _summed_fixes(turns: Sequence[TurnCheck]) -> tuple[Fix, ...]:
    """Return one fix per cause: its first change, with the shares of all turns averaged."""
    by_change: dict[tuple[str, int], list[Fix]] = {}
    for turn in turns:
        ranks: dict[str, int] = {}
        for fix in turn.fixes:
            rank = ranks.get(fix.cause, 0)
            ranks[fix.cause] = rank + 1
            by_change.setdefault((fix.cause, rank), []).append(fix)
    return tuple(
        replace(
            fixes[0],
            share_before=sum(fix.share_before for fix in fixes) / len(fixes),
            share_after=sum(fix.share_after for fix in fixes) / len(fixes),
            is_proven=all(fix.is_proven for fix in fixes),
        )
        for fixes in by_change.values()
    )
