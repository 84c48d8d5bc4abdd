"""KV heads and head sizes of each layer: one number, a list, or two geometries in one model."""

from dataclasses import dataclass

from warmturn.cost.config_fields import ConfigFields

__all__ = ["HeadShape", "head_shapes"]

_WHY_HEADS = "each KV head keeps a key and a value per token"
_WHY_DIM = "it is the length of a key, and not always hidden_size / num_attention_heads"
_QUERY = ("num_attention_heads", "num_query_heads", "n_head", "n_heads", "num_heads")
_PER_LAYER = (
    "num_key_value_heads_per_layer",
    "head_count_kv",
    "num_key_value_heads",
    "num_kv_heads",
)


@dataclass(frozen=True, slots=True)
class HeadShape:
    """One layer's heads, if it attends to everything and if it keeps a window."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window_kv_heads: int
    window_key_dim: int
    window_value_dim: int


def head_shapes(config: ConfigFields, num_layers: int) -> list[HeadShape | None]:
    """Return the shape of each layer; None for layers without attention.

    Layers of a model with MLA have a shape nobody reads. Raises `InvalidInput`.
    """
    if "kv_lora_rank" in config or _has_no_attention(config):
        return [HeadShape(1, 1, 1, 1, 1, 1)] * num_layers
    kv_heads = _kv_heads(config, num_layers)
    if len(kv_heads) < num_layers:  # pragma: no cover - lengths are checked where lists are read
        raise config.error(f"names {len(kv_heads)} layers' KV heads", _WHY_HEADS)
    return [None if not heads else _shape(config, heads) for heads in kv_heads]


def _has_no_attention(config: ConfigFields) -> bool:
    return config.model_type in {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"}


def _shape(config: ConfigFields, kv_heads: int) -> HeadShape:
    base_dim = _head_dim(config)
    value_dim = config.number_or_none("v_head_dim") or base_dim
    full_heads, full_key, full_value = kv_heads, base_dim, value_dim
    if "global_head_dim" in config:  # Gemma 4: the global layers have longer, fewer heads
        full_key = full_value = config.number("global_head_dim", why=_WHY_DIM)
    full_heads = config.number_or_none("num_global_key_value_heads") or full_heads
    window_key = config.number_or_none("swa_head_dim") or base_dim  # MiMo-V2
    window_value = config.number_or_none("swa_v_head_dim", "swa_head_dim") or value_dim
    window_heads = config.number_or_none("swa_num_key_value_heads") or kv_heads
    return HeadShape(full_heads, full_key, full_value, window_heads, window_key, window_value)


def _head_dim(config: ConfigFields) -> int:
    given = config.number_or_none("head_dim", "attention_head_dim", "kv_channels", "d_kv")
    if given is not None:
        return given
    hidden = config.number("hidden_size", "n_embd", "d_model", why=_WHY_DIM)
    heads = config.number(*_QUERY, why=_WHY_DIM)
    if hidden % heads:
        raise config.error(
            f"has no head_dim, and {heads} heads do not divide hidden_size {hidden}", _WHY_DIM
        )
    return hidden // heads


def _kv_heads(config: ConfigFields, num_layers: int) -> list[int]:
    """Return KV heads per layer; 0 where a layer has no attention."""
    blocks = config.raw("block_configs")
    if isinstance(blocks, list):
        return _kv_heads_of_blocks(config, blocks, num_layers)
    for field in _PER_LAYER:
        numbers = config.numbers(field, length=num_layers)
        if numbers is not None:
            return numbers
    return [_one_kv_heads(config)] * num_layers


def _one_kv_heads(config: ConfigFields) -> int:
    inner = config.nested("attn_config")
    given = None if inner is None else inner.number_or_none("kv_n_heads")  # DBRX, MPT
    if given is not None:
        return given
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1  # Falcon 7B, StarCoder
    if config.flag("multi_query_attention"):
        return config.number("multi_query_group_num", why=_WHY_HEADS)  # ChatGLM
    given = config.number_or_none(
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "head_count_kv", "num_query_groups"
    )
    return given or config.number(*_QUERY, why=_WHY_HEADS)


def _kv_heads_of_blocks(config: ConfigFields, blocks: list[object], num_layers: int) -> list[int]:
    """Nemotron-NAS: each layer names the size of its groups of query heads, or has no attention."""
    if len(blocks) != num_layers:
        raise config.error(f"has {len(blocks)} block_configs for {num_layers} layers", _WHY_HEADS)
    query_heads = config.number(*_QUERY, why=_WHY_HEADS)
    heads = []
    for index, block in enumerate(blocks):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise config.error(f"has block_configs[{index}] without attention", _WHY_HEADS)
        inner = ConfigFields(attention, name=f"{config.name}, block_configs[{index}].attention")
        if inner.flag("no_op") or inner.flag("replace_with_linear"):
            heads.append(0)
        else:
            heads.append(query_heads // inner.number("n_heads_in_group", why=_WHY_HEADS))
    return heads
