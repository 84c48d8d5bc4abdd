"""The socket a server listens on, bound before anything slow is loaded."""

import socket

from warmturn.errors import InvalidInput

__all__ = ["listening_socket"]


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket for uvicorn's `sockets`; port 0 takes a free one.

    Raises `InvalidInput` when the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # With the protocol left at 0 asyncio does not set TCP_NODELAY on what it accepts, and
        # each answer on a kept connection waits 40 ms for the client's delayed acknowledgement.
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host!r}: {error.strerror}; see --host") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise InvalidInput(
            f"cannot listen on {host} port {port}: {error.strerror}; "
            "stop what listens there, or choose another --port"
        ) from error
    return listening
