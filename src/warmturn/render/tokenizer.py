"""Text to token ids and back, with the ids of a whole prompt at the price of what is new in it."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from warmturn.errors import InvalidInput, InvalidRequest
from warmturn.render.decode_stream import ByteStream, DecodeStream, WindowStream
from warmturn.render.model_files import load_tokenizer_config, named_special_tokens
from warmturn.render.segment_cache import SegmentCache
from warmturn.render.splitting import MarkerSplitter
from warmturn.render.token_bytes import TokenBytes
from warmturn.render.word_borders import splits_behind_words
from warmturn.render.words import Words
from warmturn.types import TokenIds

__all__ = ["Tokenizer"]

_DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
"""About two hundred conversations of 32k tokens: 4.3 bytes of text and 4 of ids per token."""

_FEW_CHARS = 2048

_PIECEWISE = frozenset({
    # Normalisers and pre-tokenizers that treat each piece between added tokens alone, read and
    # tested with tokenizers 0.23. One that is not listed here is not relied on.
    "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt",
    "Precompiled", "Prepend", "Replace", "Sequence", "Strip", "StripAccents",
    "BertPreTokenizer", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Split",
    "UnicodeScripts", "Whitespace", "WhitespaceSplit",
})  # fmt: skip


class Tokenizer:
    """A Hugging Face fast tokenizer that remembers the segments it has encoded.

    Encoding equals the `tokenizers` library's on the whole text, always. Where the tokenizer
    allows it (`is_incremental`), texts are cut before special tokens and only segments not met
    before are encoded. Safe to use from several threads.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        config: dict[str, Any] | None = None,
        *,
        cache_bytes: int = _DEFAULT_CACHE_BYTES,
    ) -> None:
        # Settings for training batches, which a saved tokenizer may carry; prompts are whole.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._special_tokens = named_special_tokens(config or {})
        added = backend.get_added_tokens_decoder()
        self.special_token_ids: frozenset[int] = frozenset(
            token_id for token_id, token in added.items() if token.special
        )
        self._splitter = MarkerSplitter(
            added.values(), normalizer_keeps_text=not _types_of(backend.normalizer) - {"Sequence"}
        )
        self.whole_text_reason = self._find_whole_text_reason()
        self._segments = SegmentCache(capacity_bytes=cache_bytes)
        self._words = self._find_words()
        self._token_bytes = TokenBytes(backend)

    @classmethod
    def from_directory(cls, path: str | Path) -> "Tokenizer":
        """Load `tokenizer.json`, and `tokenizer_config.json` where there is one.

        Raises `InvalidInput` where `tokenizer.json` is missing or either cannot be read.
        """
        directory = Path(path)
        return cls(_load_backend(directory / "tokenizer.json"), load_tokenizer_config(directory))

    @classmethod
    def from_file(cls, path: str | Path) -> "Tokenizer":
        """Load one `tokenizer.json`; which token begins and ends a text is then not known."""
        return cls(_load_backend(Path(path)))

    def _find_whole_text_reason(self) -> str | None:
        unknown = (_types_of(self._backend.normalizer) | _types_of(self._backend.pre_tokenizer)) - (
            _PIECEWISE
        )
        if unknown:
            return f"{', '.join(sorted(unknown))} is not known to treat pieces of text alone"
        if getattr(self._backend.model, "dropout", None):
            return "the model drops merges at random"
        if not self._splitter.has_markers:
            return "no special token is certain to be found wherever it stands"
        return None

    def _find_words(self) -> Words | None:
        separator = self._splitter.separator
        if separator is None or not self.is_incremental or not splits_behind_words(self._backend):
            return None
        separator_id = self._backend.token_to_id(separator)
        assert separator_id is not None  # it is an added token
        return Words(self._encoded, separator=separator, separator_id=separator_id)

    @property
    def is_incremental(self) -> bool:
        """Whether texts are encoded segment by segment; if not, `whole_text_reason` says why."""
        return self.whole_text_reason is None

    @property
    def is_word_by_word(self) -> bool:
        """Whether of a new segment only words not met before are encoded."""
        return self._words is not None

    @property
    def special_tokens(self) -> dict[str, str]:
        """`bos_token`, `eos_token`, `pad_token` ... as templates get them; absent ones left out."""
        return dict(self._special_tokens)

    @property
    def bos_token(self) -> str | None:
        """Text of the token that begins a text, from tokenizer_config.json."""
        return self._special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """Text of the token that ends a reply, from tokenizer_config.json."""
        return self._special_tokens.get("eos_token")

    @property
    def eos_token_id(self) -> int | None:
        """Id of `eos_token`."""
        return None if self.eos_token is None else self.token_id(self.eos_token)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included; ids below it may be unused."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_id(self, token: str) -> int | None:
        """Return the id of `token` as the vocabulary spells it, or None."""
        return self._backend.token_to_id(token)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes this token stands for inside a text; None where that is not known."""
        return self._token_bytes.of(token_id)

    def token_text(self, token_id: int) -> str:
        """Return this token's text alone, parts of a character as U+FFFD; '' for an unknown id."""
        known = self.token_bytes(token_id)
        if known is not None:
            return known.decode("utf-8", errors="replace")
        return self.decode([token_id], skip_special_tokens=False)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        """Return the ids of `text`, special tokens written in it taken as such.

        `add_special_tokens` puts the ones of the tokenizer's own template around it, as is
        usual for a bare completion and never right for a rendered chat.
        Raises `InvalidRequest` for text that is not Unicode (a lone surrogate).
        """
        if add_special_tokens or not self.is_incremental:
            return self._encoded([text], add_special_tokens=add_special_tokens)[0]
        return self.encode_segments(self._splitter.split(text))

    def segments(self, text: str) -> list[str]:
        """Return `text` cut where encoding the pieces gives the ids of the whole.

        Each but the first begins with a special token. Uncut where `is_incremental` is False.
        """
        return self._splitter.split(text) if self.is_incremental else [text]

    def num_new_chars(self, segments: Sequence[str]) -> int:
        """Return how many characters of `segments` were not encoded before: what encoding costs."""
        if not self.is_incremental:
            return sum(map(len, segments))
        known = self._segments.get_all(segments)
        return sum(len(s) for s, ids in zip(segments, known, strict=True) if ids is None)

    def encode_segments(self, segments: Sequence[str]) -> TokenIds:
        """Return the ids of `segments` put together, as `segments` cut them from one text."""
        if not segments:
            return np.empty(0, np.int32)
        if not self.is_incremental:
            return self._encoded(["".join(segments)])[0]
        known = self._segments.get_all(segments)
        missing = [s for s, ids in zip(segments, known, strict=True) if ids is None]
        if missing:
            fresh = self._encode_missing(list(dict.fromkeys(missing)))
            known = [
                fresh[segment] if ids is None else ids
                for segment, ids in zip(segments, known, strict=True)
            ]
        return np.concatenate([ids for ids in known if ids is not None])

    def _encode_missing(self, missing: list[str]) -> dict[str, TokenIds]:
        encode = self._encoded if self._words is None else self._words.encode
        fresh = dict(zip(missing, encode(missing), strict=True))
        for segment, ids in fresh.items():
            self._segments.put(segment, ids)
        return fresh

    def _encoded(self, texts: list[str], *, add_special_tokens: bool = False) -> list[TokenIds]:
        encode, is_few = self._backend, sum(map(len, texts)) < _FEW_CHARS
        try:
            # The batch form uses all cores and, being "fast", skips the offsets nobody reads.
            # Where there is little to do, handing it to other threads takes longer.
            batch = (
                [encode.encode(text, add_special_tokens=add_special_tokens) for text in texts]
                if is_few
                else encode.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
            )
        except TypeError as error:  # how the library refuses a string that has no UTF-8 form
            raise InvalidRequest(
                "the text holds a lone surrogate (half of a UTF-16 pair); send valid Unicode"
            ) from error
        # A Rust panic is no `Exception`: unchecked, one odd text would take the server down.
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise InvalidRequest(
                f"the tokenizer library cannot split this text: {error}; the model's added tokens "
                "overlap in a way it does not handle"
            ) from error
        return [np.array(encoding.ids, dtype=np.int32) for encoding in batch]

    def decode(
        self, token_ids: Sequence[int] | TokenIds, *, skip_special_tokens: bool = True
    ) -> str:
        """Return the text of `token_ids`; broken UTF-8 becomes U+FFFD, unknown ids nothing."""
        ids = [int(token_id) for token_id in token_ids]
        return self._backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def decode_stream(self, *, skip_special_tokens: bool = True) -> DecodeStream:
        """Return a stream that decodes one reply as it comes."""
        hidden = self.special_token_ids if skip_special_tokens else frozenset()
        if self._token_bytes.is_byte_level:
            return ByteStream(lambda i: b"" if i in hidden else self.token_bytes(i) or b"")
        return WindowStream(
            lambda ids: self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens),
            is_visible=lambda i: i not in hidden and self._backend.id_to_token(i) is not None,
            is_open=self._token_bytes.is_byte_token,
        )


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise InvalidInput(
            f"no {path.name} in {path.parent}: name a Hugging Face model directory with a fast "
            "tokenizer, or save one there with transformers' save_pretrained"
        )
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    # The library raises bare Exception for whatever is wrong with a file.
    except Exception as error:
        raise InvalidInput(f"{path} is not a tokenizer file: {error}; fetch it again") from error


def _types_of(component: Any) -> set[str]:
    """Names of the parts of a normaliser or pre-tokenizer, nested ones included."""
    return set() if component is None else set(_types_in(json.loads(component.__getstate__())))


def _types_in(state: Any) -> Iterable[str]:
    if isinstance(state, dict):
        if isinstance(state.get("type"), str):
            yield state["type"]
        for value in state.values():
            yield from _types_in(value)
    elif isinstance(state, list):
        for item in state:
            yield from _types_in(item)
