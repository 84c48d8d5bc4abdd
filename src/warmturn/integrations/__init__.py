"""Where other engines meet warmturn: the line that starts them, and what runs inside of them.

In: what a user wants an engine for. Out: its command line with the settings that multi-turn reuse
needs, and warnings about those that break it. Knows vLLM's option names; talks to no server.
"""

from warmturn.integrations.vllm_command import (
    EventSockets,
    ServeCommand,
    ServeUse,
    TierUse,
    serve_command,
)
from warmturn.integrations.vllm_warnings import ServeWarning, review

__all__ = [
    "EventSockets",
    "ServeCommand",
    "ServeUse",
    "ServeWarning",
    "TierUse",
    "review",
    "serve_command",
]
