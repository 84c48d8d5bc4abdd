"""What an operator may set: one frozen part per table of the file, each default with its reason.

Only values live here. `config_file` reads and checks them; the parts of the gateway take what they
need as plain arguments. Secrets are named (a file, an environment variable), never written.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from warmturn.gateway.limits import Limits
from warmturn.session.tenant import Anonymous

__all__ = [
    "AdminPart",
    "AdmissionPart",
    "Config",
    "DecisionLogPart",
    "HealthPart",
    "IdentityPart",
    "ListenPart",
    "ModelPart",
    "ReplicaPart",
    "RoutingPart",
]

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
PolicyName: TypeAlias = Literal[
    "price", "affinity", "prefix", "linear", "least_load", "round_robin"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenPart:
    """Where clients come in."""

    host: str = "127.0.0.1"
    """Loopback: whoever wants more says so."""
    port: Port = 8000
    """What OpenAI-compatible servers use; 0 takes a free one."""
    allowed_paths: tuple[str, ...] = ()
    """Other paths to relay as they are, such as `/tokenize`; an engine's admin paths are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPart:
    """Health, metrics, sessions API and changes, on a port of their own."""

    host: str = "127.0.0.1"
    """Loopback; another address is refused without a token."""
    port: Port = 8001
    """Beside the clients' port; 0 takes a free one."""
    token_file: Path | None = None
    """File whose first line is the bearer token for everything but liveness. Absent: none is
    asked for, which only loopback allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPart:
    """One engine that people already run."""

    url: Name
    """`http://` or `https://HOST:PORT`, without `/v1`. `dns+http://HOST:PORT`: one replica per
    address of the name, looked up again while running."""
    name: Name | None = None
    """What ranks it: equal on every gateway. Absent: `HOST:PORT`."""
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """Relative strength: twice the weight takes twice the sessions. Equal unless told."""
    models: tuple[str, ...] = ()
    """What it serves. Absent: its own `/v1/models` is asked."""
    events: str | None = None
    """ZMQ endpoint of its KV events; a `*` stands for its host. Absent: what it holds is guessed
    from what was routed there."""
    replay: str | None = None
    """ZMQ endpoint that repeats missed events."""
    num_ranks: Count = 1
    """Data-parallel ranks that publish, on consecutive ports. One is every engine's default."""
    block_size: Count | None = None
    """Tokens per block. Absent: its `/metrics` is asked."""
    capacity_tokens: Count | None = None
    """Tokens its pool holds. Absent: its `/metrics` is asked."""
    api_key_env: str | None = None
    """Environment variable with the key the engine asks for; the client's is not sent then."""
    api_key_file: Path | None = None
    """File whose first line is that key."""
    ca_file: Path | None = None
    """Certificates to trust for `https`. Absent: the system's."""
    server_hostname: str | None = None
    """Name its certificate is for. Absent: the URL's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """One model by the name its replicas use."""

    name: Name
    """As the replicas call it."""
    aliases: tuple[str, ...] = ()
    """What clients may call it besides."""
    tokenizer: Path | None = None
    """Directory with `tokenizer.json` and the chat template. Absent: prompts are compared by
    hashed chunks of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPart:
    """Which replica takes a turn."""

    policy: PolicyName = "price"
    """One price in milliseconds; without any index or rates it places like `affinity`."""
    shadow: PolicyName | None = None
    """Also asked, never obeyed: what it would have done is counted."""
    session_header: str | None = None
    """A header of your own that names the session, before the field's usual ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityPart:
    """Whose cache a request may see. Without `header`: one tenant, no salt."""

    header: str | None = None
    """Header that carries the authenticated caller, such as `authorization`."""
    scheme: str | None = None
    """Word before it, such as `bearer`."""
    salt_key_file: Path | None = None
    """Secret of at least 16 bytes that salts are made with: the same on every gateway. Absent: a
    random one, good for one gateway until it restarts."""
    anonymous: Anonymous = Anonymous.REFUSE
    """Callers without identity; refusing leaks nothing."""
    per_user: bool = False
    """Keep the users (`user` in the body) of one tenant apart too. Off: tenants share among
    themselves, as they trust themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPart:
    """How much may be in flight; beyond it clients get 429 and are told when to come again."""

    max_running: Count = 4096
    """Calls in flight on the whole gateway: 64 replicas of vLLM's default batch of 64 or so; a
    bound that protects the gateway's memory rather than the replicas."""
    max_running_per_replica: Count = 256
    """Times the replicas that are up: what vLLM runs at once by default."""
    retry_after_s: Seconds = 1.0
    """Within a second a batch of chats has moved on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPart:
    """When a replica counts as gone, and how it comes back. Traffic and probes both tell."""

    interval_s: Seconds = 2.0
    """Between two probes of one replica: noticed within seconds, at half a request per second."""
    timeout_s: Seconds = 2.0
    """For one probe; an engine in a long step answers from another thread."""
    path: Annotated[str, Meta(pattern="^/")] = "/health"
    """What vLLM, SGLang, llama.cpp and the embedded engine have."""
    probe_failures: Count = 2
    """In a row before it is down: one may be a lost packet."""
    traffic_failures: Count = 3
    """In a row before the breaker opens. A refused connection opens it at once."""
    open_s: Seconds = 1.0
    """First rest of an open breaker; each further one is twice as long."""
    max_open_s: Seconds = 30.0
    """The longest rest: a replica that comes back is found within half a minute."""
    metrics_interval_s: Seconds = 5.0
    """Between two looks at `/metrics`: loads are our own account, capacity hardly changes."""
    dns_interval_s: Seconds = 10.0
    """Between two look-ups of `dns+` names: what cluster DNS caches for, at most."""
    drain_s: Seconds = 60.0
    """While a draining replica hands its sessions over: a chat's usual think time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLogPart:
    """A file with every decision, for `warmturn replay`. It holds no text and no salts."""

    file: Path | None = None
    """Absent: no log is written."""
    max_bytes: Annotated[int, Meta(ge=4096)] = 64 * 2**20
    """Of one file before the next begins: some 200,000 decisions."""
    num_files: Count = 4
    """Kept besides the one being written; older ones are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole file. Every part may be absent."""

    listen: ListenPart = field(default_factory=ListenPart)
    admin: AdminPart = field(default_factory=AdminPart)
    replicas: tuple[ReplicaPart, ...] = ()
    models: tuple[ModelPart, ...] = ()
    routing: RoutingPart = field(default_factory=RoutingPart)
    identity: IdentityPart = field(default_factory=IdentityPart)
    admission: AdmissionPart = field(default_factory=AdmissionPart)
    limits: Limits = field(default_factory=Limits)
    health: HealthPart = field(default_factory=HealthPart)
    decision_log: DecisionLogPart = field(default_factory=DecisionLogPart)
