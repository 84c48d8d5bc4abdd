"""What a log format is: how its records are recognised, and how they become requests."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from warmturn.errors import InvalidInput
from warmturn.formats.body import JsonObject
from warmturn.formats.record import BadLine, Level, LoggedRequest, Skipped

__all__ = ["Collector", "Entry", "Format", "Item", "Reader", "collected", "joined", "one_by_one"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One record and where it stands: an object of a JSON log, a line of a text log."""

    source: str
    line: int
    value: Any

    def bad(self, reason: str) -> BadLine:
        """Return the note that this entry could not be read."""
        return BadLine(self.source, self.line, reason)


Item: TypeAlias = LoggedRequest | BadLine | Skipped
"""What becomes of a record."""

Reader: TypeAlias = Callable[[Iterable[Entry | BadLine | Skipped]], Iterator[Item]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One log format. `recognises` gets a value as `Entry.value` has it."""

    name: str
    about: str
    level: Level
    recognises: Callable[[Any], bool]
    read: Reader
    is_text: bool = False
    """Lines of text rather than JSON."""
    conversation_of: Callable[[bytes], str | None] | None = None
    """Reads the conversation's id alone, far quicker than the record; None where it cannot be had.
    Only for formats whose records stand for themselves."""


class Collector(Protocol):
    """Reads entries that only together make a request."""

    def add(self, entry: Entry) -> Iterable[LoggedRequest | BadLine]:
        """Take one more entry and return what it completes. Raises `InvalidInput`."""

    def finish(self) -> Iterable[LoggedRequest | BadLine]:
        """Return what is still open at the end of the log."""


def one_by_one(convert: Callable[[Entry], Iterable[LoggedRequest]]) -> Reader:
    """Return a reader for a format in which every record stands for itself."""

    def read(entries: Iterable[Entry | BadLine | Skipped]) -> Iterator[Item]:
        for entry in entries:
            yield from _converted(convert, entry)

    return read


def collected(new: Callable[[], Collector]) -> Reader:
    """Return a reader for a format in which several records make a request."""

    def read(entries: Iterable[Entry | BadLine | Skipped]) -> Iterator[Item]:
        collector = new()
        for entry in entries:
            yield from _converted(collector.add, entry)
        yield from collector.finish()

    return read


def joined(entry: Entry, *parts: JsonObject, level: Level = "full") -> LoggedRequest:
    """Return the request that `parts`, fields of `LoggedRequest` by name, make together.

    Where two parts have a field, the first counts. Raises `InvalidInput` without a prompt.
    """
    fields: JsonObject = {}
    for part in reversed(parts):
        fields.update({name: value for name, value in part.items() if value is not None})
    if not fields.keys() & {"messages", "prompt_text", "prompt_token_ids"}:
        raise InvalidInput(
            "this record has no prompt: neither messages, nor prompt, nor prompt_token_ids; "
            "log the request beside its response"
        )
    return LoggedRequest(source=entry.source, line=entry.line, level=level, **fields)


def _converted(
    convert: Callable[[Entry], Iterable[LoggedRequest | BadLine]], entry: Entry | BadLine | Skipped
) -> Iterator[Item]:
    if not isinstance(entry, Entry):
        yield entry
        return
    try:
        yield from convert(entry)
    except InvalidInput as error:
        yield entry.bad(str(error))
