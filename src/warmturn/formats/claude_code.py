"""Session files of Claude Code (`~/.claude/projects/…/*.jsonl`).

Lines form a tree by `parentUuid`; a request's history is the path from its answer to the
root. One answer is several lines that share a message id. Side chains (sub-agents) are
conversations of their own, and so is a branch whose parent is not in the file. The files
hold neither system prompt nor tools: level `messages`.

A session is read whole before its requests come out, since branches may join late; memory
grows with the session, not with the number of sessions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.anthropic import message_parts, openai_messages
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, collected, joined
from warmturn.formats.record import BadLine, LoggedRequest

__all__ = ["CLAUDE_CODE"]

MAX_OPEN_SESSIONS = 8
"""Sessions mixed in one file; when another begins, the oldest is taken as complete."""


@dataclass(slots=True)
class _Answer:
    """One message of the model, put together from its lines."""

    entry: Entry
    message: JsonObject
    parent: str | None
    end_s: float | None
    call_ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    """One line of the tree: what the user or a tool said, part of an answer, or only a link."""

    parent: str | None
    said: tuple[JsonObject, ...] = ()
    answer: _Answer | None = None
    timestamp_s: float | None = None


@dataclass(slots=True)
class _Branch:
    """What the lines from a root to `tip` say. `done` has the ids of lines and answers in it."""

    root: str | None = None
    missing_parent: str | None = None
    tip: str | None = None
    messages: list[JsonObject] = field(default_factory=list)
    done: set[int] = field(default_factory=set)


class _Session:
    """The tree of one session. Lines may come in any order."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._nodes: dict[str, _Node] = {}
        self._answers: dict[str, _Answer] = {}
        self._results: dict[str, str] = {}  # id of a tool call -> line with its result
        self._branch = _Branch()

    def add(self, entry: Entry) -> None:
        record = entry.value
        uuid = record["uuid"]
        if uuid in self._nodes:
            return  # resumed sessions repeat earlier lines
        node = _Node(
            fields.text(record, "parentUuid"), timestamp_s=fields.seconds(record, "timestamp")
        )
        message = fields.mapping(record, "message")
        if message is not None and record.get("type") in ("user", "assistant"):
            fields.messages([message], name="message")
            if record["type"] == "assistant":
                node.answer = self._answer(entry, node, message)
            else:
                node.said = openai_messages([message])
                for said in node.said:
                    if isinstance(said.get("tool_call_id"), str):
                        self._results.setdefault(said["tool_call_id"], uuid)
        self._nodes[uuid] = node

    def requests(self) -> Iterator[LoggedRequest | BadLine]:
        """Return one request for each answer, in the order of the file."""
        for answer in self._answers.values():
            try:
                yield self._request(answer)
            except InvalidInput as error:
                yield answer.entry.bad(str(error))

    def _answer(self, entry: Entry, node: _Node, message: JsonObject) -> _Answer:
        """Start an answer, or add this line's blocks to the one with the same message id."""
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        answer = self._answers.setdefault(
            fields.text(message, "id") or entry.value["uuid"],
            _Answer(entry, {**message, "content": []}, node.parent, node.timestamp_s),
        )
        known = answer.message["content"]
        known += [block for block in blocks if block not in known]
        answer.message.update({**message, "content": known})
        answer.end_s = node.timestamp_s
        answer.call_ids = [b["id"] for b in known if isinstance(b.get("id"), str)]
        return answer

    def _request(self, answer: _Answer) -> LoggedRequest:
        branch = self._branch_to(answer.parent)
        if not branch.messages:
            raise InvalidInput("the message before this answer is not in the file")
        sent = self._nodes.get(answer.parent or "")
        parts: JsonObject = {
            "conversation_id": self._conversation_id(answer.entry.value, branch),
            "messages": tuple(branch.messages),
            "timestamp_s": sent.timestamp_s if sent else None,
            "end_s": answer.end_s,
        }
        return joined(answer.entry, parts, message_parts(answer.message), level="messages")

    def _branch_to(self, uuid: str | None) -> _Branch:
        """Return what the lines from the root to `uuid` say.

        Most answers go on where the one before was asked: that branch is grown.
        """
        steps: dict[str, _Node] = {}
        while uuid is not None and uuid != self._branch.tip and uuid in self._nodes:
            if uuid in steps:
                raise InvalidInput("the parents of this line form a circle")
            steps[uuid] = self._nodes[uuid]
            uuid = steps[uuid].parent
        path = list(steps)[::-1]
        if uuid is None or uuid != self._branch.tip:
            self._branch = _Branch(root=path[0] if path else None, missing_parent=uuid)
        for step in path:
            self._grow(self._branch, steps[step])
            self._branch.tip = step
        return self._branch

    def _grow(self, branch: _Branch, node: _Node) -> None:
        """Add what a line says: an answer once, and its tool results after it.

        Results of parallel calls hang on different lines of one answer: most of them are
        not on the path and are fetched by the id of their call.
        """
        if id(node.answer or node) in branch.done:
            return
        branch.done.add(id(node.answer or node))
        if node.answer is None:
            branch.messages += node.said
            return
        branch.messages += openai_messages([node.answer.message])
        for call_id in node.answer.call_ids:
            result = self._nodes.get(self._results.get(call_id, ""))
            if result is not None and id(result) not in branch.done:
                branch.done.add(id(result))
                branch.messages += result.said

    def _conversation_id(self, record: JsonObject, branch: _Branch) -> str:
        side = fields.text(record, "agentId")
        if side is None and record.get("isSidechain") is True:
            side = branch.root
        side = side or branch.missing_parent
        return self._id if side is None else f"{self._id}/{side}"


class _Sessions:
    """Reads the lines of one file, session by session."""

    def __init__(self) -> None:
        self._open: dict[str, _Session] = {}

    def add(self, entry: Entry) -> Iterable[LoggedRequest | BadLine]:
        record = entry.value
        if not isinstance(record.get("uuid"), str):
            return ()  # titles, snapshots and queues are not part of the tree
        session_id = fields.text(record, "sessionId") or entry.source
        session = self._open.get(session_id)
        if session is None:
            session = self._open[session_id] = _Session(session_id)
        session.add(entry)
        if len(self._open) <= MAX_OPEN_SESSIONS:
            return ()
        return self._open.pop(next(iter(self._open))).requests()

    def finish(self) -> Iterator[LoggedRequest | BadLine]:
        for session in self._open.values():
            yield from session.requests()


def _recognises(record: JsonObject) -> bool:
    return (
        "parentUuid" in record
        and isinstance(record.get("uuid"), str)
        and (record.get("type") in ("user", "assistant", "system", "attachment", "progress"))
    )


CLAUDE_CODE = Format(
    name="claude-code",
    about="Claude Code session files",
    level="messages",
    recognises=_recognises,
    read=collected(_Sessions),
)
