"""Where publishers listen, and what polling replicas tells when no event comes."""

from collections.abc import Iterable, Mapping, Sequence

from warmturn.errors import InvalidInput

__all__ = ["is_asleep", "publisher_ports", "silent_publishers"]

_MAX_PORT = 65535
_ASLEEP = ("weights_offloaded", "discard_all")


def publisher_ports(base_port: int, global_ranks: Iterable[int]) -> list[int] | None:
    """Return the port of each data-parallel rank: base plus *global* rank.

    The second pod of a group of 2 x 8 has ranks 8 to 15; its publishers are not at the base port.
    None for base port 0: the system chose, and only the engine knows which.
    Raises `InvalidInput` for ports beyond 65535.
    """
    if base_port == 0:
        return None
    ports = [base_port + rank for rank in global_ranks]
    wrong = [port for port in ports if not 0 < port <= _MAX_PORT]
    if wrong:
        raise InvalidInput(
            f"base port {base_port} gives the ports {wrong}; choose one that leaves room for all "
            f"ranks below {_MAX_PORT}"
        )
    return ports


def silent_publishers(expected: Iterable[int], silent: Sequence[int]) -> list[int]:
    """Return the expected ports from which nothing came, in order: each has to be named.

    A rank that stays silent while others publish usually could not bind, because two ranks were
    given one port.
    """
    return [port for port in expected if port in silent]


def is_asleep(sleep_state: Mapping[str, float]) -> bool:
    """Say whether an engine's `vllm:engine_sleep_state` means that its blocks are gone.

    An engine that sleeps, or resets while idle, announces the clear only with its next step.
    No state at all is no evidence.
    """
    if any(sleep_state.get(state, 0) > 0 for state in _ASLEEP):
        return True
    return sleep_state.get("awake", 1) == 0
