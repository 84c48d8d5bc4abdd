"""What the data path and the steering say to each other about one turn.

    bytes ──connection──▶ Call ──Steering.admit──▶ Turn ──Steering.place──▶ SourceId ──▶ upstream
                                                    ▲                                      │
            TurnObservers ◀── placed, first_byte, failed, ended ◀──────────────────────────┘

The data path owns sockets and clock and knows no policy; the steering owns sessions, salts, loads and
the index and never sleeps. Observers (metrics, decision log, health, sessions API) only look on: none
may raise or wait. Every `now` is `time.monotonic()` of the gateway's process; the decision log alone
converts to Unix time.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from warmturn.errors import Refused
from warmturn.fleet import IndexHashes, SourceId
from warmturn.router import Decision, Placement
from warmturn.session.identity import SessionIdentity

__all__ = [
    "Api",
    "Call",
    "CallFields",
    "Ending",
    "Outcome",
    "Refused",
    "Steering",
    "Turn",
    "TurnObserver",
    "Usage",
]

_ABSENT = msgspec.Raw(b"")


class Api(StrEnum):
    """Which protocol a path speaks; what is in none of them is relayed by allow-list only."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"
    """Anthropic's `/v1/messages`."""
    OTHER = "other"


class CallFields(msgspec.Struct, frozen=True):
    """Top-level fields of a body that the gateway looks at; empty `Raw` where absent.

    A `Raw` is a view into the body: it lives no longer than that.
    """

    model: str | None = None
    stream: bool | None = None
    user: msgspec.Raw = _ABSENT
    stream_options: msgspec.Raw = _ABSENT
    cache_salt: msgspec.Raw = _ABSENT
    kv_transfer_params: msgspec.Raw = _ABSENT
    ec_transfer_params: msgspec.Raw = _ABSENT
    bootstrap_host: msgspec.Raw = _ABSENT
    bootstrap_port: msgspec.Raw = _ABSENT
    bootstrap_room: msgspec.Raw = _ABSENT
    data_parallel_rank: msgspec.Raw = _ABSENT
    routed_dp_rank: msgspec.Raw = _ABSENT
    disagg_prefill_dp_rank: msgspec.Raw = _ABSENT
    prompt_cache_key: msgspec.Raw = _ABSENT
    previous_response_id: msgspec.Raw = _ABSENT
    conversation: msgspec.Raw = _ABSENT
    metadata: msgspec.Raw = _ABSENT
    session_id: msgspec.Raw = _ABSENT
    session_params: msgspec.Raw = _ABSENT
    vllm_xargs: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    chat_template_kwargs: msgspec.Raw = _ABSENT
    add_generation_prompt: msgspec.Raw = _ABSENT
    continue_final_message: msgspec.Raw = _ABSENT


class Call(msgspec.Struct, frozen=True):
    """One inference request as it was read, complete with its body."""

    api: Api
    path: str
    """As sent, query included."""
    headers: Mapping[str, str]
    """Lower-case names; of a repeated header the first value."""
    body: bytes
    """Verbatim."""
    fields: CallFields
    received_s: float


@dataclass(slots=True)
class Turn:
    """One call on its way: made by `admit`, carried by the data path, read by the observers."""

    call: Call
    session: SessionIdentity
    model: str | None
    """What the replica calls it, after aliases; None leaves the body's as it is."""
    salt: str | None
    """Overwrites the client's; None: no identity is configured."""
    prompt_tokens: int
    """Counted where a tokenizer is at hand, else estimated from bytes."""
    number: int
    """Calls this gateway admitted before."""
    is_first: bool
    """No answer stands in its messages."""
    wants_reply: bool = False
    """The data path is to keep the answer's bytes (bounded) for `Outcome.reply`."""
    chain: IndexHashes | None = None
    """The prompt's block hashes where it was told in blocks; of chunks of bytes likewise."""
    placement: Placement | None = None
    """The last one: source, reason and prediction at once; views and prices when they are read."""
    tried: list[SourceId] = field(default_factory=list)
    sent_s: float | None = None
    first_byte_s: float | None = None

    @property
    def decision(self) -> Decision | None:
        """The last one made for it, with all reasons; makes them where nobody has asked yet."""
        return None if self.placement is None else self.placement.decision

    @property
    def source(self) -> SourceId | None:
        """Where it is now."""
        return self.tried[-1] if self.tried else None


class Ending(StrEnum):
    """How an exchange with the client ended."""

    COMPLETE = "complete"
    CLIENT_GONE = "client_gone"
    CUT = "cut"
    """The replica failed after the first byte: an error event, or a closed connection."""
    REFUSED = "refused"
    """Nobody could take it, or it was refused before it was placed."""


class Usage(msgspec.Struct, frozen=True):
    """What the replica says it did; None where it does not say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The end of one turn."""

    ending: Ending
    status: int
    """Of the answer that the client got."""
    usage: Usage | None = None
    reply: bytes | None = None
    """The answer's body as relayed, where the turn wants it and it was not too long."""
    response_id: str | None = None
    """The answer's `id`, where it was seen."""


class Steering(Protocol):
    """Decides for the data path. All calls return at once; only `admit` may ask to be waited for."""

    def admit(self, call: Call, now: float) -> Turn | Awaitable[Turn]:
        """Say whose call it is and with which salt; an awaitable while a thread tokenises.

        Raises `Refused`: 401 without identity, 404 for an unknown model, 429 over the limit.
        """
        ...

    def place(self, turn: Turn, now: float) -> SourceId:
        """Choose among the sources not yet in `turn.tried`; appends to it and sets the decision.

        Raises `Refused` with 503 where nobody is left.
        """
        ...

    def response_headers(self, turn: Turn) -> bytes:
        """Return header lines for the answer, each ended by CRLF: replica, id source, prediction."""
        ...

    def sent(self, turn: Turn, now: float) -> None:
        """The request's bytes are on their way to `turn.source`."""
        ...

    def first_byte(self, turn: Turn, now: float) -> None:
        """The first body byte of the answer came: prefill is done there."""
        ...

    def failed(self, turn: Turn, why: str, now: float) -> bool:
        """The try at `turn.source` failed before its first byte; say whether to try another.

        `why`: `connect`, `closed`, `timeout`, or `status 503` and its like.
        """
        ...

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """The turn is over; called exactly once for each turn that `admit` returned."""
        ...


class TurnObserver(Protocol):
    """Looks on. Called by the steering, in this order; must be quick, must not raise."""

    def placed(self, turn: Turn, now: float) -> None:
        """`turn.placement` was made for `turn.source`; its `decision` costs 50 µs when first read."""
        ...

    def first_byte(self, turn: Turn, now: float) -> None:
        """`turn.first_byte_s` is set."""
        ...

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """A try failed before its first byte."""
        ...

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """The turn is over."""
        ...
