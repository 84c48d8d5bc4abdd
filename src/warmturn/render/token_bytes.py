"""The bytes that one token stands for, where its tokenizer's decoder makes that knowable."""

import json
import re
from typing import Any

import tokenizers

__all__ = ["TokenBytes"]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How tokenizers with byte fallback spell a single byte."""


class TokenBytes:
    """Looks up the bytes of tokens. Immutable.

    Two decoders are understood: byte-level, where each character of a token is one byte (GPT-2
    and most since), and word pieces with `▁` for a space and tokens for single bytes
    (SentencePiece: Llama 2, Mistral, Gemma).
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        decoder = backend.decoder
        state = {} if decoder is None else json.loads(decoder.__getstate__())
        parts = state.get("decoders", [state])
        self.is_byte_level = [part.get("type") for part in parts] == ["ByteLevel"]
        self._has_byte_tokens = any(part.get("type") == "ByteFallback" for part in parts)
        self._has_spaces = any(_makes_spaces(part) for part in parts)
        self._backend = backend
        self._added_ids = frozenset(backend.get_added_tokens_decoder())

    def of(self, token_id: int) -> bytes | None:
        """Return the bytes of this token; None for an unknown id or an unknown decoder."""
        token = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return None
        if self.is_byte_level:
            return _from_byte_alphabet(token)
        if token_id in self._added_ids:
            return token.encode()
        if not self._has_spaces:
            return None
        if self._has_byte_tokens and (byte := _BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(byte[1])
        return token.replace("▁", " ").encode()

    def is_byte_token(self, token_id: int) -> bool:
        """Whether the token is a single byte, so that only its neighbours make it a character."""
        token = self._backend.id_to_token(token_id) or ""
        return self._has_byte_tokens and _BYTE_TOKEN.fullmatch(token) is not None


def _makes_spaces(part: dict[str, Any]) -> bool:
    is_replace = part.get("type") == "Replace" and part.get("content") == " "
    return part.get("type") == "Metaspace" or (is_replace and part["pattern"] == {"String": "▁"})


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: itself where printable, else from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    stand_ins = {chr(byte): byte for byte in printable}
    return stand_ins | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _from_byte_alphabet(token: str) -> bytes:
    """A token with a character outside the alphabet, an added one, stands for its own text."""
    try:
        return bytes([_BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()
