import socket

import pytest

from warmturn.engine.listening import listening_socket
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
