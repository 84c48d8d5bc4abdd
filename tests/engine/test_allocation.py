import mmap

import numpy as np
import pytest
import torch

from tests.support.tiny_models import save_tiny_model
from warmturn.engine.allocation import allocating
from warmturn.engine.executor import Executor
from warmturn.errors import InvalidInput

HUGE = 1 << 60


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: mmap.mmap(-1, HUGE),
        lambda: mmap.mmap(-1, 1 << 70),
        lambda: np.empty(HUGE, np.uint8),
        lambda: torch.empty(HUGE, dtype=torch.uint8),
    ],
    ids=["mmap", "mmap beyond 64 bits", "numpy", "torch"],
)
def test_whatever_a_library_says_of_missing_memory_is_one_clear_error(allocate):
    with (
        pytest.raises(InvalidInput, match=r"^a pool needs 2\.0 GB of memory.*; lower it$"),
        allocating("a pool", 2_000_000_000, remedy="lower it"),
    ):
        allocate()


@pytest.mark.parametrize("sizes", [{"num_blocks": 10**12}, {"block_size": 10**30}])
def test_a_pool_larger_than_memory_is_refused_with_its_size(tmp_path, sizes):
    save_tiny_model(tmp_path)
    with pytest.raises(InvalidInput, match=r"GB of memory.*lower --num-blocks"):
        Executor(tmp_path, dtype="float32", **{"num_blocks": 4, "block_size": 4} | sizes)


def test_an_absurd_model_length_is_refused_by_its_name(tmp_path):
    save_tiny_model(tmp_path, max_position_embeddings=10**13)
    with pytest.raises(InvalidInput, match="max_position_embeddings"):
        Executor(tmp_path, dtype="float32", num_blocks=4)


def test_no_threads_are_refused(tmp_path):
    save_tiny_model(tmp_path)
    with pytest.raises(InvalidInput, match="0 threads"):
        Executor(tmp_path, num_blocks=4, num_threads=0)


@pytest.mark.parametrize("longest", [1, 5, 33])
def test_a_model_shorter_than_two_blocks_warms_up_within_its_length(tmp_path, longest):
    save_tiny_model(tmp_path, max_position_embeddings=longest)
    Executor(tmp_path, dtype="float32", num_blocks=4).warm_up()
