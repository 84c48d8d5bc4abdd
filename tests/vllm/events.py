"""Reads a server's KV events into a fleet index: subscribe first, then ask for what was before."""

import time
from typing import Self

import zmq

from tests.vllm.servers import Server
from warmturn.fleet import FleetConsumer, FleetIndex, ReplayRequest, SourceId
from warmturn.types import ReplicaId

REPLICA = ReplicaId("a")
SOURCE = SourceId(REPLICA)
QUIET_S = 0.5
"""No batch for that long means that none is on its way: the publisher polls ten times a second."""


class EventReader:
    """One server's events, applied when `drain` is called."""

    def __init__(self, server: Server) -> None:
        self.index = FleetIndex()
        self.consumer = FleetConsumer(self.index)
        self.num_live = self.num_replayed = 0
        self._server = server
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.setsockopt(zmq.RCVHWM, 0)
        self._live.setsockopt_string(zmq.SUBSCRIBE, "kv")
        self._live.connect(server.endpoint)

    def __enter__(self) -> Self:
        time.sleep(0.3)  # a subscription has no answer
        self.answer(self.consumer.connect(SOURCE))
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.destroy(linger=0)

    def drain(self) -> None:
        """Apply what came until it is quiet."""
        while self._live.poll(QUIET_S * 1000):
            _, seq, payload = self._live.recv_multipart()
            self.num_live += 1
            received = self.consumer.receive(REPLICA, int.from_bytes(seq, "big"), payload)
            self.answer(received.replay)

    def skip(self) -> int:
        """Lose what came until it is quiet; return how many batches."""
        lost = 0
        while self._live.poll(QUIET_S * 1000):
            self._live.recv_multipart()
            lost += 1
        return lost

    def answer(self, request: ReplayRequest | None) -> None:
        """Fetch what is asked for, and what is then asked for."""
        while request is not None:
            request = self._replayed(request)

    def _replayed(self, request: ReplayRequest) -> ReplayRequest | None:
        with self._context.socket(zmq.DEALER) as socket:
            socket.connect(self._server.replay_endpoint)
            socket.send_multipart([b"", request.from_seq.to_bytes(8, "big")])
            while socket.poll(5000):
                _, _, seq, payload = socket.recv_multipart()
                number = int.from_bytes(seq, "big", signed=True)
                if number == -1:
                    return self.consumer.replay_ended(request, answered=True)
                self.num_replayed += 1
                self.consumer.replayed(request, number, payload)
        return self.consumer.replay_ended(request, answered=False)
