"""Which earlier request each request continues.

By id where the log has one, else inferred, always within one model, adapter and salt:

1. the request whose messages, system text aside, are the longest head of the new one's;
2. else one whose newest messages reappear: its history was dropped, summarised or edited;
3. else, under one conversation id, the newest request with the same orders and more history
   than this one: everything was replaced. Without ids only a summary is taken for that;
4. else, without an id, a first turn whose only message was edited at one end.

Prompts logged without messages are found by their text or ids: see `raw_lineage.py`.

A request that continues none is a root: a conversation's first turn, a side request, a
sub-agent. Two requests that continue the same one are a fork or a retry. None of these is a
break. Requests are found by hashes of message prefixes, O(messages) dictionary reads for each,
and the oldest are forgotten, so that memory does not grow with the log. A thread of which all
is forgotten has ended.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from warmturn.check.message_keys import content_text, head_length, is_similar, loose_key
from warmturn.check.raw_lineage import RawIndex
from warmturn.check.reply import as_assistant, content_of_reply, reply_matches
from warmturn.check.suspect_history import is_same_block
from warmturn.check.suspect_system import SUMMARY_WORDS
from warmturn.check.suspect_tools import tool_name
from warmturn.formats.record import LoggedRequest

__all__ = ["MOST_OPEN_REQUESTS", "Lineage", "Node", "Placement", "Relation"]

MOST_OPEN_REQUESTS = 4096
"""Requests of the log after which one that was not continued can be no more: about 100 MB at 6k
tokens each. Counted in the log, so that the answer is the same whoever reads only a part of it."""

Relation: TypeAlias = Literal["root", "turn", "fork", "retry", "side", "other-model"]
"""How a request stands to the one it was derived from.

`side`: it repeats a conversation with other tools or orders, and the conversation goes on
without it. `other-model`: the same conversation, but another model or adapter, so that nothing
can be reused.
"""

_Scope: TypeAlias = tuple[str | None, str | None, str | None]
_MOST_PER_KEY = 64
_NEWEST_MESSAGES = 3
_SAME_ORDERS_SHARE = 0.3
_SAME_ORDERS_CHARS = 64
_VERSION_CHARS = 200
_TELLING_CHARS = 16
"""A question shorter than this may be asked in many conversations."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Node(Generic[T]):
    """One request that can still be continued, with what the checker keeps beside it."""

    request: LoggedRequest
    number: int
    thread: int
    """Conversations are numbered by their roots."""
    turn: int
    scope: _Scope
    keys: tuple[int, ...]
    """Loose keys of the messages behind the system text."""
    reply_keys: tuple[int, ...]
    """Loose key of the answer, where the log has it."""
    orders: str
    """The system text."""
    parent: "Node[T] | None"
    last_used: int
    """Number of the newest request that continues this one; at first its own."""
    has_child: bool = False
    payload: T | None = None


@dataclass(frozen=True, slots=True)
class Placement(Generic[T]):
    """Where a request belongs. `parent` is None for roots; see `Relation`."""

    node: Node[T]
    parent: Node[T] | None
    relation: Relation
    derived_from: Node[T] | None
    """With `other-model`: the request whose conversation went to another model."""


class Lineage(Generic[T]):
    """Places requests one by one, in the order of the log."""

    def __init__(self, *, most_open: int = MOST_OPEN_REQUESTS) -> None:
        self._most_open = most_open
        self._open: OrderedDict[int, Node[T]] = OrderedDict()
        self._by_key: dict[tuple[Any, ...], list[Node[T]]] = {}
        self._raw = RawIndex()
        self._num_open_of: dict[int, int] = {}
        self._ended: list[int] = []
        self._num_seen = 0
        self._num_threads = 0

    def __len__(self) -> int:
        return len(self._open)

    def place(self, request: LoggedRequest) -> Placement[T]:
        """Return whom `request` continues, and remember it."""
        node = self._node(request)
        found = self._parent_of(node)
        is_same_scope = found is not None and found.scope == node.scope
        parent = found if is_same_scope else None
        relation: Relation = "root" if found is None else "turn" if is_same_scope else "other-model"
        if parent is not None:
            relation = self._relation(node, parent)
            node.thread = parent.thread
            node.turn = parent.turn + 1
            node.parent = parent
            self._touch(parent)
        else:
            node.thread = self._num_threads
            self._num_threads += 1
        self._remember(node)
        self._forget_old()
        return Placement(node, parent, relation, None if is_same_scope else found)

    def skip(self) -> None:
        """Count a request of the log that is none of ours."""
        self._num_seen += 1
        self._forget_old()

    def take_ended(self) -> list[int]:
        """Return the threads that nothing can continue any more, once each."""
        ended, self._ended = self._ended, []
        return ended

    def _node(self, request: LoggedRequest) -> Node[T]:
        messages = request.messages or ()
        head = head_length(messages)
        self._num_seen += 1
        return Node(
            request=request,
            number=self._num_seen,
            thread=-1,
            turn=0,
            scope=(request.model, request.adapter, request.cache_salt),
            keys=tuple(loose_key(message) for message in messages[head:]),
            reply_keys=tuple(_reply_key(request)),
            orders="\n".join(content_text(message) for message in messages[:head]),
            parent=None,
            last_used=self._num_seen,
        )

    def _relation(self, node: Node[T], parent: Node[T]) -> Relation:
        if _is_raw(node) and self._raw.has_twin(node.request):
            return "retry"
        twins = (
            ()
            if _is_raw(node)
            else (n for n in self._at(node, ("all", hash(node.keys))) if n.keys == node.keys)
        )
        if any(twin.scope == node.scope for twin in twins):
            return "retry"
        relation: Relation = "fork" if parent.has_child else "turn"
        parent.has_child = True
        return relation

    def _parent_of(self, node: Node[T]) -> Node[T] | None:
        if _is_raw(node):
            number = self._raw.parent_of(node.request)
            return None if number is None else self._open[number]
        found = self._longest_head(node, same_scope=True)
        if found is not None and _num_answers(node, len(found.keys)) <= 1:
            return found
        # More than one round lies between: an older request is the head of this one, but a
        # newer one may be its parent, edited. A fork does not repeat what the newer one got.
        newer = self._newest_reappears(node, is_sure=found is not None)
        if newer is not None and (found is None or newer.number > found.number):
            return newer
        return (
            found
            or self._all_replaced(node)
            or self._first_edited(node)
            or self._longest_head(node, same_scope=False)
        )

    def _longest_head(self, node: Node[T], *, same_scope: bool) -> Node[T] | None:
        for length in range(len(node.keys) - 1, 0, -1):
            head = node.keys[:length]
            known = [
                other
                for other in self._at(node, ("all", hash(head)))
                if other.keys == head
                and (other.scope == node.scope) is same_scope
                and _may_continue(other, node, length)
            ]
            if known:
                return max(known, key=lambda other: _likeness(other, node, length))
        return None

    def _newest_reappears(self, node: Node[T], *, is_sure: bool) -> Node[T] | None:
        counts: dict[int, int] = {}
        nodes: dict[int, Node[T]] = {}
        for key in set(node.keys):
            for other in self._at(node, ("new", key)):
                if other.scope == node.scope and _has_same_orders(other, node):
                    counts[other.number] = counts.get(other.number, 0) + 1
                    nodes[other.number] = other
        able = [n for n in nodes.values() if _goes_on_from(n, node, is_sure=is_sure)]
        return max(able, key=lambda n: (counts[n.number], n.number), default=None)

    def _all_replaced(self, node: Node[T]) -> Node[T] | None:
        """A conversation id ties two requests that share no message.

        Without one, a summary does, where only one conversation with these orders is open.
        """
        has_id = node.request.conversation_id is not None
        key = ("id",) if has_id else ("orders", hash(node.orders[:_SAME_ORDERS_CHARS]))
        known = [n for n in self._at(node, key) if n.scope == node.scope]
        if not has_id:
            known = [n for n in known if not n.has_child]
            if len(known) != 1 or not _has_summary(node):
                return None
        newest = max(known, key=lambda n: n.number, default=None)
        if newest is None or not _has_same_orders(newest, node) or not newest.orders:
            return None
        return newest if _is_replacement(newest, node) else None

    def _first_edited(self, node: Node[T]) -> Node[T] | None:
        """Without an id: the newest first turn whose only message holds this one's, or lies in it."""
        body = _body(node)
        if len(body) < 3 or body[1].get("role") != "assistant":
            return None
        text = content_text(body[0]).strip()
        known = [
            other
            for other in self._at(node, ("first", hash(node.orders)))
            if other.scope == node.scope
            and not other.has_child
            and _holds(content_text(_body(other)[0]).strip(), text, body[1:])
            and reply_matches(other.request, body[1]) is not False
        ]
        return known[-1] if known else None

    def _at(self, node: Node[T], key: tuple[Any, ...]) -> Sequence[Node[T]]:
        return self._by_key.get((node.request.conversation_id, *key), ())

    def _remember(self, node: Node[T]) -> None:
        self._open[node.number] = node
        self._num_open_of[node.thread] = self._num_open_of.get(node.thread, 0) + 1
        if _is_raw(node):
            self._raw.add(node.number, node.request)
            return
        for key in _index_keys(node):
            nodes = self._by_key.setdefault(key, [])
            nodes.append(node)
            if len(nodes) > _MOST_PER_KEY:
                del nodes[0]

    def _touch(self, node: Node[T]) -> None:
        if node.number in self._open:
            node.last_used = self._num_seen
            self._open.move_to_end(node.number)

    def _forget_old(self) -> None:
        while self._open:
            oldest = next(iter(self._open.values()))
            if oldest.last_used > self._num_seen - self._most_open:
                return
            del self._open[oldest.number]
            self._forget(oldest)

    def _forget(self, node: Node[T]) -> None:
        if _is_raw(node):
            self._raw.remove(node.number)
        for key in () if _is_raw(node) else _index_keys(node):
            left = [other for other in self._by_key.get(key, ()) if other is not node]
            if left:
                self._by_key[key] = left
            else:
                self._by_key.pop(key, None)
        node.payload = None
        node.parent = None
        self._num_open_of[node.thread] -= 1
        if self._num_open_of[node.thread] == 0:
            del self._num_open_of[node.thread]
            self._ended.append(node.thread)


def _is_raw(node: Node[Any]) -> bool:
    """Whether the log has the prompt only, and no messages."""
    return node.request.messages is None


def _index_keys(node: Node[Any]) -> Iterator[tuple[Any, ...]]:
    conversation = node.request.conversation_id
    yield (conversation, "all", hash(node.keys))
    if conversation is not None:
        yield (conversation, "id")
    else:
        yield (conversation, "orders", hash(node.orders[:_SAME_ORDERS_CHARS]))
        if len(node.keys) == 1:
            yield (conversation, "first", hash(node.orders))
    for key in {*node.keys[-_NEWEST_MESSAGES:], *node.reply_keys}:
        yield (conversation, "new", key)


def _reply_key(request: LoggedRequest) -> Iterator[int]:
    if request.reply is not None:
        yield loose_key(as_assistant(request.reply))
    elif content := content_of_reply(request):
        yield loose_key({"role": "assistant", "content": content})


def _num_answers(later: Node[Any], start: int) -> int:
    messages = (later.request.messages or ())[-len(later.keys) :]
    return sum(message.get("role") == "assistant" for message in messages[start:])


def _may_continue(earlier: Node[Any], later: Node[Any], length: int) -> bool:
    """The orders are alike, and what follows is not the answer to somebody else's question."""
    if not _has_same_orders(earlier, later):
        return False
    if earlier.request.conversation_id is not None or len(earlier.keys) > _NEWEST_MESSAGES:
        return True
    messages = later.request.messages or ()
    echo = messages[len(messages) - len(later.keys) + length]
    if echo.get("role") != "assistant":
        return True
    matches = reply_matches(earlier.request, echo)
    return matches is not False or is_similar(_answer(earlier), content_text(echo))


def _answer(node: Node[Any]) -> str:
    reply = node.request.reply
    return content_text(reply) if reply is not None else node.request.reply_text or ""


def _likeness(earlier: Node[Any], later: Node[Any], length: int) -> tuple[bool, bool, bool, int]:
    """Of requests with the same messages: the one answered so, with these orders and tools, last."""
    messages = later.request.messages or ()
    echo = messages[len(messages) - len(later.keys) + length]
    is_answer = reply_matches(earlier.request, echo) is True
    tools = [[tool_name(t) for t in n.request.tools or ()] for n in (earlier, later)]
    return is_answer, earlier.orders == later.orders, tools[0] == tools[1], earlier.number


def _has_same_orders(earlier: Node[Any], later: Node[Any]) -> bool:
    """Say whether one agent may have sent both: the system texts are alike."""
    old, new = earlier.orders, later.orders
    if old == new or not old or not new:
        return bool(old) == bool(new)
    if is_similar(old, new, share=_SAME_ORDERS_SHARE):
        return True
    return old[:_SAME_ORDERS_CHARS] == new[:_SAME_ORDERS_CHARS]


def _goes_on_from(earlier: Node[Any], later: Node[Any], *, is_sure: bool) -> bool:
    """Say whether the newest of the earlier messages, or its answer, stands before something new."""
    newest = {*earlier.keys[-1:], *earlier.reply_keys}
    at = [index for index, key in enumerate(later.keys) if key in newest]
    if at and at[0] < len(later.keys) - 1:
        return _may_continue(earlier, later, at[0] + 1)
    if is_sure:
        return _is_edited_at_end(earlier, later)
    # The newest message itself was edited: the one before it has to be there, and an answer.
    before = earlier.keys[-2:-1]
    known = [i for i, key in enumerate(later.keys) if key in before]
    messages = later.request.messages or ()
    rest = messages[len(messages) - len(later.keys) + known[-1] + 1 :] if known else ()
    return any(message.get("role") == "assistant" for message in rest)


def _is_edited_at_end(earlier: Node[Any], later: Node[Any]) -> bool:
    """Say whether the newest message stands in its old place, edited, with an answer behind it."""
    last = len(earlier.keys) - 1
    old = (earlier.request.messages or ())[-1]
    messages = (later.request.messages or ())[-len(later.keys) :]
    if len(messages) < last + 3 or messages[last].get("role") != old.get("role"):
        return False
    if reply_matches(earlier.request, messages[last + 1]) is False:
        return False
    return is_similar(content_text(old), content_text(messages[last]))


def _is_replacement(earlier: Node[Any], later: Node[Any]) -> bool:
    """Say whether the messages gave way to a few others, or the only one was edited."""
    messages, old = _body(later), _body(earlier)
    if not messages or not old:
        return False
    is_longer = later.orders != earlier.orders and later.orders.startswith(earlier.orders)
    if earlier.orders != later.orders and SUMMARY_WORDS.search(later.orders):
        return True
    if is_longer and len(old) >= 3:
        return True
    is_answered = len(messages) > len(old) and messages[len(old)].get("role") == "assistant"
    pairs = zip(old, messages, strict=False)
    if is_answered and all(
        is_similar(content_text(a), content_text(b), share=0.3) for a, b in pairs
    ):
        return True
    is_fewer = len(messages) <= len(old) + 1 and later.keys[0] not in earlier.keys
    is_history = len(old) >= 3 or _are_versions(old[0], messages[0])
    return len(messages) >= 2 and is_fewer and is_history


def _are_versions(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return old.get("role") == new.get("role") and is_same_block(
        content_text(new)[:_VERSION_CHARS], content_text(old)
    )


def _holds(left: str, right: str, others: Sequence[dict[str, Any]]) -> bool:
    """Say whether one text is the other with a block: telling by itself, or by the block."""
    shorter, longer = sorted((left, right), key=len)
    if not shorter or shorter not in longer:
        return False
    block = longer.replace(shorter, "", 1)
    is_elsewhere = any(is_same_block(block, content_text(message)) for message in others)
    return len(shorter) >= _TELLING_CHARS or is_elsewhere


def _has_summary(node: Node[Any]) -> bool:
    texts = [node.orders, *(content_text(message) for message in _body(node)[:2])]
    return any(SUMMARY_WORDS.search(text) for text in texts)


def _body(node: Node[Any]) -> tuple[dict[str, Any], ...]:
    messages = node.request.messages or ()
    return messages[len(messages) - len(node.keys) :]
