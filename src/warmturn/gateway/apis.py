"""Which paths are inference requests, and which others an operator may let through.

A path is taken only where it equals a name of the table, byte for byte: escapes, dot segments and
double slashes name nothing here, so an engine's admin endpoints cannot be reached through them.
"""

from collections.abc import Iterable, Mapping

from warmturn.errors import InvalidInput
from warmturn.gateway.turns import Api

__all__ = ["INFERENCE_PATHS", "path_table"]

INFERENCE_PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/completions": Api.COMPLETIONS,
    "/v1/responses": Api.RESPONSES,
    "/v1/embeddings": Api.EMBEDDINGS,
    "/v1/messages": Api.MESSAGES,
}

_ADMIN_WORDS = (
    "cache",  # reset_prefix_cache, reset_mm_cache, flush_cache, clear_hicache_storage_backend
    "hicache",
    "lora",
    "weights",
    "sleep",
    "wake_up",
    "profile",
    "collective_rpc",
    "server_info",
    "metrics",
    "memory_occupation",
    "scale_elastic",
    "session",  # SGLang's open_session, close_session
    "abort",
    "pause",
    "continue_generation",
    "internal_state",
    "slots",  # llama.cpp: other clients' prompts
    "props",
)
"""What changes or shows an engine's own state, in vLLM, SGLang and llama.cpp."""


def path_table(allowed: Iterable[str] = ()) -> dict[bytes, Api]:
    """Return the paths to take with what each speaks; `allowed` adds others, relayed as they are.

    Raises `InvalidInput` for a path that is no plain absolute one, or an engine's admin endpoint.
    """
    table = {path.encode(): api for path, api in INFERENCE_PATHS.items()}
    for path in allowed:
        _check_allowed(path)
        table.setdefault(path.encode(), Api.OTHER)
    return table


def _check_allowed(path: str) -> None:
    is_plain = path.startswith("/") and path.isascii() and path.isprintable()
    if not is_plain or any(part in path for part in ("//", "/.", "%", "?", "#", "\\", " ")):
        raise InvalidInput(
            f"{path!r} cannot be relayed: give a plain absolute path such as '/tokenize'"
        )
    if word := next((word for word in _ADMIN_WORDS if word in path.lower()), None):
        raise InvalidInput(
            f"{path!r} cannot be relayed: '{word}' names an engine's admin endpoints, "
            "which clients must not reach; call the replica itself"
        )
