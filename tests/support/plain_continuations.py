"""Exact continuation in its plainest form: every remembered text in a dictionary per salt."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Spliced:
    token_ids: np.ndarray
    num_spliced_tokens: int
    num_drifted_tokens: int


class PlainContinuations:
    def __init__(self) -> None:
        self.ids_of_text: dict[str | None, dict[str, list[int]]] = {}

    def remember(self, *, salt, prompt_text, prompt_token_ids, reply_text, reply_token_ids) -> None:
        ids = [*prompt_token_ids.tolist(), *reply_token_ids.tolist()]
        self.ids_of_text.setdefault(salt, {})[prompt_text + reply_text] = ids

    def splice(self, *, salt, text, encode) -> Spliced:
        known = self.ids_of_text.get(salt, {})
        start = max((start for start in known if text.startswith(start)), key=len, default="")
        ids = [*known.get(start, []), *encode(text[len(start) :]).tolist()]
        plain = encode(text).tolist()
        pairs = zip(ids, plain, strict=False)
        common = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), len(plain))
        return Spliced(
            np.asarray(ids, dtype=np.int32), len(known.get(start, [])), len(plain) - common
        )
