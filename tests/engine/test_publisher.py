import logging
import os
import socket
import stat
import threading
import time

import numpy as np
import pytest
import zmq

from warmturn.cache.events import AllBlocksCleared, BlockStored, decode_batch
from warmturn.engine.publisher import EventPublisher, _ReplayBuffer, _Sent, binds
from warmturn.errors import InvalidInput
from warmturn.types import BlockHash


class Peers:
    """Sockets of the other side, closed when the test ends."""

    def __init__(self):
        self.context = zmq.Context()
        self.sockets = []

    def socket(self, kind):
        self.sockets.append(self.context.socket(kind))
        self.sockets[-1].rcvtimeo = 10_000
        return self.sockets[-1]


@pytest.fixture
def peers():
    peers = Peers()
    yield peers
    peers.context.destroy(linger=0)


@pytest.fixture
def ipc(tmp_path):
    return f"ipc://{tmp_path}/kv.sock"


@pytest.fixture
def replay_ipc(tmp_path):
    return f"ipc://{tmp_path}/kv-replay.sock"


def stored(number):
    block_hash = BlockHash(number.to_bytes(32, "big"))
    return BlockStored((block_hash,), None, np.array([number, number], np.int32), 2)


def numbers(payload):
    return [int(event.token_ids[0]) for event in decode_batch(payload).events]


def subscriber(peers, endpoint, *, topic="", bind=False):
    socket = peers.socket(zmq.SUB)
    socket.subscribe(topic)
    if bind:
        socket.bind(endpoint)
    else:
        socket.connect(endpoint)
    return socket


def synchronised(publisher, socket):
    """Publish clears until one arrives: only then is the subscription in place."""
    deadline = time.monotonic() + 10
    while not socket.poll(20):
        assert time.monotonic() < deadline, "no subscription"
        publisher.publish([AllBlocksCleared()])
    while socket.poll(50):
        frames = socket.recv_multipart()
    return int.from_bytes(frames[1], "big")


def replayed(peers, endpoint, first):
    socket = peers.socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send_multipart([b"", first.to_bytes(8, "big")])
    answers = []
    while True:
        answers.append(socket.recv_multipart())
        if answers[-1][2] == b"\xff" * 8:
            return answers


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)


def test_a_subscriber_gets_topic_number_and_payload(peers, ipc):
    with EventPublisher(ipc, topic="kv@smol", dp_rank=3) as publisher:
        socket = subscriber(peers, ipc, topic="kv@smol")
        last = synchronised(publisher, socket)
        before = time.time()
        publisher.publish([stored(7), stored(8)])
        topic, sequence, payload = socket.recv_multipart()
    assert topic == b"kv@smol"
    assert int.from_bytes(sequence, "big") == last + 1
    assert numbers(payload) == [7, 8]
    batch = decode_batch(payload)
    assert batch.dp_rank == 3
    assert before <= batch.timestamp_s <= time.time()
    assert batch.events[0].block_hashes == (7,)


def test_full_hashes_are_published_on_request(peers, ipc):
    with EventPublisher(ipc, int_hashes=False) as publisher:
        socket = subscriber(peers, ipc)
        synchronised(publisher, socket)
        publisher.publish([stored(7)])
        (event,) = decode_batch(socket.recv_multipart()[2]).events
    assert event.block_hashes == ((7).to_bytes(32, "big"),)


def test_replay_gives_what_is_buffered_from_a_number_on_and_an_end_mark(peers, ipc, replay_ipc):
    with EventPublisher(ipc, replay_endpoint=replay_ipc, topic="t") as publisher:
        for number in range(5):
            publisher.publish([stored(number)])
        *batches, end = replayed(peers, replay_ipc, 3)
        everything = replayed(peers, replay_ipc, 0)
        nothing = replayed(peers, replay_ipc, 5)
    assert [frames[:2] for frames in batches] == [[b"", b"t"]] * 2
    assert [int.from_bytes(frames[2], "big") for frames in batches] == [3, 4]
    assert [numbers(frames[3]) for frames in batches] == [[3], [4]]
    assert end == [b"", b"", b"\xff" * 8, b""]
    assert len(everything) == 6
    assert nothing == [end]


def test_a_whole_buffer_of_batches_fits_into_one_replay(peers, ipc, replay_ipc):
    """ZMQ's own default would silently drop what exceeds 1,000 messages for a slow reader."""
    with EventPublisher(ipc, replay_endpoint=replay_ipc, buffer_batches=4_000) as publisher:
        for number in range(4_500):
            publisher.publish([stored(number)] * 5)
        socket = peers.socket(zmq.DEALER)
        socket.rcvhwm = 1
        socket.connect(replay_ipc)
        wait_until(lambda: not publisher._queue)
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        time.sleep(0.5)  # all answers are on their way before the first is read
        sequences = [int.from_bytes(socket.recv_multipart()[2], "big") for _ in range(4_000)]
    assert sequences == list(range(500, 4_500))


@pytest.mark.parametrize(
    "request_frames", [[b""], [b"", b"123"], [b"x", b"\0" * 8], [b"", b"", b""]]
)
def test_a_malformed_replay_request_is_ignored_and_the_next_answered(
    peers, ipc, replay_ipc, request_frames, caplog
):
    with EventPublisher(ipc, replay_endpoint=replay_ipc) as publisher:
        publisher.publish([stored(1)])
        socket = peers.socket(zmq.DEALER)
        socket.connect(replay_ipc)
        socket.send_multipart(request_frames)
        wait_until(lambda: "was ignored" in caplog.text)
        assert len(replayed(peers, replay_ipc, 0)) == 2


def test_sockets_are_the_owners_alone_and_gone_afterwards(tmp_path, ipc, replay_ipc):
    with EventPublisher(ipc, replay_endpoint=replay_ipc):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"kv.sock": 0o600, "kv-replay.sock": 0o600}
    assert list(tmp_path.iterdir()) == []


def test_the_process_keeps_its_umask(ipc):
    before = os.umask(0o022)
    try:
        EventPublisher(ipc).close()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_restarted_publisher_begins_at_0_again(peers, ipc, replay_ipc):
    for _ in range(2):
        with EventPublisher(ipc, replay_endpoint=replay_ipc) as publisher:
            publisher.publish([stored(9)])
            first, _ = replayed(peers, replay_ipc, 0)
            assert int.from_bytes(first[2], "big") == 0


def test_closing_sends_what_is_queued_and_ends_the_thread(peers, ipc):
    publisher = EventPublisher(ipc)
    socket = subscriber(peers, ipc)
    last = synchronised(publisher, socket)
    long = BlockStored((BlockHash(bytes(32)),), None, np.full(20_000, 2**31 - 1, np.int32), 20_000)
    for _ in range(100):  # 10 MB
        publisher.publish([long])
    publisher.close()
    received = [int.from_bytes(socket.recv_multipart()[1], "big") for _ in range(100)]
    assert received == list(range(last + 1, last + 101))
    assert "kv-event-publisher" not in {thread.name for thread in threading.enumerate()}


def test_closing_twice_is_closing_once_and_later_events_are_counted_as_dropped(ipc):
    publisher = EventPublisher(ipc)
    publisher.close()
    publisher.close()
    publisher.publish([stored(1)])
    assert publisher.num_dropped == 1


def test_a_full_queue_drops_counts_and_leaves_a_gap_in_the_numbers(peers, ipc, replay_ipc):
    with EventPublisher(ipc, replay_endpoint=replay_ipc, queue_batches=2) as publisher:
        stalled = threading.Event()
        send = publisher._send_queued
        publisher._send_queued = lambda: (stalled.wait(), send())
        for number in range(5):
            publisher.publish([stored(number)])
        assert publisher.num_dropped == 3
        stalled.set()
        wait_until(lambda: not publisher._queue)
        publisher.publish([stored(5)])
        *batches, _ = replayed(peers, replay_ipc, 0)
    assert [int.from_bytes(frames[2], "big") for frames in batches] == [0, 1, 5]


def test_publishing_never_waits_for_a_subscriber_that_does_not_read(peers, ipc):
    with EventPublisher(ipc) as publisher:
        socket = subscriber(peers, ipc)
        synchronised(publisher, socket)
        slowest_s = 0.0
        for number in range(2_000):
            start = time.perf_counter()
            publisher.publish([stored(number)])
            slowest_s = max(slowest_s, time.perf_counter() - start)
    assert slowest_s < 5.0  # one that waits would never return; a busy machine may pause us


def test_a_broken_event_is_dropped_and_the_stream_goes_on(peers, ipc, replay_ipc, caplog):
    with EventPublisher(ipc, replay_endpoint=replay_ipc) as publisher:
        publisher.publish([BlockStored((1,), None, "no array", 2)])
        publisher.publish([stored(1)])
        wait_until(lambda: publisher.num_dropped == 1)
        batch, _ = replayed(peers, replay_ipc, 0)
    assert int.from_bytes(batch[2], "big") == 1
    assert "could not be encoded" in caplog.text


def test_nothing_is_sent_for_no_events(peers, ipc, replay_ipc):
    with EventPublisher(ipc, replay_endpoint=replay_ipc) as publisher:
        publisher.publish([])
        assert len(replayed(peers, replay_ipc, 0)) == 1


@pytest.mark.parametrize(
    ("endpoint", "bound"),
    [
        ("tcp://*:5557", True),
        ("tcp://[::]:5557", True),
        ("ipc:///tmp/x", True),
        ("inproc://x", True),
        ("tcp://127.0.0.1:5557", False),
        ("tcp://collector:5557", False),
    ],
)
def test_what_is_bound_and_what_is_connected_to(endpoint, bound):
    assert binds(endpoint) is bound


def test_a_plain_tcp_address_is_connected_to_and_warned_about(peers, caplog):
    socket = subscriber(peers, "tcp://127.0.0.1:*", bind=True)
    endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    with caplog.at_level(logging.WARNING), EventPublisher(endpoint) as publisher:
        synchronised(publisher, socket)
        publisher.publish([stored(7)])
        assert numbers(socket.recv_multipart()[2]) == [7]
    assert "carry prompts and salts in clear" in caplog.text


def test_a_wildcard_is_resolved(peers, caplog):
    with EventPublisher("tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*") as publisher:
        assert publisher.endpoint.startswith("tcp://127.0.0.1:")
        publisher.publish([stored(1)])
        assert len(replayed(peers, publisher.replay_endpoint, 0)) == 2
    assert caplog.text.count("in clear") == 2


def test_a_socket_file_is_not_warned_about(ipc, caplog):
    EventPublisher(ipc).close()
    assert caplog.text == ""


def test_a_name_without_a_file_is_warned_about(caplog):
    EventPublisher(f"ipc://@warmturn-test-{os.getpid()}").close()
    assert "in clear" in caplog.text


def test_an_endpoint_in_use_is_refused_and_nothing_stays_open(tmp_path, ipc):
    with EventPublisher("tcp://127.0.0.1:*") as holder:
        before = threading.active_count()
        with pytest.raises(InvalidInput, match=r"in use.*; choose a free endpoint"):
            EventPublisher(ipc, replay_endpoint=holder.endpoint)
        assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("endpoint", ["nonsense", "tcp://", "ftp://*", "ipc:///no/such/folder/x"])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    with pytest.raises(InvalidInput, match="KV events were to be served at"):
        EventPublisher(endpoint)


def test_a_file_that_is_no_socket_is_never_replaced(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    with pytest.raises(InvalidInput, match="no socket is there"):
        EventPublisher(f"ipc://{path}")
    assert path.read_text() == "precious"


def test_the_replay_buffer_keeps_the_newest_within_both_bounds():
    buffer = _ReplayBuffer(max_batches=3, max_bytes=10)
    for sequence in range(5):
        buffer.append(_Sent(sequence, b"xx"))
    assert [sent.sequence for sent in buffer.since(0)] == [2, 3, 4]
    buffer.append(_Sent(5, b"x" * 9))
    assert [sent.sequence for sent in buffer.since(0)] == [5]
    buffer.append(_Sent(6, b"x" * 11))
    assert buffer.since(0) == []


def test_a_path_that_another_publisher_serves_is_refused_and_left_to_it(peers, ipc):
    """zmq itself would take the path over, and the first publisher's subscribers hear nothing."""
    with EventPublisher(ipc) as first:
        with pytest.raises(InvalidInput, match="something listens there already"):
            EventPublisher(ipc)
        synchronised(first, subscriber(peers, ipc))


def test_events_and_replay_cannot_share_a_path(ipc):
    with pytest.raises(InvalidInput, match="something listens there already"):
        EventPublisher(ipc, replay_endpoint=ipc)


def test_a_path_left_behind_by_a_killed_process_is_taken(peers, ipc, tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "kv.sock"))
        dead.listen()
    with EventPublisher(ipc) as publisher:
        synchronised(publisher, subscriber(peers, ipc))
    assert not (tmp_path / "kv.sock").exists()
