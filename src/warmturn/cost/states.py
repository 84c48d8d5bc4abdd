"""The state a recurrent layer keeps per sequence, by the fields its config has.

    gated delta rule   Qwen3-Next, Qwen3.5      linear_*
    KDA                Kimi Linear              linear_attn_config
    lightning          MiniMax-Text-01          heads x head_dim x head_dim
    Mamba 2            Nemotron-H, Bamba, ...   heads x head_dim x d_state
    Mamba 1            Jamba, Mamba             d_inner x d_state
    RG-LRU             RecurrentGemma           lru_width
    short convolution  LFM2                     hidden_size, no recurrent part

A causal convolution of width k keeps the last k - 1 inputs of each channel.
"""

from warmturn.cost.config_fields import ConfigFields
from warmturn.cost.geometry import StateCache

__all__ = ["state_of"]

_WHY = "the layer's state is part of what each sequence keeps"


def state_of(config: ConfigFields) -> StateCache:
    """Return the state of one recurrent layer. Raises `InvalidInput` where no rule fits."""
    for rule in (_delta, _kda, _mamba_2, _mamba_1, _lru, _short_conv, _lightning):
        state = rule(config)
        if state is not None:
            return state
    raise config.error(
        "has recurrent layers but none of the fields that give their size "
        "(linear_*, linear_attn_config, mamba_*, ssm_state_size, lru_width, conv_L_cache)",
        _WHY,
    )


def _delta(config: ConfigFields) -> StateCache | None:
    if "linear_num_value_heads" not in config:
        return None
    value_heads = config.number("linear_num_value_heads", why=_WHY)
    key_dim = config.number("linear_key_head_dim", why=_WHY)
    value_dim = config.number("linear_value_head_dim", why=_WHY)
    channels = 2 * config.number("linear_num_key_heads", why=_WHY) * key_dim
    channels += value_heads * value_dim
    width = config.number("linear_conv_kernel_dim", why=_WHY)
    return StateCache(channels * (width - 1), value_heads * key_dim * value_dim)


def _kda(config: ConfigFields) -> StateCache | None:
    inner = config.nested("linear_attn_config")
    fields = inner if inner is not None else config
    heads = fields.number_or_none("num_heads" if inner is not None else "linear_num_heads")
    if heads is None:
        return None
    head_dim = fields.number("head_dim" if inner is not None else "linear_head_dim", why=_WHY)
    width = fields.number("short_conv_kernel_size", "linear_conv_kernel_dim", why=_WHY)
    return StateCache(3 * heads * head_dim * (width - 1), heads * head_dim * head_dim)


def _mamba_2(config: ConfigFields) -> StateCache | None:
    heads = config.number_or_none("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    if heads is None and config.model_type == "mamba2":
        heads = config.number("num_heads", why=_WHY)
    if heads is None or config.model_type in {"jamba", "zamba"}:
        return None
    inner_dim = _inner_dim(config, heads)
    d_state = config.number("ssm_state_size", "mamba_d_state", "state_size", why=_WHY)
    groups = config.number_or_none("n_groups", "mamba_n_groups", "mamba_ngroups") or 1
    width = config.number("conv_kernel", "mamba_d_conv", why=_WHY)
    return StateCache((inner_dim + 2 * groups * d_state) * (width - 1), inner_dim * d_state)


def _inner_dim(config: ConfigFields, heads: int) -> int:
    head_dim = None
    for field in ("mamba_head_dim", "mamba_d_head", "head_dim"):
        is_of_state = field.startswith("mamba") or config.model_type == "mamba2"
        if is_of_state and config.raw(field) not in {None, "auto"}:
            head_dim = config.number(field, why=_WHY)
            break
    if head_dim is not None:
        return heads * head_dim
    given = config.number_or_none("mamba_d_ssm")
    expand = config.number_or_none("mamba_expand", "expand") or 2
    return given or expand * config.number("hidden_size", why=_WHY)


def _mamba_1(config: ConfigFields) -> StateCache | None:
    d_state = config.number_or_none("mamba_d_state", "state_size")
    if d_state is None:
        return None
    expand = config.number_or_none("mamba_expand", "expand") or 2
    inner_dim = config.number_or_none("intermediate_size") if _is_bare_mamba(config) else None
    inner_dim = inner_dim or expand * config.number("hidden_size", "d_model", why=_WHY)
    width = config.number("mamba_d_conv", "conv_kernel", why=_WHY)
    return StateCache(inner_dim * (width - 1), inner_dim * d_state)


def _is_bare_mamba(config: ConfigFields) -> bool:
    """Without attention there is no MLP either, and `intermediate_size` is the Mamba's."""
    return config.model_type in {"mamba", "falcon_mamba"}


def _lru(config: ConfigFields) -> StateCache | None:
    if config.model_type != "recurrent_gemma" and "lru_width" not in config:
        return None
    width = config.number("lru_width", "hidden_size", why=_WHY)
    return StateCache(width * (config.number("conv1d_width", why=_WHY) - 1), width)


def _short_conv(config: ConfigFields) -> StateCache | None:
    length = config.number_or_none("conv_L_cache")
    if length is None:
        return None
    return StateCache(config.number("hidden_size", why=_WHY) * (length - 1), 0)


def _lightning(config: ConfigFields) -> StateCache | None:
    if config.model_type not in {"minimax", "minimax_text_01", "MiniMaxText01"} and (
        "attn_type_list" not in config
    ):
        return None
    heads = config.number("num_attention_heads", why=_WHY)
    head_dim = config.number_or_none("head_dim")
    head_dim = head_dim or config.number("hidden_size", why=_WHY) // heads
    return StateCache(0, heads * head_dim * head_dim)
