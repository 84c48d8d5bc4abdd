import math

import pytest
import torch

from tests.support.tiny_models import config_of
from warmturn.engine.model_config import Llama3Scaling
from warmturn.engine.rope import _stretch, rotate


def test_a_rotation_turns_each_pair_by_its_angle():
    angles = torch.tensor([0.3, 1.1])
    cos, sin = angles.cos(), angles.sin()
    heads = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    turned = rotate(heads, torch.cat((cos, cos)), torch.cat((-sin, sin)))[0, 0]
    for i in range(2):
        pair = complex(heads[0, 0, i], heads[0, 0, i + 2]) * complex(cos[i], sin[i])
        assert complex(turned[i], turned[i + 2]) == pytest.approx(pair, abs=1e-6)


def test_llama3_keeps_fast_frequencies_and_slows_slow_ones():
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 1000)
    turns = torch.tensor([100.0, 4.0, 2.5, 1.0, 0.01])  # over the original context
    frequencies = turns * 2 * math.pi / 1000
    ratio = _stretch(frequencies, scaling) / frequencies
    expected = torch.tensor([1.0, 1.0, 0.5 + 0.5 / 8, 1 / 8, 1 / 8])
    torch.testing.assert_close(ratio, expected)


def test_the_llama3_tests_reach_all_three_ranges():
    """The comparison with transformers would pass without scaling if no frequency changed."""
    config = config_of("llama3")
    head_dim = config.hidden_size // config.num_attention_heads
    frequencies = 1 / 10_000 ** (torch.arange(0, head_dim, 2) / head_dim)
    turns = frequencies * 32 / (2 * math.pi)
    assert (turns > 4).any()
    assert (turns < 1).any()
