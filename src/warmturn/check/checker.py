"""The checker: requests in, one by one, in the order of the log; turns out, then a report."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from warmturn.check.fixes import fixes_for
from warmturn.check.lineage import Lineage, Node, Placement
from warmturn.check.names import blame_of
from warmturn.check.prompt import Preparation, PromptRenderer, TranscriptTemplate
from warmturn.check.raw_turn import as_logged, compare_logged
from warmturn.check.report import CheckReport, Fix, TurnCheck
from warmturn.check.settings import Settings
from warmturn.check.shared_messages import SharedMessages
from warmturn.check.summary import (
    SWITCH_REBUILT,
    EndedThread,
    Proofs,
    Thread,
    ThreadOrder,
    Totals,
    ended,
    judged,
    last_proofs,
)
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
from warmturn.cost.reuse import TurnCost, cost_of
from warmturn.errors import WarmturnError
from warmturn.formats.record import LoggedRequest
from warmturn.render import ChatTemplate, Renderer

__all__ = ["Checker", "check_conversations", "check_turn"]

_SWITCH = "client.model_switch"

_MOST_AGE = 65_536
"""Requests of the log after which the threads of a conversation are numbered from 1 again."""


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
        self._shared = SharedMessages()
        self._lineage: Lineage[Rendered] = Lineage(most_open=self.settings.most_open_requests)
        self._threads: dict[int, Thread] = {}
        self._threads_of: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._proofs = Proofs()

    def add(self, request: LoggedRequest) -> TurnCheck:
        """Check the next request of the log against the one it continues."""
        placed = self._lineage.place(self._shared.share(request))
        turn = self._checked(placed)
        thread = self._threads.get(placed.node.thread)
        if thread is None:
            thread = Thread(self._name(placed), _shareable_orders(placed))
            self._threads[placed.node.thread] = thread
        thread.turns.append(turn)
        return turn

    def skip(self) -> None:
        """Count a request of the log that another checker checks, with its whole conversation."""
        self._lineage.skip()

    def take_ended(self) -> list[EndedThread]:
        """Return the threads that nothing can continue any more, and forget them."""
        return [
            ended(self._threads.pop(number), self.settings) for number in self._lineage.take_ended()
        ]

    def take_all(self) -> Iterator[EndedThread]:
        """Yield all threads there are, ended or not, and forget them: the log is over."""
        while self._threads:
            yield ended(self._threads.pop(next(iter(self._threads))), self.settings)

    @property
    def proofs(self) -> dict[str, list[int]]:
        """For which requests fixes were proven, by cause; see `last_proofs`."""
        return self._proofs.numbers

    def compare(self, earlier: LoggedRequest, later: LoggedRequest) -> TurnCheck:
        """Check one pair apart from the stream; see `check_turn`."""
        renderer = self._renderer_of(later)
        sides = [self._rendered(request, renderer) for request in (earlier, later)]
        nodes = [_lone_node(request) for request in (earlier, later)]
        placed = Placement(nodes[1], nodes[0], "turn", None)
        turn = self._compared(placed, sides[0], sides[1], renderer)
        if nodes[0].scope == nodes[1].scope:
            return judged(turn, is_planned=False, settings=self.settings)
        return replace(turn, verdict="not-comparable", level=None, cause=_SWITCH, findings=())

    def report(self) -> CheckReport:
        """Return what was found so far, threads taken away left out."""
        order, totals = ThreadOrder(last_proofs([self.proofs])), Totals()
        threads = [self._threads[number] for number in sorted(self._threads)]
        conversations = tuple(order.place(ended(thread, self.settings)) for thread in threads)
        for conversation in conversations:
            totals.add(conversation)
        return totals.report(conversations)

    def _checked(self, placed: Placement[Rendered]) -> TurnCheck:
        renderer = self._renderer_of(placed.node.request)
        try:
            later = self._rendered(placed.node.request, renderer)
        except WarmturnError as error:
            return _turn(placed, notes=(f"not rendered: {error}",))
        placed.node.payload = later
        if placed.relation == "other-model":
            return _switched(placed, later)
        earlier = None if placed.parent is None else placed.parent.payload
        if earlier is None:
            latent = latent_causes_of(later.prompt)
            return _turn(placed, prompt_chars=len(later.text), latent=latent)
        return self._compared(placed, earlier, later, renderer)

    def _compared(
        self,
        placed: Placement[Rendered],
        earlier: Rendered,
        later: Rendered,
        renderer: PromptRenderer,
    ) -> TurnCheck:
        has_messages = later.request.messages is not None and earlier.request.messages is not None
        found = (compare if has_messages else compare_logged)(earlier, later, renderer)
        return _turn(
            placed,
            verdict="break" if found.is_broken else "append-only",
            level=found.level,
            cause=found.cause,
            blame=blame_of(found.cause),
            findings=found.findings,
            token_finding=found.token_finding,
            evidence=found.pair.generated.evidence,
            earlier_prompt_chars=len(earlier.text),
            prompt_chars=len(later.text),
            cached_chars=len(found.pair.cached_text),
            shared_chars=found.pair.shared,
            are_messages_append_only=(
                are_messages_append_only(earlier.prompt, later.prompt) if has_messages else None
            ),
            is_loss_bounded=found.is_loss_bounded,
            latent=() if found.is_broken else found.latent,
            notes=found.notes,
            cost=_cost(found.counts, self.settings),
            fixes=self._fixes(found, placed.node),
        )

    def _rendered(self, request: LoggedRequest, renderer: PromptRenderer) -> Rendered:
        prepare = rendered if request.messages is not None else as_logged
        return prepare(request, renderer, self._tokenizer)

    def _fixes(self, found: Comparison, node: Node[Rendered]) -> tuple[Fix, ...]:
        fixes: list[Fix] = []
        for step in found.steps if self.settings.proves_fixes else ():
            if self._proofs.are_due(step.finding.cause, node.number):
                fixes += fixes_for(
                    found.pair,
                    step,
                    is_only=len(found.steps) == 1,
                    turn=node.turn,
                    tokenizer=self._tokenizer,
                    max_model_tokens=self.settings.max_model_tokens,
                )
        return tuple(fixes)

    def _renderer_of(self, request: LoggedRequest) -> PromptRenderer:
        return self._transcript if request.level == "messages" else self._renderer

    def _name(self, placed: Placement[Rendered]) -> str | None:
        name = placed.node.request.conversation_id
        if name is None:
            return None
        number = placed.node.number
        known, last = self._threads_of.pop(name, (0, number))
        count = 1 if number - last > _MOST_AGE else known + 1
        self._threads_of[name] = (count, number)
        if number - next(iter(self._threads_of.values()))[1] > _MOST_AGE:
            self._threads_of.popitem(last=False)
        return name if count == 1 else f"{name}#{count}"


def _shareable_orders(placed: Placement[Rendered]) -> tuple[object, str] | None:
    node = placed.node
    if node.payload is None or node.request.messages is None or placed.relation == "other-model":
        return None
    return node.scope, node.orders


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


def _turn(placed: Placement[Rendered], **found: Any) -> TurnCheck:
    """Return the turn with what was found; without anything it is clean."""
    place: dict[str, Any] = {
        "request_id": _request_id(placed.node),
        "parent_id": None if placed.parent is None else _request_id(placed.parent),
        "number": placed.node.number,
        "parent_number": None if placed.parent is None else placed.parent.number,
        "source": placed.node.request.source,
        "line": placed.node.request.line,
        "turn": placed.node.turn,
        "relation": placed.relation,
        "verdict": "append-only",
        "level": None,
        "cause": "none",
        "blame": "nobody",
        "are_messages_append_only": None if placed.node.request.messages is None else True,
    }
    return TurnCheck(**(place | found))


def _request_id(node: Node[Rendered]) -> str:
    return node.request.request_id or f"{node.request.source}:{node.request.line}"


def _switched(placed: Placement[Rendered], later: Rendered) -> TurnCheck:
    """The same conversation on another model: nothing can be reused, and nothing is compared."""
    old, new = placed.derived_from, placed.node
    assert old is not None
    is_rebuilt = old.orders != new.orders
    note = f"went from {_scope_shown(old)} to {_scope_shown(new)}, after {_request_id(old)}"
    if is_rebuilt:
        note += f"; the system text {old.orders[:80]!r} became {new.orders[:80]!r}"
    return _turn(
        placed,
        prompt_chars=len(later.text),
        verdict="not-comparable",
        cause=SWITCH_REBUILT if is_rebuilt else _SWITCH,
        blame="client",
        level="messages" if is_rebuilt else None,
        notes=(note,),
    )


def _scope_shown(node: Node[Rendered]) -> str:
    model, adapter, _salt = node.scope
    return f"{model}" if adapter is None else f"{model} with adapter {adapter}"
