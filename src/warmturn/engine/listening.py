"""The socket a server listens on, bound before anything slow is loaded."""

import socket

from warmturn.errors import InvalidInput

__all__ = ["listening_socket", "url_of"]


MAX_PORT = 2**16 - 1


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket for uvicorn's `sockets`; port 0 takes a free one.

    Raises `InvalidInput` when the address cannot be had.
    """
    if not 0 <= port <= MAX_PORT:  # getaddrinfo would take the number's lower 16 bits
        raise InvalidInput(f"cannot listen on port {port}; choose a --port from 0 to {MAX_PORT}")
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
            "stop what listens there, or choose another --port or --host"
        ) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the address a client on this machine uses, `http://host:port`."""
    host, port = listening.getsockname()[:2]
    # A wildcard address can be listened on but, outside Linux, not connected to.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
