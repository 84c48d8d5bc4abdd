"""Which replicas there are, and whether each may be sent anything.

Every member has a task that probes it, reads its metrics, and asks for its models once it is well;
the pure `Health` judges, traffic included, and what it says is told to the steering. Names with a
`dns+` URL have one member per address, looked up again and again.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from warmturn.errors import InvalidInput
from warmturn.gateway.config import HealthPart, ReplicaPart
from warmturn.gateway.health import Health, HealthRule, ReplicaState
from warmturn.gateway.metrics_reading import ReplicaMetrics
from warmturn.gateway.probing import ReplicaClient
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.replica_urls import api_key_of, is_by_name, named, read_url, resolved
from warmturn.gateway.turns import Ending, Outcome, Turn
from warmturn.gateway.upstream import UpstreamAddress
from warmturn.types import ReplicaId

__all__ = ["Fleet", "Member", "Membership"]

logger = logging.getLogger(__name__)


class Fleet(Protocol):
    """Who is told of members: the gateway's steering and pools together."""

    def join(self, spec: ReplicaSpec, address: UpstreamAddress, now: float) -> None:
        """A replica is there; it is not alive until told so."""
        ...

    def leave(self, replica: ReplicaId, now: float) -> None:
        """A replica is gone for good."""
        ...

    def set_alive(self, replica: ReplicaId, is_alive: bool, why: str, now: float) -> None:
        """It may be sent requests, or may not."""
        ...

    def set_draining(self, replica: ReplicaId, is_draining: bool, now: float) -> None:
        """It hands its sessions over, or takes new ones again."""
        ...

    def observe_metrics(self, replica: ReplicaId, metrics: ReplicaMetrics, now: float) -> None:
        """What its metrics say."""
        ...


@dataclass(slots=True)
class Member:
    """One replica as configured, and what is known of it."""

    part: ReplicaPart
    health: Health
    models: tuple[str, ...]
    """Configured, or as it said itself; empty while unknown."""
    address: UpstreamAddress
    metrics: ReplicaMetrics | None = None
    drain_start_s: float | None = None
    is_leaving: bool = False
    """Removed as soon as it has handed its sessions over."""
    has_joined: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def replica(self) -> ReplicaId:
        """Its name."""
        assert self.part.name is not None
        return ReplicaId(self.part.name)

    @property
    def spec(self) -> ReplicaSpec:
        """What the steering needs to know of it."""
        part, told = self.part, self.metrics or ReplicaMetrics()
        return ReplicaSpec(
            self.replica,
            models=self.models,
            weight=part.weight,
            block_size=part.block_size or told.block_size,
            capacity_tokens=part.capacity_tokens or told.capacity_tokens,
            events_endpoint=part.events,
            replay_endpoint=part.replay,
            num_ranks=part.num_ranks,
        )


class Membership:
    """The members. Also a `TurnObserver`: traffic tells of their health.

    Invariants
    1. Names are unique. 2. A member is alive for the fleet exactly while its health says so.
    """

    def __init__(
        self, fleet: Fleet, rule: HealthPart, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fleet, self._rule, self._clock = fleet, rule, clock
        self._members: dict[ReplicaId, Member] = {}
        self._by_name: list[ReplicaPart] = []
        self._dns_task: asyncio.Task[None] | None = None
        self._leavers: set[asyncio.Task[None]] = set()

    @property
    def members(self) -> Mapping[ReplicaId, Member]:
        """All of them, by name."""
        return self._members

    @property
    def num_alive(self) -> int:
        """Those that may be sent requests."""
        return sum(member.health.is_alive for member in self._members.values())

    async def start(self, parts: Iterable[ReplicaPart]) -> None:
        """Add the configured replicas, and wait for their first probes, well or not."""
        await self.reload(tuple(parts), self._rule)
        first = [asyncio.create_task(self._first_answer(m)) for m in self._members.values()]
        if first:
            await asyncio.wait(first, timeout=2 * self._rule.timeout_s)
        for task in first:
            task.cancel()
        self._dns_task = asyncio.create_task(self._look_up_again())

    async def close(self) -> None:
        """Stop asking."""
        tasks = [m.task for m in self._members.values()] + [self._dns_task, *self._leavers]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(t for t in tasks if t is not None), return_exceptions=True)

    def check(self, parts: Iterable[ReplicaPart]) -> None:
        """Raise `InvalidInput` where `reload` would; nothing is changed."""
        names: set[str | None] = set()
        for part in parts:
            if is_by_name(part):
                self._new_member(resolved(part, "127.0.0.1"))
                continue
            whole = named(part)
            if whole.name in names:
                raise InvalidInput(
                    f"two replicas are named {whole.name!r}; give one another `name`"
                )
            names.add(whole.name)
            self._new_member(whole)

    async def reload(
        self, parts: tuple[ReplicaPart, ...], rule: HealthPart
    ) -> dict[str, list[str]]:
        """Make the members those of `parts`; return the names `added`, `removed` and `changed`.

        What is equal stays untouched. Raises `InvalidInput`; then nothing was changed.
        """
        self.check(parts)
        self._rule = rule
        self._by_name = [part for part in parts if is_by_name(part)]
        wanted = [named(part) for part in parts if not is_by_name(part)]
        for part in self._by_name:
            wanted += await _parts_at(part)
        return self._become({ReplicaId(str(part.name)): part for part in wanted})

    def add(self, part: ReplicaPart) -> Member:
        """Take one more in. Raises `InvalidInput` for a name that is there, or for bad values."""
        whole = named(part)
        if is_by_name(part):
            raise InvalidInput("a name with many addresses is added by the configuration file only")
        if whole.name in self._members:
            raise InvalidInput(f"replica {whole.name!r} is there already; remove it first")
        member = self._new_member(whole)
        self._members[member.replica] = member
        member.task = asyncio.create_task(self._watch(member))
        return member

    def remove(self, name: str) -> None:
        """Drop a member at once; its sessions are placed anew. Raises `InvalidInput`."""
        member = self._member(name)
        del self._members[member.replica]
        if member.task is not None:
            member.task.cancel()
        if member.has_joined:
            self._fleet.leave(member.replica, self._clock())

    def drain(self, name: str, *, then_remove: bool = False) -> None:
        """Let a member hand its sessions over. Raises `InvalidInput` for an unknown name."""
        member, now = self._member(name), self._clock()
        member.is_leaving |= then_remove
        if member.drain_start_s is None:
            member.drain_start_s = now
            if member.has_joined:
                self._fleet.set_draining(member.replica, True, now)
        if then_remove:
            task = asyncio.create_task(self._remove_later(member))
            self._leavers.add(task)
            task.add_done_callback(self._leavers.discard)

    def undrain(self, name: str) -> None:
        """Let a member take sessions again. Raises `InvalidInput` for an unknown name."""
        member = self._member(name)
        member.drain_start_s, member.is_leaving = None, False
        if member.has_joined:
            self._fleet.set_draining(member.replica, False, self._clock())

    def placed(self, turn: Turn, now: float) -> None:
        """Being sent something says nothing of its health."""

    def first_byte(self, turn: Turn, now: float) -> None:
        """An answer came."""
        source = turn.source
        member = None if source is None else self._members.get(source.replica)
        if member is not None and member.health.answered(now):
            self._tell(member, now)

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """A try failed before its first byte."""
        self._count_failure(turn, why, now)

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """An answer that broke off counts as a failure too."""
        if outcome.ending is Ending.CUT:
            self._count_failure(turn, "broke off", now)

    def _count_failure(self, turn: Turn, why: str, now: float) -> None:
        source = turn.source
        member = None if source is None else self._members.get(source.replica)
        if member is not None and member.health.failed(why, now):
            self._tell(member, now)
            member.wake.set()

    def _member(self, name: str) -> Member:
        member = self._members.get(ReplicaId(name))
        if member is None:
            there = ", ".join(sorted(self._members)) or "none"
            raise InvalidInput(f"there is no replica {name!r}; there are: {there}")
        return member

    def _new_member(self, part: ReplicaPart) -> Member:
        url, key = read_url(part.url), api_key_of(part)
        if part.ca_file is not None and not part.ca_file.is_file():
            raise InvalidInput(f"ca_file of replica {part.url}: {part.ca_file} is no file")
        rule = self._rule
        counts = HealthRule(
            probe_failures=rule.probe_failures,
            traffic_failures=rule.traffic_failures,
            open_s=rule.open_s,
            max_open_s=rule.max_open_s,
        )
        address = UpstreamAddress(
            host=url.host,
            port=url.port,
            tls=url.tls,
            path_prefix=url.path_prefix,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            server_hostname=part.server_hostname,
            ca_file=None if part.ca_file is None else str(part.ca_file),
            num_ranks=part.num_ranks,
        )
        member = Member(part, Health(counts, now=self._clock()), part.models, address)
        _ = member.spec  # a name no header can carry is refused here
        return member

    def _become(self, wanted: Mapping[ReplicaId, ReplicaPart]) -> dict[str, list[str]]:
        changed: dict[str, list[str]] = {"added": [], "removed": [], "changed": []}
        for name, member in list(self._members.items()):
            part = wanted.get(name)
            if part is None:
                changed["removed"].append(name)
                self.remove(name)
            elif part != member.part:
                changed["changed"].append(name)
                self.remove(name)  # bindings go by name: sessions stay where they were
                self.add(part)
        for name, part in wanted.items():
            if name not in self._members:
                changed["added"].append(name)
                self.add(part)
        return changed

    def _tell(self, member: Member, now: float) -> None:
        """Tell the fleet whether the member is alive, and the log what happened."""
        health = member.health
        logger.info("replica %s is %s: %s", member.replica, health.state, health.why)
        if member.has_joined:
            self._fleet.set_alive(member.replica, health.is_alive, health.why, now)

    async def _first_answer(self, member: Member) -> None:
        while member.health.state is ReplicaState.UNKNOWN:  # noqa: ASYNC110 - start only
            await asyncio.sleep(0.02)
        while member.health.is_alive and not member.has_joined:  # noqa: ASYNC110 - start only
            await asyncio.sleep(0.02)

    async def _watch(self, member: Member) -> None:
        """Probe it for as long as it is a member."""
        part, metrics_due_s = member.part, float("-inf")
        async with ReplicaClient(
            read_url(part.url),
            api_key=api_key_of(part),
            tls=_tls_of(member.address),
            server_hostname=part.server_hostname,
            timeout_s=self._rule.timeout_s,
        ) as client:
            while True:
                failure = await client.probe(self._rule.path)
                now = self._clock()
                has_changed = member.health.probed(now, failure=failure)
                if has_changed or (failure is None and now >= metrics_due_s):
                    # Before it is said to be back: its start time tells what it still holds.
                    await self._read_metrics(member, client)
                    metrics_due_s = now + self._rule.metrics_interval_s
                if has_changed:
                    self._tell(member, now)
                if member.health.is_alive and (has_changed or not member.has_joined):
                    await self._join(member, client)
                await self._rest(member)

    async def _rest(self, member: Member) -> None:
        """Wait for the next probe; where a breaker opens, for the end of its rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rule.interval_s):
                await member.wake.wait()
        member.wake.clear()
        if member.health.rest_until_s is not None:
            await asyncio.sleep(max(0.0, member.health.rest_until_s - self._clock()))

    async def _join(self, member: Member, client: ReplicaClient) -> None:
        """Ask what it serves, and tell the fleet of it, or of its other models."""
        models = member.part.models or await client.models() or ()
        now = self._clock()
        if member.has_joined:
            if models == member.models:
                return
            self._fleet.leave(member.replica, now)
        member.models = models
        self._fleet.join(member.spec, member.address, now)
        member.has_joined = True
        if member.drain_start_s is not None:
            self._fleet.set_draining(member.replica, True, now)
        if member.metrics is not None:
            self._fleet.observe_metrics(member.replica, member.metrics, now)
        self._fleet.set_alive(member.replica, member.health.is_alive, member.health.why, now)

    async def _read_metrics(self, member: Member, client: ReplicaClient) -> None:
        metrics = await client.metrics() if member.health.is_alive else None
        if metrics is not None:
            member.metrics = metrics
            if member.has_joined:
                self._fleet.observe_metrics(member.replica, metrics, self._clock())

    async def _remove_later(self, member: Member) -> None:
        """Remove a leaving member when its sessions had time to go, or when it is down."""
        deadline = self._clock() + self._rule.drain_s
        while self._clock() < deadline and member.health.state is not ReplicaState.DOWN:  # noqa: ASYNC110
            await asyncio.sleep(min(1.0, self._rule.drain_s / 10))
        if member.is_leaving and self._members.get(member.replica) is member:
            self.remove(member.replica)

    async def _look_up_again(self) -> None:
        """Keep the members of `dns+` names equal to what the names resolve to."""
        while True:
            await asyncio.sleep(self._rule.dns_interval_s)
            for part in self._by_name:
                there = {ReplicaId(str(one.name)): one for one in await _parts_at(part)}
                if not there:
                    continue  # a failed look-up says nothing about the replicas
                suffix = f":{read_url(part.url).port}"
                mine = {n for n, m in self._members.items() if _is_from(m.part, part, suffix)}
                for name in there.keys() - mine:
                    self.add(there[name])
                for name in mine - there.keys():
                    if not self._members[name].is_leaving:
                        self.drain(name, then_remove=True)


def _is_from(member: ReplicaPart, by_name: ReplicaPart, suffix: str) -> bool:
    """Say whether a member is one address of the name."""
    address = read_url(member.url).host
    return member == resolved(by_name, address) and member.url.endswith(suffix)


async def _parts_at(part: ReplicaPart) -> list[ReplicaPart]:
    """Return one part per address that the name resolves to now; none where it does not."""
    url = read_url(part.url)
    loop = asyncio.get_running_loop()
    try:
        found: list[Any] = await loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except OSError as error:
        logger.warning("replica name %s cannot be resolved: %s", url.host, error.strerror)
        return []
    return [resolved(part, address) for address in sorted({entry[4][0] for entry in found})]


def _tls_of(address: UpstreamAddress) -> ssl.SSLContext | None:
    return ssl.create_default_context(cafile=address.ca_file) if address.tls else None
