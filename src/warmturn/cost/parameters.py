"""How many parameters a config describes: for weights in memory and operations per token.

An estimate from shapes, norms and biases left out; a model card's figure is better where there is
one. Covers decoders with gated MLPs, dense or with experts, and MLA.
"""

from dataclasses import dataclass

from warmturn.cost.config_fields import ConfigFields
from warmturn.cost.geometry import HeadCache, LatentCache, Layer, ModelGeometry

__all__ = ["ParameterCount", "count_parameters"]


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters of one model."""

    total: float
    active: float
    """Used for one token: all but the experts it is not sent to."""
    source: str
    """Where the figures are from, for people."""


def count_parameters(fields: ConfigFields, geometry: ModelGeometry) -> ParameterCount | None:
    """Return the estimate; None where the fields it needs are not there."""
    hidden = fields.number_or_none("hidden_size", "n_embd", "d_model")
    vocab = fields.number_or_none("vocab_size", "padded_vocab_size")
    inner = fields.number_or_none("intermediate_size", "ffn_hidden_size", "n_inner")
    has_states = any(layer.state is not None for layer in geometry.layers)
    if hidden is None or vocab is None or has_states:
        return None
    experts = _Experts.of(fields)
    if inner is None and experts is None:
        return None
    num_matrices = 2 if fields.model_type in _UNGATED else 3
    embeddings = vocab * hidden * (1 if fields.flag("tie_word_embeddings") else 2)
    total = active = float(embeddings)
    for index, layer in enumerate(geometry.layers):
        attention = _attention(fields, layer, geometry, hidden)
        every, used = (
            experts.of_layer(index, hidden, inner)
            if experts is not None
            else (num_matrices * hidden * (inner or 0),) * 2
        )
        total += attention + every
        active += attention + used
    return ParameterCount(total, active, "estimated from the config's shapes")


def _attention(fields: ConfigFields, layer: Layer, geometry: ModelGeometry, hidden: int) -> float:
    heads, dim = geometry.num_query_heads, geometry.head_dim
    match layer.cache:
        case LatentCache() as cache:
            value_dim = fields.number_or_none("v_head_dim") or dim
            rank = fields.number_or_none("q_lora_rank")
            query = hidden * rank + rank * heads * dim if rank else hidden * heads * dim
            keys = hidden * (cache.latent_dim + cache.rope_dim)
            expand = cache.latent_dim * heads * (dim - cache.rope_dim + value_dim)
            return query + keys + expand + heads * value_dim * hidden
        case HeadCache() as cache:
            query_and_output = 2 * hidden * heads * cache.key_dim
            return query_and_output + hidden * cache.elements_per_token
        case None:
            return 2 * hidden * heads * dim if layer.is_shared else 0.0


_UNGATED = {"starcoder2", "nemotron", "phi", "gpt_neox", "gptj", "opt", "bloom", "gpt_bigcode"}
"""Families whose MLP has two matrices instead of three."""


@dataclass(frozen=True, slots=True)
class _Experts:
    num: int
    num_used: int
    num_shared: int
    inner: int
    shared_inner: int
    num_dense_first: int
    step: int
    """Every so many layers have experts."""
    dense_inner: int | None

    @classmethod
    def of(cls, fields: ConfigFields) -> "_Experts | None":
        num = fields.number_or_none(
            "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"
        )
        used = fields.number_or_none(
            "num_experts_per_tok", "moe_topk", "moe_top_k", "top_k_experts"
        )
        if num is None or used is None or num < 2:
            return None
        inner = fields.number_or_none(
            "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"
        )
        shared = fields.number_or_none("n_shared_experts", "num_shared_experts", least=0) or 0
        shared_inner = fields.number_or_none("shared_expert_intermediate_size", least=0)
        if inner is None:
            return None
        dense = fields.number_or_none("first_k_dense_replace", least=0) or 0
        step = fields.number_or_none("interleave_moe_layer_step", "decoder_sparse_step") or 1
        other = fields.number_or_none("intermediate_size_mlp")
        inner_of_shared = shared_inner or shared * inner
        return cls(num, used, shared, inner, inner_of_shared, dense, step, other)

    def of_layer(self, index: int, hidden: int, dense_inner: int | None) -> tuple[float, float]:
        is_dense = index < self.num_dense_first or (index + 1) % self.step
        dense_inner = self.dense_inner or dense_inner
        if is_dense and dense_inner is not None:
            return (3.0 * hidden * dense_inner,) * 2
        router = hidden * self.num
        shared = 3 * hidden * self.shared_inner
        one = 3 * hidden * self.inner
        return router + shared + one * self.num, router + shared + one * self.num_used
