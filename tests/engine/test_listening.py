import socket

import pytest

from warmturn.engine.listening import listening_socket, url_of
from warmturn.errors import InvalidInput


def test_port_zero_takes_a_free_port_and_names_the_protocol():
    with listening_socket("127.0.0.1", 0) as listening:
        assert listening.getsockname()[1] > 0
        assert listening.proto == socket.IPPROTO_TCP  # or answers are late: see the function


def test_a_port_in_use_is_refused_with_its_number():
    with listening_socket("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port}: .*in use.*--port"):
            listening_socket("127.0.0.1", port)


def test_an_address_that_is_no_address_is_refused():
    with pytest.raises(InvalidInput, match=r"256\.0\.0\.1"):
        listening_socket("256.0.0.1", 0)


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_a_port_that_is_none_is_refused_and_not_wrapped(port):
    with pytest.raises(InvalidInput, match=rf"port {port}; .*65535"):
        listening_socket("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("0.0.0.0", "http://127.0.0.1:"),
        ("::1", "http://[::1]:"),
    ],
)
def test_the_address_told_is_one_a_client_can_use(host, url):
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with listening_socket(host, 0) as listening:
        assert url_of(listening) == f"{url}{listening.getsockname()[1]}"
