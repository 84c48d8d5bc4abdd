import mmap

import pytest
import torch

from tests.support.tiny_models import save_tiny_model
from warmturn.engine.model_config import ModelConfig
from warmturn.engine.paged_kv import PagedKv

BLOCK_SIZE = 4


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    directory = tmp_path_factory.mktemp("llama")
    save_tiny_model(directory)
    return ModelConfig.from_directory(directory)


def pool(config, dtype=torch.float32):
    return PagedKv(
        config, num_blocks=6, block_size=BLOCK_SIZE, dtype=dtype, device=torch.device("cpu")
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_written_token_by_token_is_gathered_in_order(config, dtype):
    kv = pool(config, dtype)
    assert kv.num_blocks == 6
    assert not kv.tensor.any()
    tokens = torch.randn(10, 2, config.num_kv_heads, config.head_dim).to(dtype)
    table = torch.tensor([4, 1, 3])
    positions = torch.arange(10)
    kv.write(1, table[positions // BLOCK_SIZE], positions % BLOCK_SIZE, tokens)
    gathered = kv.gather(1, table, 10)
    assert torch.equal(gathered, tokens.permute(1, 2, 0, 3))
    assert not kv.tensor[:, 0].any()  # the other layer


def test_a_block_is_one_run_of_bytes_in_the_stated_order(config):
    kv = pool(config)
    assert kv.tensor.is_contiguous()
    one = torch.ones(1, 2, config.num_kv_heads, config.head_dim)
    one[:, 1] = 2.0
    kv.write(0, torch.tensor([2]), torch.tensor([3]), one)
    assert (kv.tensor[2, 0, 0, :, 3] == 1.0).all()  # keys
    assert (kv.tensor[2, 0, 1, :, 3] == 2.0).all()  # values


def test_a_system_without_huge_pages_still_gets_its_memory(config, monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert pool(config).tensor.shape[0] == 6
