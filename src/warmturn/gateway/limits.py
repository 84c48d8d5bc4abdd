"""How much clients may take and how long anything may last; every bound of the data path."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on memory, connections and time. Each default says where it comes from."""

    max_head_bytes: int = 65_536
    """Request line and headers; uvicorn's bound."""
    max_body_bytes: int = 16 * 2**20
    """One request body; the embedded engine's default."""
    max_held_bytes: int = 2**30
    """All request bodies at once: 64 of the largest. Beyond it, 503."""
    max_connections: int = 4096
    """Of clients; four times the requests that vLLM runs at most by default."""
    max_idle_upstream: int = 256
    """Kept connections per replica; vLLM's default of sequences in one step."""
    max_reply_bytes: int = 2**20
    """Of an answer kept for the steering; longer ones are relayed, not kept."""
    head_timeout_s: float = 15.0
    """From the first byte of a head to its end; slower is a slow-loris. Between nginx (60) and
    Apache's first step (10-20)."""
    body_timeout_s: float = 60.0
    """From the head to the end of the body; the embedded engine's."""
    keep_alive_s: float = 75.0
    """Without a request on a kept connection; nginx's."""
    connect_timeout_s: float = 5.0
    """To a replica, TLS included."""
    first_byte_timeout_s: float = 600.0
    """From sending to the answer's first byte: queue and prefill; the OpenAI client's own limit."""
    stream_timeout_s: float = 120.0
    """Between two pieces of an answer."""
    write_timeout_s: float = 60.0
    """For a client that does not take its answer; the embedded engine's."""
    upstream_idle_s: float = 4.0
    """A kept connection to a replica is closed after it: uvicorn closes its side after 5."""
    linger_s: float = 2.0
    """How long the rest of a refused upload is swallowed, so that the refusal can be read."""
