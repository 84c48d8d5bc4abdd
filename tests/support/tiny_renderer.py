"""A renderer in the real one's shape: one id per byte, three special tokens, a fixed template.

Ids 0-255 are bytes, `BOS`, `END` and `START` are special, and `PAIR` stands for the two
letters "ab", so that a reply may be tokenised in two ways and drift.
"""

import re
from collections.abc import Sequence

import numpy as np

from warmturn.errors import TemplateError

BOS, END, START, PAIR = 256, 257, 258, 259
SPECIALS = {BOS: "<s>", END: "<end>", START: "<start>"}
_IDS = {text: token_id for token_id, text in SPECIALS.items()}


class TinyTokenizer:
    vocab_size = 260
    eos_token_id = END

    def encode(self, text: str, *, add_special_tokens: bool = False) -> np.ndarray:
        """Prefers `PAIR` wherever it can."""
        ids: list[int] = [BOS] if add_special_tokens else []
        for piece in re.split(r"(<s>|<end>|<start>|ab)", text):
            if piece == "ab":
                ids.append(PAIR)
            elif piece in _IDS:
                ids.append(_IDS[piece])
            else:
                ids.extend(piece.encode())
        return np.asarray(ids, dtype=np.int32)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        shown = (self._bytes(i, skip_special_tokens=skip_special_tokens) for i in ids)
        return b"".join(shown).decode(errors="replace")

    def decode_stream(self, *, skip_special_tokens: bool = True) -> "_Stream":
        return _Stream(lambda i: self._bytes(i, skip_special_tokens=skip_special_tokens))

    def token_text(self, token_id: int) -> str:
        return self.decode([token_id], skip_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes(token_id, skip_special_tokens=False)

    def _bytes(self, token_id: int, *, skip_special_tokens: bool) -> bytes:
        if token_id in SPECIALS:
            return b"" if skip_special_tokens else SPECIALS[token_id].encode()
        return b"ab" if token_id == PAIR else bytes([token_id])


class TinyRenderer:
    """`<start>role:content<end>` per message. Content "refuse me" makes the template raise."""

    def __init__(self) -> None:
        self.tokenizer = TinyTokenizer()
        self.calls: list[dict] = []

    def render_text(
        self,
        messages,
        *,
        now,
        tools=None,
        add_generation_prompt=True,
        continue_final_message=False,
        chat_template_kwargs=None,
    ) -> str:
        self.calls.append({"now": now, "tools": tools, "kwargs": chat_template_kwargs})
        texts = [f"<start>{m['role']}:{_content(m)}<end>" for m in messages]
        if any("refuse me" in text for text in texts):
            raise TemplateError("the template refuses this")
        text = "".join(texts)
        if continue_final_message:
            text = text.removesuffix("<end>")
        return text + ("<start>assistant:" if add_generation_prompt else "")


class _Stream:
    def __init__(self, bytes_of) -> None:
        self._bytes_of = bytes_of
        self._held = b""

    def push(self, token_ids: Sequence[int]) -> str:
        self._held += b"".join(map(self._bytes_of, token_ids))
        whole = len(self._held)
        for back in range(1, min(4, whole) + 1):
            lead = self._held[-back]
            if lead >= 0xC0:  # a lead byte: does its character lack bytes?
                needed = 2 + (lead >= 0xE0) + (lead >= 0xF0)
                whole -= back if needed > back else 0
                break
        text, self._held = self._held[:whole], self._held[whole:]
        return text.decode(errors="replace")

    def flush(self) -> str:
        text, self._held = self._held.decode(errors="replace"), b""
        return text


def _content(message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
