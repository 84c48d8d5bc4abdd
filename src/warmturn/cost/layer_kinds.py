"""Which layers of a model keep what: from the many ways in which configs say it.

A list of names, a string of letters, a period with an offset, a list of indices, or only the
family's habit. The first rule that applies decides; a word that no rule knows is an error, since a
layer of unknown kind can cost anything between nothing and all.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from warmturn.cost.config_fields import ConfigFields

__all__ = ["LayerKind", "layer_kinds"]

LayerKind: TypeAlias = Literal["full", "window", "chunk", "linear", "parallel", "none"]
"""`linear`: a state only; `parallel`: keys, values and a state; `none`: nothing (an MLP)."""

_WHY = "each layer's kind decides whether it keeps all tokens, a window, or one state"

_WORDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "global": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "window",
    "sliding_window_attention": "window",
    "local_attention": "window",
    "local_sliding": "window",
    "chunked_attention": "chunk",
    "linear_attention": "linear",
    "lightning_attention": "linear",
    "kda": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "conv": "linear",
    "recurrent": "linear",
    "hybrid": "parallel",
    "mlp": "none",
    "moe": "none",
}

_LETTERS: dict[str, LayerKind] = {"M": "linear", "*": "full", "-": "none", "E": "none"}
"""Of Nemotron-H: Mamba, attention, MLP, experts."""


def layer_kinds(config: ConfigFields, num_layers: int) -> list[LayerKind]:
    """Return the kind of each layer. Raises `InvalidInput` for kinds nobody knows."""
    for rule in _RULES:
        kinds = rule(config, num_layers)
        if kinds is not None:
            return kinds
    return ["full"] * num_layers


def _by_words(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    for field in ("layer_types", "layers_block_type"):
        words = config.words(field, length=num_layers)
        if words is not None:
            return [_kind_of_word(config, field, word) for word in words]
    return None


def _kind_of_word(config: ConfigFields, field: str, word: str) -> LayerKind:
    if config.model_type == "zamba2" and word == "hybrid":
        return "parallel"  # a Mamba layer with a block of shared weights, K/V of its own
    kind = _WORDS.get(word)
    if kind is None:
        raise config.error(f"has a layer of kind {word[:40]!r} in {field}", _WHY)
    return kind


def _by_letters(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    pattern = config.raw("hybrid_override_pattern")
    if not isinstance(pattern, str):
        return None
    letters = [letter for letter in pattern if letter != "|"]
    unknown = set(letters) - _LETTERS.keys()
    if unknown or len(letters) != num_layers:
        raise config.error(
            f"has hybrid_override_pattern {pattern[:40]!r} for {num_layers} layers", _WHY
        )
    return [_LETTERS[letter] for letter in letters]


def _by_cycle(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    """RecurrentGemma: a cycle of names; its attention is a window."""
    words = config.words("block_types")
    if words is None:
        return None
    if not words:
        raise config.error("has an empty block_types", _WHY)
    cycle = [_kind_of_word(config, "block_types", word) for word in words]
    windowed: list[LayerKind] = [
        "window" if kind == "full" and "attention_window_size" in config else kind for kind in cycle
    ]
    return [windowed[index % len(windowed)] for index in range(num_layers)]


def _by_numbers(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    """Lists of 0 and 1 per layer, and lists of the layers that are one thing or the other."""
    for field, zero, one in _NUMBERED:
        numbers = config.numbers(field, length=num_layers)
        if numbers is not None:
            return [one if number else zero for number in numbers]
    for field, listed, others, first in _INDEXED:
        indices = config.numbers(field)
        if indices is not None:
            chosen = {index - first for index in indices}
            return [listed if index in chosen else others for index in range(num_layers)]
    inner = config.nested("linear_attn_config")
    full = None if inner is None else inner.numbers("full_attn_layers")
    if full is None:
        return None
    return ["full" if index + 1 in full else "linear" for index in range(num_layers)]


_NUMBERED: tuple[tuple[str, LayerKind, LayerKind], ...] = (
    ("attn_type_list", "linear", "full"),  # MiniMax-Text-01
    ("hybrid_layer_pattern", "full", "window"),  # MiMo-V2
    ("no_rope_layers", "full", "chunk"),  # Llama 4: 1 has rotary embeddings and chunks
)
_INDEXED: tuple[tuple[str, LayerKind, LayerKind, int], ...] = (
    ("attn_layer_indices", "full", "linear", 0),  # Bamba
    ("full_attn_idxs", "full", "linear", 0),  # LFM2
    ("hybrid_layer_ids", "parallel", "linear", 0),  # Zamba2
)


def _by_period(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    """Every n-th layer is attention: Jamba names an offset, the others count from 1."""
    period = config.number_or_none("attn_layer_period")
    if period is not None:
        offset = config.number_or_none("attn_layer_offset", least=0) or 0
        return ["full" if i % period == offset else "linear" for i in range(num_layers)]
    interval = config.number_or_none("full_attention_interval")
    if interval is not None:
        return ["linear" if (i + 1) % interval else "full" for i in range(num_layers)]
    return None


def _by_window_pattern(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    """Every n-th layer is global, the others keep a window."""
    if "sliding_window" not in config:
        return None
    pattern = config.number_or_none("sliding_window_pattern", "_sliding_window_pattern")
    pattern = pattern or _HABITS.get(config.model_type)
    if pattern is None:
        return None
    return ["window" if (i + 1) % pattern else "full" for i in range(num_layers)]


_HABITS = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gemma4": 6,
    "cohere2": 4,
    "gpt_oss": 2,
    "olmo3": 4,
    "exaone4": 4,
}
"""Every n-th layer is global where a family's config does not say it."""


def _by_switch(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    """Qwen: `use_sliding_window`, off in nearly all, and the layer from which on it holds."""
    if "use_sliding_window" not in config:
        return None
    if not config.flag("use_sliding_window"):
        return ["full"] * num_layers
    first = config.number_or_none("max_window_layers", least=0) or 0
    return ["window" if index >= first else "full" for index in range(num_layers)]


def _by_whole_model(config: ConfigFields, num_layers: int) -> list[LayerKind] | None:
    """Recurrent models without any attention, parallel hybrids, and one window for all layers."""
    if config.model_type in {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"}:
        return ["linear"] * num_layers
    if config.model_type == "falcon_h1":
        return ["parallel"] * num_layers
    if "sliding_window" in config:
        return ["window"] * num_layers
    if config.model_type == "llama4" and "attention_chunk_size" in config:
        every = config.number_or_none("no_rope_layer_interval") or 4
        return ["chunk" if (i + 1) % every else "full" for i in range(num_layers)]
    return None


_Rule: TypeAlias = Callable[[ConfigFields, int], list[LayerKind] | None]
_RULES: Sequence[_Rule] = (
    _by_words,
    _by_letters,
    _by_cycle,
    _by_numbers,
    _by_period,
    _by_window_pattern,
    _by_switch,
    _by_whole_model,
)
