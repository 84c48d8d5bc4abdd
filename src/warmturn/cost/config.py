"""A model's config.json → what each of its layers keeps.

Fields are read by meaning, not by family, so that a new model of a known kind needs no new code.
What cannot be known from the fields is an error that names the field: a wrong geometry sizes every
pool, tier and simulator wrong.
"""

import re
from collections.abc import Mapping
from typing import Any

from warmturn.cost.config_fields import ConfigFields
from warmturn.cost.geometry import HeadCache, LatentCache, Layer, LayerCache, ModelGeometry
from warmturn.cost.heads import HeadShape, head_shapes
from warmturn.cost.layer_kinds import LayerKind, layer_kinds
from warmturn.cost.states import state_of

__all__ = ["geometry_of"]

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_transformer_layers", "num_layers")
_WHY_LAYERS = "every layer keeps keys and values of its own"
_MOST_LAYERS = 10_000

_NOT_KNOWN = re.compile(
    r"compress_ra|kv_compress|block_sparse|sparse_attention|^dense_attention|kv_source|"
    r"kv_reuse|^mb_per_layer$|loop_layer|recurrent_loops|n_recurrent|kv_aggregation"
)
"""Fields of models whose cache follows rules that are not here: refused, not guessed."""


def geometry_of(config: Mapping[str, Any], *, name: str = "the model") -> ModelGeometry:
    """Return the geometry of a config in the Hugging Face form.

    Fields may stand under `text_config` and its like. Raises `InvalidInput` naming the field that
    is missing, wrong or not known, and why it matters.
    """
    fields = ConfigFields(config, name=name)
    _refuse_unknown(fields)
    num_layers = fields.number(*_LAYERS, why=_WHY_LAYERS)
    if num_layers > _MOST_LAYERS:
        raise fields.error(f"has {num_layers} layers", f"at most {_MOST_LAYERS} are believed")
    kinds = layer_kinds(fields, num_layers)
    _refuse_states_nowhere(fields, kinds)
    heads = head_shapes(fields, num_layers)
    layers = [_layer(fields, kind, heads[index], index) for index, kind in enumerate(kinds)]
    _share(fields, layers)
    if fields.model_type == "longcat_flash":
        layers = [layer for layer in layers for _ in range(2)]  # two attentions per layer
    return ModelGeometry(
        name,
        tuple(layers),
        num_query_heads=fields.number_or_none(*_QUERY_HEADS) or 0,
        head_dim=_query_dim(fields, heads),
        speculative_layers=_speculative(fields, layers),
        notes=tuple(_notes(fields, layers)),
    )


_QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")


def _refuse_unknown(fields: ConfigFields) -> None:
    if fields.flag("is_encoder_decoder"):
        raise fields.error(
            "is an encoder-decoder's", "its decoder also keeps keys and values of the encoder"
        )
    unknown = sorted(name for name in fields.names if _NOT_KNOWN.search(name))
    if unknown:
        raise fields.error(
            f"has {', '.join(unknown)}",
            "that changes what a token keeps in a way that is not known here; give the measured "
            "bytes per token of the engine's start log instead (--kv-bytes)",
        )


_STATE_FIELD = re.compile(r"^(mamba_|ssm_|rwkv|lru_|linear_(num|key|value)_|n_mamba)")


def _refuse_states_nowhere(fields: ConfigFields, kinds: list[LayerKind]) -> None:
    """A hybrid that does not say which layers are recurrent would be sized as if none were."""
    found = sorted(name for name in fields.names if _STATE_FIELD.match(name))
    if found and not {"linear", "parallel"} & set(kinds):
        raise fields.error(
            f"has {found[0]} but no known field that says which layers are recurrent",
            "a recurrent layer keeps one state, an attention layer keeps every token",
        )


def _layer(fields: ConfigFields, kind: LayerKind, shape: HeadShape | None, index: int) -> Layer:
    if kind == "none" or (kind != "linear" and shape is None):
        return Layer()  # an MLP, or attention that a search replaced by nothing
    if kind == "linear":
        return Layer(state=state_of(fields))
    cache = _cache(fields, kind, shape, index)
    return Layer(cache, state_of(fields) if kind == "parallel" else None)


def _cache(
    fields: ConfigFields, kind: LayerKind, shape: HeadShape | None, index: int
) -> LayerCache:
    window = _window(fields, kind)
    if "kv_lora_rank" in fields:
        return _latent(fields, window, index)
    assert shape is not None
    if kind in {"window", "chunk"}:
        return HeadCache(
            shape.window_kv_heads, shape.window_key_dim, shape.window_value_dim, window
        )
    return HeadCache(shape.num_kv_heads, shape.key_dim, shape.value_dim)


def _window(fields: ConfigFields, kind: LayerKind) -> int | None:
    if kind == "window":
        return fields.number(
            "sliding_window",
            "sliding_window_size",
            "attention_window_size",
            "window_size",
            why="a window layer keeps that many tokens and no more",
        )
    if kind == "chunk":
        return fields.number(
            "attention_chunk_size", why="a chunked layer keeps at most one chunk of tokens"
        )
    return None


def _latent(fields: ConfigFields, window: int | None, index: int) -> LatentCache:
    return LatentCache(
        fields.number("kv_lora_rank", why="it is the size of the latent each token keeps"),
        fields.number("qk_rope_head_dim", why="the rotary part is kept beside the latent", least=0),
        _index_dim(fields, index),
        window,
    )


def _index_dim(fields: ConfigFields, index: int) -> int | None:
    """Return the size of the indexer's key; layers that take another one's choice have none."""
    types = fields.words("indexer_types")
    if types is not None and index < len(types) and types[index] == "shared":
        return None
    return fields.number_or_none("index_head_dim")


def _share(fields: ConfigFields, layers: list[Layer]) -> None:
    """Take the keys and values from layers that read those of an earlier one."""
    shared: set[int] = set()
    last = fields.number_or_none("num_kv_shared_layers", least=0) or 0
    shared.update(range(max(0, len(layers) - last), len(layers)))
    factor = fields.number_or_none("cla_share_factor") if fields.flag("use_cla") else None
    if factor is not None:  # Hunyuan: of each run of `factor` layers the first one owns
        shared.update(i for i in range(len(layers)) if i % factor)
    cross = fields.numbers("cross_attention_layers") or []
    for index in shared:
        if layers[index].cache is not None:
            layers[index] = Layer(None, layers[index].state, is_shared=True)
    for index in cross:
        if index < len(layers):
            layers[index] = Layer()  # its keys are the image's, none per token of text


def _speculative(fields: ConfigFields, layers: list[Layer]) -> tuple[Layer, ...]:
    num = fields.number_or_none(
        "num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", least=0
    )
    owning = [layer for layer in layers if layer.cache is not None]
    if not num or not owning:
        return ()
    full = [layer for layer in owning if layer.cache and layer.cache.window_tokens is None]
    return (Layer((full or owning)[-1].cache),) * num


def _query_dim(fields: ConfigFields, heads: list[HeadShape | None]) -> int:
    if "kv_lora_rank" in fields:
        nope = fields.number_or_none("qk_nope_head_dim", least=0) or 0
        return nope + (fields.number_or_none("qk_rope_head_dim", least=0) or 0)
    return next((shape.key_dim for shape in heads if shape is not None), 0)


def _notes(fields: ConfigFields, layers: list[Layer]) -> list[str]:
    notes = []
    if any(layer.state is not None for layer in layers):
        notes.append(
            "recurrent layers keep one state per sequence, and one more per saved prefix where "
            "the engine keeps states for prefix caching"
        )
    if fields.numbers("cross_attention_layers"):
        notes.append("cross-attention layers keep the image's keys and values, not counted here")
    if any(layer.is_shared for layer in layers):
        notes.append("layers that read an earlier layer's keys and values keep none")
    return notes
