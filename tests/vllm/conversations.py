"""Prompts for the lane: short, and different from test to test so that none warms another."""

import random
from typing import Any

SYSTEM = {"role": "system", "content": "You answer in few words. " * 24}


def messages(*texts: str) -> list[dict[str, Any]]:
    """Return a conversation: user and assistant in turns, after a system prompt of some blocks."""
    roles = ("user", "assistant")
    return [SYSTEM, *({"role": roles[i % 2], "content": t} for i, t in enumerate(texts))]


def token_ids(rng: random.Random, num: int) -> list[int]:
    """Return ordinary tokens of SmolLM2's vocabulary, no control tokens."""
    return [rng.randrange(1000, 40_000) for _ in range(num)]
