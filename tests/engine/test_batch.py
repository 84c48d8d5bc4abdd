import numpy as np
import torch

from warmturn.engine.batch import lay_out
from warmturn.replica.step import Work

CPU = torch.device("cpu")


def work(name, tokens, position, blocks, *, samples=True):
    return Work(
        request_id=name,
        token_ids=np.array(tokens, np.int32),
        position=position,
        block_ids=np.array(blocks, np.int32),
        samples=samples,
        is_decode=False,
    )


def test_a_mixed_step_is_laid_out_single_tokens_first():
    """Block size 4: `chunk` goes over a block's border, `decode` begins a new block."""
    works = [
        work("chunk", [10, 11, 12], 6, [5, 3, 8]),
        work("decode", [20], 4, [7, 2]),
        work("fresh", [30, 31], 0, [1], samples=False),
    ]
    batch = lay_out(works, block_size=4, device=CPU)
    assert batch.token_ids.tolist() == [20, 10, 11, 12, 30, 31]
    assert batch.positions.tolist() == [4, 6, 7, 8, 0, 1]
    assert batch.blocks.tolist() == [2, 3, 3, 8, 1, 1]
    assert batch.rows.tolist() == [0, 2, 3, 0, 0, 1]
    assert batch.singles.rows.tolist() == [0]
    assert batch.singles.tables.tolist() == [[7, 2]]
    assert batch.singles.lengths.tolist() == [5]
    chunk, fresh = batch.chunks
    assert (chunk.start, chunk.stop, chunk.position) == (1, 4, 6)
    assert chunk.past_blocks.tolist() == [5, 3]
    assert (fresh.start, fresh.stop, fresh.position) == (4, 6, 0)
    assert fresh.past_blocks.tolist() == []


def test_sampled_rows_follow_the_steps_order_and_see_whole_sequences():
    works = [
        work("chunk", [10, 11, 12], 6, [5, 3, 8]),
        work("silent", [30], 0, [1], samples=False),
        work("decode", [20], 4, [7, 2]),
    ]
    sampled = lay_out(works, block_size=4, device=CPU).sampled
    assert sampled.rows.tolist() == [4, 1]
    assert sampled.lengths.tolist() == [9, 5]
    assert sampled.tables.tolist() == [[5, 3, 8], [7, 2, 0]]
    assert sampled.num_cached_tokens == 14
    assert len(sampled) == 2


def test_spare_blocks_at_the_end_of_a_table_are_left_out():
    """A plan may hold blocks for tokens to come."""
    batch = lay_out([work("a", [1], 3, [9, 8, 7])], block_size=4, device=CPU)
    assert batch.singles.tables.tolist() == [[9]]


def test_a_step_that_samples_nothing_has_empty_tables():
    batch = lay_out([work("a", [1, 2], 0, [3], samples=False)], block_size=4, device=CPU)
    assert len(batch.sampled) == 0
    assert len(batch.singles) == 0
    assert batch.sampled.tables.shape == (0, 0)
