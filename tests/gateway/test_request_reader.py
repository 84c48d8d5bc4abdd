"""Framing of requests: by example, and against h11, which must never see it otherwise."""

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.soak import examples
from warmturn.gateway.limits import Limits
from warmturn.gateway.request_reader import RequestReader
from warmturn.gateway.turns import Refused

LIMITS = Limits(max_head_bytes=4096, max_body_bytes=10_000)
GOOD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
HEAD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\n"


def read(*parts):
    """Return (method, target, body) of each request, and the status of a refusal or None."""
    reader, found = RequestReader(LIMITS), []
    try:
        for part in parts:
            request = reader.feed(part)
            while request is not None:
                found.append((request.method, request.target, request.body))
                if not request.keeps_alive:
                    return found, None
                request = reader.feed(b"") if reader.num_waiting_bytes else None
    except Refused as refused:
        return found, refused.status
    return found, None


def one(*parts):
    reader = RequestReader(LIMITS)
    (request,) = [request for part in parts if (request := reader.feed(part)) is not None]
    return request


def h11_reads(data):
    """Return the same as `read` says it, by h11; None in place of requests that it refuses."""
    found = []
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMITS.max_head_bytes)
    connection.receive_data(data)
    try:
        while True:
            request, body = None, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return found, False
                if isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
            found.append((request.method, request.target, body))
            if connection.their_state is h11.MUST_CLOSE:
                return found, False
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                return found, False
            connection.start_next_cycle()
    except h11.RemoteProtocolError:
        return found, True


def test_a_request_is_read_with_its_body():
    request = one(HEAD + b"X-Own: 1\r\nContent-Length: 2\r\n\r\nab")
    assert (request.method, request.target, request.body) == (b"POST", b"/v1/x", b"ab")
    assert request.headers == {"host": "a", "x-own": "1", "content-length": "2"}
    assert b"".join(request.lines) == b"X-Own: 1\r\n"
    assert request.keeps_alive


@pytest.mark.parametrize("length", [1, 3, 1000])
def test_it_does_not_matter_how_the_bytes_come(length):
    data = (HEAD + b"Content-Length: 2\r\n\r\nab") * 3
    parts = [data[at : at + length] for at in range(0, len(data), length)]
    assert read(*parts) == ([(b"POST", b"/v1/x", b"ab")] * 3, None)


def test_chunks_are_undone_and_extensions_and_trailers_dropped():
    request = one(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n",
        b"1\r\nc\r\n0\r\nX-T: 1\r\n\r\n",
    )
    assert request.body == b"abc"
    assert "x-t" not in request.headers
    assert request.keeps_alive


def test_bytes_behind_a_chunked_body_end_the_connection_after_it():
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    request = one(chunked + HEAD + b"Content-Length: 9\r\n\r\nsmuggled!")
    assert (request.body, request.keeps_alive) == (b"ab", False)
    assert b"".join(request.lines) == b""


def test_close_is_kept_although_llhttp_forgets_it():
    assert not one(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nab").keeps_alive
    assert not one(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab").keeps_alive


def test_an_upgrade_is_dropped_and_the_body_read():
    request = one(
        HEAD + b"Upgrade: h2c\r\nHTTP2-Settings: AA\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"X-Own: 1\r\nContent-Length: 3\r\n\r\n",
        b"abc",
    )
    assert (request.target, request.body, request.keeps_alive) == (b"/v1/x", b"abc", True)
    assert b"".join(request.lines) == b"X-Own: 1\r\n"


def test_an_upgrade_with_a_chunked_body_is_read_too():
    head = HEAD + b"Upgrade: h2c\r\nConnection: upgrade\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert one(head + b"2\r\nab\r\n0\r\n\r\n").body == b"ab"


def test_what_connection_names_stays_on_this_side():
    request = one(HEAD + b"Connection: x-hop, keep-alive\r\nX-Hop: 1\r\nX-Own: 2\r\n\r\n")
    assert b"".join(request.lines) == b"X-Own: 2\r\n"


def test_credentials_are_apart_and_repeated_headers_all_go_on():
    request = one(HEAD + b"Authorization: Bearer k\r\nX-A: 1\r\nX-A: 2\r\n\r\n")
    assert b"".join(request.credentials) == b"Authorization: Bearer k\r\n"
    assert b"".join(request.lines) == b"X-A: 1\r\nX-A: 2\r\n"
    assert request.headers["x-a"] == "1"


def test_who_expects_to_be_told_to_go_on_is_noticed():
    reader = RequestReader(LIMITS)
    assert reader.feed(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n") is None
    assert reader.awaits_continue
    assert reader.feed(b"ab").body == b"ab"
    assert not reader.awaits_continue


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (
            HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            400,
        ),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", 400),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab", 400),
        (HEAD + b"Content-Length: 2, 2\r\n\r\nab", 400),
        (HEAD + b"Content-Length: +2\r\n\r\nab", 400),
        (HEAD + b"Content-Length: -2\r\n\r\nab", 400),
        (HEAD + b"Content-Length: 0x2\r\n\r\nab", 400),
        (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (HEAD + b"Content-Length:\r\n\r\n", 400),
        (HEAD + b"Content-Length: 10001\r\n\r\n", 413),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1388\r\n" + b"x" * 5000 + b"\r\n", None),
        (
            HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + (b"1388\r\n" + b"x" * 5000 + b"\r\n") * 3,
            413,
        ),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding : chunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400),
        (HEAD + b"X: y\r\n folded\r\n\r\n", 400),
        (HEAD + b"X: y\x00z\r\n\r\n", 400),
        (HEAD + b"X\x00: y\r\n\r\n", 400),
        (HEAD + b"X y: z\r\n\r\n", 400),
        (HEAD + b": z\r\n\r\n", 400),
        (HEAD + b"X: a\rb\r\n\r\n", 400),
        (HEAD + b"Host: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\nHost: a\n\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\n\n", 400),
        (b"POST /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST / x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"POST /\r\n\r\n", 400),
        (b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\r\n" + GOOD, 400),
        (b"post / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (HEAD + b"X: " + b"y" * 5000, 431),
        (HEAD + b"X: " + b"y" * 5000 + b"\r\n\r\n", 431),
    ],
)
def test_what_peers_could_read_otherwise_is_refused(data, status):
    assert read(data) == ([], status)


@pytest.mark.parametrize("cut", [1, 2, 5, 20, 30])
def test_a_head_that_never_ends_is_refused_while_it_comes(cut):
    data = b"POST / HTTP/1.1\nHost: a\n\n"
    found, status = read(*[data[at : at + cut] for at in range(0, len(data), cut)])
    assert (found, status) == ([], 400)


STARTS = [
    b"POST /v1/x HTTP/1.1\r\n",
    b"POST /v1/x HTTP/1.0\r\n",
    b"GET /?a=b HTTP/1.1\r\n",
    b"POST http://h/v1/x HTTP/1.1\r\n",
    b"POST / HTTP/1.1\n",
    b"\r\nPOST / HTTP/1.1\r\n",
    b"POST  / HTTP/1.1\r\n",
    b"POST / HTTP/1.1 \r\n",
]
HEADERS = [
    b"Content-Length: 2\r\n",
    b"Content-Length: 12\r\n",
    b"Content-Length:2\r\n",
    b"content-length:  2 \r\n",
    b"Content-Length: 02\r\n",
    b"Content-Length: 2\n",
    b"Content-Length: 2 2\r\n",
    b"Content_Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding:\tChunked\t\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding:\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive, x-a\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    b"Expect: 100-continue\r\n",
    b"X-A: b\r\n",
    b"X-A:\r\n",
    b"X-A: \xe9\xff\r\n",
    b"X-A: b\x7f\r\n",
    b"X-A: b\x01\r\n",
    b"X(A): b\r\n",
    b"X-A\t: b\r\n",
    b"X-A\r\n",
    b" folded\r\n",
    b"Host: b\r\n",
]
BODIES = [
    b"ab",
    b"2\r\nab\r\n0\r\n\r\n",
    b'2;e="f"\r\nab\r\n0\r\n\r\n',
    b"2 \r\nab\r\n0\r\n\r\n",
    b"2;\nab\r\n0\r\n\r\n",
    b"02\r\nab\r\n00\r\nX-Trailer: 1\r\n\r\n",
    b"0x2\r\nab\r\n0\r\n\r\n",
    b"2\r\nab\n0\r\n\r\n",
    b"A\r\nabcdefghij\r\n0\r\n\r\n",
    b"0\r\n\r\n",
    b"0\r\nContent-Length: 5\r\n\r\n",
    b"abcdefghijkl",
    b"",
]


@st.composite
def requests(draw):
    """A row of requests, most of them wrong somewhere."""
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
        host = draw(st.sampled_from([b"Host: a\r\n", b"Host: a\r\n", b"Host: a\r\n", b""]))
        end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"]))
        start, body = draw(st.sampled_from(STARTS)), draw(st.sampled_from(BODIES))
        rows.append(start + host + b"".join(headers) + end + body)
    return b"".join(rows)


@settings(max_examples=examples(600), deadline=None)
@given(requests(), st.integers(1, 200))
@example(GOOD + GOOD, 1000)
def test_what_h11_refuses_or_frames_otherwise_is_not_let_through(data, cut):
    ours, status = read(*[data[at : at + cut] for at in range(0, len(data), cut)])
    theirs, is_refused = h11_reads(data)
    # We may refuse more, and h11 may have read further; what we let through, h11 reads the same.
    assert theirs[: len(ours)] == ours, (status, is_refused)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(
        [
            GOOD,
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        ]
    ),
    st.lists(st.tuples(st.integers(0, 90), st.binary(max_size=3), st.integers(0, 3)), max_size=3),
    st.integers(1, 60),
)
def test_damaged_requests_are_framed_as_h11_does_or_refused(data, damages, cut):
    for at, inserted, num_removed in damages:
        data = data[:at] + inserted + data[at + num_removed :]
    ours, status = read(*[data[at : at + cut] for at in range(0, len(data), cut)])
    theirs, is_refused = h11_reads(data)
    assert theirs[: len(ours)] == ours, (status, is_refused)
