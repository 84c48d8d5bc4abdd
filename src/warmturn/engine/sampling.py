"""From logits to tokens: greedy, temperature, top-k, top-p, seeded, with log-probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from warmturn.engine.api import Choice, SamplingParams
from warmturn.errors import BrokenInvariant
from warmturn.replica.step import Sampled
from warmturn.types import RequestId

__all__ = ["sample"]

Probabilities = npt.NDArray[np.float32]


def sample(
    logits: Tensor, request_ids: Sequence[RequestId], choices: Sequence[Choice]
) -> list[Sampled]:
    """Choose one token per row of `logits` `[num_rows, vocab_size]` float32.

    A row's token depends on its own logits and choice only, never on the other rows.
    Log-probabilities are those of the model itself: before bans and temperature.
    """
    if not request_ids:
        return []
    token_ids = _choose(_without_banned(logits, choices), choices)
    logprobs = [
        _logprobs(row, token_id, choice.params.num_logprobs)
        for row, token_id, choice in zip(logits, token_ids, choices, strict=True)
    ]
    return [
        Sampled(request_id, token_id, *of_token)
        for request_id, token_id, of_token in zip(request_ids, token_ids, logprobs, strict=True)
    ]


def _without_banned(logits: Tensor, choices: Sequence[Choice]) -> Tensor:
    if not any(choice.banned_token_ids for choice in choices):
        return logits
    allowed = logits.clone()
    for row, choice in zip(allowed, choices, strict=True):
        row[list(choice.banned_token_ids)] = -torch.inf
    return allowed


def _choose(logits: Tensor, choices: Sequence[Choice]) -> list[int]:
    """Take the most likely token of every row, then draw where a temperature asks for it."""
    token_ids: list[int] = logits.argmax(1).tolist()
    drawn = [row for row, choice in enumerate(choices) if choice.params.temperature > 0]
    if drawn:
        temperatures = [choices[row].params.temperature for row in drawn]
        warmed = logits[drawn] / logits.new_tensor(temperatures)[:, None]
        for row, weights in zip(drawn, warmed.softmax(1).cpu().numpy(), strict=True):
            token_ids[row] = _draw(weights, choices[row])
    return token_ids


def _draw(probabilities: Probabilities, choice: Choice) -> int:
    """Draw by inverting the cumulative sum at a point that seed and index alone fix."""
    candidates = _candidates(probabilities, choice.params)
    # float64: a float32 sum over a large vocabulary loses the rare tokens.
    cumulative = np.cumsum(probabilities[candidates], dtype=np.float64)
    at = np.searchsorted(cumulative, _uniform(choice) * cumulative[-1], side="right")
    return int(candidates[min(at, len(candidates) - 1)])


def _candidates(probabilities: Probabilities, params: SamplingParams) -> npt.NDArray[Any]:
    """Return the ids that top-k and top-p leave, the most likely first.

    Top-p keeps the fewest tokens whose probabilities reach it, counted after top-k.
    """
    if params.top_k is None and params.top_p >= 1:
        return np.flatnonzero(probabilities)
    kept = _worth_sorting(probabilities, params)
    kept = kept[np.argsort(-probabilities[kept], kind="stable")][: params.top_k]
    if params.top_p < 1:
        cumulative = np.cumsum(probabilities[kept], dtype=np.float64)
        whole = 1.0 if params.top_k is None else cumulative[-1]
        kept = kept[: np.searchsorted(cumulative, params.top_p * whole) + 1]
    return kept


def _worth_sorting(probabilities: Probabilities, params: SamplingParams) -> npt.NDArray[Any]:
    """Drop what can be in no answer: sorting a whole vocabulary takes milliseconds.

    All tokens below (1 - top_p) / vocab_size together weigh less than 1 - top_p, so the
    others reach top_p without them; and none below the k-th largest is among the top k.
    """
    if params.top_k is not None and params.top_k < len(probabilities):
        kth = np.partition(probabilities, -params.top_k)[-params.top_k]
        return np.flatnonzero(probabilities >= kth)
    return np.flatnonzero(probabilities >= (1 - params.top_p) / len(probabilities) * 0.99)


def _uniform(choice: Choice) -> float:
    """Return a number in [0, 1) from (seed, index): counter-based, so nothing is remembered."""
    if choice.params.seed is None:
        raise BrokenInvariant("a temperature above 0 came without a seed; the engine sets one")
    key = choice.params.seed % 2**64  # seeds may be negative
    bits = np.random.Philox(key=key, counter=choice.index)
    return float(np.random.Generator(bits).random())


def _logprobs(
    logits: Tensor, token_id: int, num_logprobs: int | None
) -> tuple[float | None, tuple[tuple[int, float], ...]]:
    """Return the token's log-probability and the `num_logprobs` best `(id, logprob)` pairs."""
    if num_logprobs is None:
        return None, ()
    logprobs = logits.log_softmax(0)
    best = logprobs.topk(min(num_logprobs, len(logprobs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return float(logprobs[token_id]), tuple(pairs)
