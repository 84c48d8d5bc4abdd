"""One connection to a replica: a request goes out, its answer comes in, and again."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from warmturn.errors import GarbledAnswer
from warmturn.gateway.response_reader import ResponseReader

__all__ = ["AnswerTaker", "UpstreamAddress", "UpstreamConnection"]


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """Where a replica listens, and what every request to it carries."""

    host: str
    port: int
    tls: bool = False
    path_prefix: str = ""
    """Before every path, such as `/engines/a`; no slash at its end."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to every request: the replica's API key. Never shown."""
    server_hostname: str | None = None
    """Whose certificate is expected; None: the host's."""
    ca_file: str | None = None
    """Certificates to trust; None: the system's."""
    num_ranks: int = 1
    """Data-parallel ranks behind this address; with several, each request names its own."""

    @property
    def has_credentials(self) -> bool:
        """The client's own are then kept back."""
        names = {name.lower() for name in self.headers}
        return bool(names & {"authorization", "x-api-key", "api-key"})

    @property
    def authority(self) -> str:
        """The `Host` header."""
        name = self.server_hostname or self.host
        shown = f"[{name}]" if ":" in name else name
        return shown if self.port == (443 if self.tls else 80) else f"{shown}:{self.port}"

    def head_lines(self) -> tuple[bytes, bytes]:
        """Return what stands before a request's target and what follows it: version, first lines."""
        lines = [f" HTTP/1.1\r\nhost: {self.authority}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in self.headers.items()]
        return self.path_prefix.encode(), "".join(lines).encode("latin-1")


class AnswerTaker(Protocol):
    """Whose request is under way."""

    def answer_came(self) -> None:
        """New bytes of the answer are in the connection's reader."""
        ...

    def connection_ended(self, why: str) -> None:
        """The connection is of no more use; the reader knows whether the answer is complete."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """Carries one request at a time.

    Invariants
    1. With no `taker` no bytes may come: any end the connection.
    2. It is given back only when the whole request is out, the answer is complete, nothing came
       behind it, and the replica keeps the connection.
    """

    __slots__ = (
        "_given_back",
        "_is_lost",
        "_transport",
        "idle_since_s",
        "is_reused",
        "reader",
        "taker",
    )

    def __init__(self, given_back: Callable[["UpstreamConnection"], None]) -> None:
        """`given_back` is told when the connection is free, or is lost while it was."""
        self._given_back = given_back
        self._transport: asyncio.Transport | None = None
        self._is_lost = False
        self.reader = ResponseReader()
        self.taker: AnswerTaker | None = None
        self.idle_since_s = 0.0
        self.is_reused = False
        """An answer came over it before: the replica may have just closed it."""

    def send(
        self, taker: AnswerTaker, parts: Sequence[bytes | memoryview], *, is_head: bool
    ) -> None:
        """Send a request in one go."""
        assert self.taker is None
        assert self._transport is not None
        self.taker = taker
        self.reader.start(is_head=is_head)
        self._transport.writelines(parts)

    def release(self) -> None:
        """The answer has been taken: keep the connection for the next request, or close it."""
        assert self._transport is not None
        reader = self.reader
        self.taker = None
        if (
            reader.is_complete
            and reader.keeps_alive
            and not reader.has_excess
            and not self._is_lost
            and not self._transport.get_write_buffer_size()
        ):
            self.is_reused = True
            self._given_back(self)
        else:
            self.close()

    def close(self) -> None:
        """Give the request up: the replica sees that nobody waits any more."""
        self.taker = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_usable(self) -> bool:
        """Nothing speaks against sending."""
        transport = self._transport
        return transport is not None and not self._is_lost and not transport.is_closing()

    def pause_reading(self) -> None:
        """Take no more of the answer: the client does not keep up."""
        if self._transport is not None and not self._is_lost:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if self._transport is not None and not self._is_lost:
            self._transport.resume_reading()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read, and tell who waits."""
        taker = self.taker
        if taker is None:
            self._lose()
            self.close()
            return
        try:
            self.reader.feed(data)
        except GarbledAnswer:
            self.close()
            taker.connection_ended("garbled")
            return
        taker.answer_came()

    def eof_received(self) -> None:
        """Close on this side too."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits, or leave the pool."""
        taker, self.taker = self.taker, None
        self._lose()
        if taker is not None:
            if exc is None:
                self.reader.finish()
            taker.connection_ended("closed")
        self.reader.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            if self.taker is None:
                self._given_back(self)
