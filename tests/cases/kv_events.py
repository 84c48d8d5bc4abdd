"""The kind `events`, which parts 3 and 4 share: batches in, overlaps and states out."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.cases.discovery import Case


def events(case: Case) -> dict[str, Any]:
    asked = {run["id"]: run["checkpoints"] for run in case.asked["runs"]}
    return {
        "runs": [
            _Run(case, run).answer([point["after_line"] for point in asked[run["id"]] or []])
            for run in case.input["runs"]
        ],
        "publishers": _publishers(case.input["publishers"]),
    }


class _Run:
    """One consumer fed with the events of a case, and one publisher that answers its replays."""

    def __init__(self, case: Case, run: dict[str, Any]) -> None:
        from warmturn.fleet import FleetConsumer, FleetIndex

        self.run, self.queries = run, case.input["queries"]
        self.polls = case.input["metrics_polls"]
        self.adapter_of_model = case.input["adapter_of_model"]
        self.lines = case.read_lines(case.input["events_file"])
        file = run["replay_file"]
        self.replay_lines = None if file is None else case.read_lines(file)
        self.index = FleetIndex()
        self.consumer = FleetConsumer(self.index)
        self.restarts: list[dict[str, Any]] = []
        self.late_lines: list[int] = []
        self.requests: list[dict[str, Any]] = []

    def answer(self, checkpoints: list[int]) -> dict[str, Any]:
        found = []
        for number, line in enumerate(self.lines, start=1):
            self._receive(number, line)
            if number in checkpoints:
                found.append({"after_line": number, "overlap": self._overlaps()})
        self.index.check()
        purged = self._purge()
        return {
            "id": self.run["id"],
            "checkpoints": found,
            "final_state": dict(self._by_name(lambda known: known.order.state.value)),
            "final_seq": dict(self._by_name(lambda known: known.order.last_seq)),
            "duplicates_dropped": sum(k.order.num_replayed_twice for k in self._announced()),
            "restarts": self.restarts,
            "late_lines": self.late_lines,
            "replay_requests": self.requests,
            "unresolved_hashes": [
                _as_json(h) for k in self._announced() for h in k.unresolved_hashes
            ],
            "decode_errors": self.consumer.num_decode_errors,
            "unknown_events": self._unknown_events(),
            "purge_from_poll": purged,
        }

    def _receive(self, number: int, line: dict[str, Any]) -> None:
        from warmturn.fleet import Arrival

        received = self.consumer.receive(line["worker"], line["seq"], _payload(line["batch"]))
        if received.arrival is Arrival.RESTARTED:
            self.restarts.append({"line": number, "worker": line["worker"]})
        if received.arrival is Arrival.LATE:
            self.late_lines.append(number)
        request = received.replay
        while request is not None:
            replica, from_seq = request.source.replica, request.from_seq
            self.requests.append({"line": number, "worker": replica, "from_seq": from_seq})
            request = self._answer(request)

    def _answer(self, request: Any) -> Any:
        """Send what the publisher's buffer holds, up to its end mark, as engines do."""
        if self.replay_lines is None:
            return self.consumer.replay_ended(request, answered=False)
        first = max(request.from_seq, self.run["replay_available_from"] or 0)
        for line in self.replay_lines:
            seq = int.from_bytes(bytes.fromhex(line["seq_hex"]), "big", signed=True)
            if line["worker"] != request.source.replica:
                continue
            if seq < 0:
                return self.consumer.replay_ended(request, answered=True)
            if seq >= first:
                self.consumer.replayed(request, seq, _payload(line["batch"]))
        return self.consumer.replay_ended(request, answered=False)

    def _overlaps(self) -> dict[str, dict[str, dict[str, int]]]:
        return {query["id"]: self._overlap(query) for query in self.queries}

    def _overlap(self, query: dict[str, Any]) -> dict[str, dict[str, int]]:
        """Return tokens per source, and per worker the best of its ranks in each tier."""
        found: dict[str, dict[str, int]] = {}
        for source in [*self._silent(), *self.consumer.sources]:
            tokens = self._tokens(query, source)
            found[str(source)] = tokens
            best = found.setdefault(source.replica, tokens)
            found[source.replica] = {tier: max(best[tier], tokens[tier]) for tier in tokens}
        return found

    def _silent(self) -> list[Any]:
        """Workers of the case that nothing came from yet: they hold nothing."""
        from warmturn.fleet import SourceId

        return [SourceId(line["worker"], _rank_of(line["batch"])) for line in self.lines]

    def _tokens(self, query: dict[str, Any], source: Any) -> dict[str, int]:
        import numpy as np

        from warmturn.blocks import ImageKey
        from warmturn.fleet import IndexScope, index_chain

        known = self.consumer.announced(source)
        if known is None or known.block_size is None:
            return {"any": 0, "device": 0, "host": 0}
        size = known.block_size
        images = [ImageKey(i["hash"], i["offset"], i["length"]) for i in query["images"]]
        scope = IndexScope(
            salt=query["cache_salt"] or None,
            adapter=self.adapter_of_model.get(query["model"]),
            images=tuple(sorted(images, key=lambda image: image.offset)),
        )
        chain = index_chain(np.array(query["token_ids"], np.int32), scope, block_size=size)
        match = self.consumer.match(chain).of(source)
        tokens = {"any": match.anywhere, "device": match.device, "host": match.host}
        return {tier: blocks * size for tier, blocks in tokens.items()}

    def _announced(self) -> list[Any]:
        return [self.consumer.announced(source) for source in self.consumer.sources]

    def _by_name(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield by `worker/rank`, and by `worker` that of its first rank."""
        for source in sorted(self.consumer.sources, reverse=True):
            known = self.consumer.announced(source)
            yield str(source), value(known)
            yield source.replica, value(known)

    def _unknown_events(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for known in self._announced():
            counts[known.source.replica] += known.unknown_events.total()
        return {worker: count for worker, count in counts.items() if count}

    def _purge(self) -> list[str]:
        from warmturn.fleet import is_asleep

        found = [p["worker"] for p in self.polls if is_asleep(p["vllm:engine_sleep_state"])]
        asleep = list(dict.fromkeys(found))
        for worker in asleep:
            self.consumer.purge(worker)
        return asleep


def _publishers(given: dict[str, Any] | None) -> dict[str, Any] | None:
    from warmturn.fleet import publisher_ports, silent_publishers

    if given is None:
        return None
    ports = {
        pod["name"]: publisher_ports(given["base_port"], pod["global_ranks"]) or []
        for pod in given["pods"]
    }
    expected = [port for of_pod in ports.values() for port in of_pod]
    silent = silent_publishers(expected, given["silent_ports"])
    return {"ports": ports, "silent_ports_reported": silent}


def _rank_of(batch: list[Any]) -> int:
    return (batch[2] if len(batch) > 2 else None) or 0


def _payload(batch: Any) -> bytes:
    """Return the batch as it travels: MessagePack, raw bytes where the case writes them in hex."""
    import msgspec

    return msgspec.msgpack.encode(_with_bytes(batch))


def _with_bytes(value: Any) -> Any:
    match value:
        case {"$bytes_hex": digits}:
            return bytes.fromhex(digits)
        case dict():
            return {key: _with_bytes(inner) for key, inner in value.items()}
        case list():
            return [_with_bytes(inner) for inner in value]
    return value


def _as_json(block_hash: bytes | int) -> Any:
    if isinstance(block_hash, bytes):
        return {"$bytes_hex": block_hash.hex()}
    return block_hash
