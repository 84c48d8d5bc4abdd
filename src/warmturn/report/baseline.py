"""Failures that are known already, so that a build fails on new ones only.

A failure is known by its conversation's name, the number of its turn and its first cause: all
three stay when the same conversations are logged again with other request ids and times.
"""

from typing import Any, TypeAlias

from warmturn.check import ConversationCheck, TurnCheck
from warmturn.errors import InvalidInput

__all__ = ["FailureKey", "failure_key", "known_failures"]

FailureKey: TypeAlias = tuple[str, int, str]
"""Conversation, turn, cause."""


def failure_key(conversation: ConversationCheck, turn: TurnCheck) -> FailureKey:
    """Return what a failing turn is known by."""
    return conversation.conversation_id, turn.turn, turn.cause


def known_failures(data: Any, *, name: str) -> frozenset[FailureKey]:
    """Return the failures in a former `--json` report; `name` is its file, for the error.

    Raises `InvalidInput` where `data` is no such report.
    """
    try:
        return frozenset(
            (str(conversation["conversation_id"]), int(turn["turn"]), str(turn["cause"]))
            for conversation in data["conversations"]
            for turn in conversation["turns"]
            if turn["is_failure"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the baseline {name} is not a report of this command ({type(error).__name__}: "
            f"{error}); write one with --json"
        ) from error
