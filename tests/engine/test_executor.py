"""The executor against transformers' own classes, float32, random tiny models."""

import numpy as np
import pytest
import torch

from tests.support.tiny_models import (
    KINDS,
    VOCAB_SIZE,
    Sequences,
    random_tokens,
    save_tiny_model,
    step,
    true_logits,
)
from warmturn.engine.api import Choice, SamplingParams
from warmturn.engine.executor import Executor, load
from warmturn.errors import BrokenInvariant, InvalidInput

NUM_BLOCKS, BLOCK_SIZE = 32, 4
GREEDY = Choice(SamplingParams(temperature=0), 0)


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """Our executor and transformers' model on the same weights."""
    directory = tmp_path_factory.mktemp(request.param)
    reference = save_tiny_model(directory, request.param)
    return executor_on(directory), reference


@pytest.fixture(scope="module")
def llama_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("llama")
    save_tiny_model(directory)
    return directory


@pytest.fixture
def llama(llama_dir):
    return executor_on(llama_dir)


def executor_on(model, **options):
    options = {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE, "dtype": "float32"} | options
    return Executor(model, **options)


def logits_in_chunks(executor, tokens, chunk, *, start=0, sequences=None):
    """Feed `tokens[start:]` in chunks; return the logits after the last."""
    sequences = sequences or Sequences(NUM_BLOCKS, BLOCK_SIZE)
    for position in range(start, len(tokens), chunk):
        work = sequences.work("a", tokens[position : position + chunk], position)
        logits = executor.logits(step(work))
    return logits


@pytest.mark.parametrize("chunk", [1, 2, 5, 8, 37])
def test_logits_equal_those_of_transformers_in_any_chunks(pair, chunk):
    executor, reference = pair
    tokens = random_tokens(37)
    logits = logits_in_chunks(executor, tokens, chunk)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits[0], true_logits(reference, tokens)[-1], atol=1e-4, rtol=0)


def test_a_batch_of_decodes_and_chunks_equals_each_alone(pair):
    executor, reference = pair
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE, seed=1)
    texts = {
        name: random_tokens(length, seed=length)
        for name, length in zip("abcd", (9, 17, 30, 5), strict=True)
    }
    known = {"a": 8, "b": 16, "c": 7, "d": 0}
    executor.logits(
        step(*(sequences.work(n, texts[n][:k], 0, samples=False) for n, k in known.items() if k))
    )
    # A chunk first and a silent one between: rows are put back in the step's order.
    order = ("c", "a", "d", "b")
    works = [sequences.work(n, texts[n][known[n] :], known[n], samples=n != "d") for n in order]
    logits = executor.logits(step(*works))
    expected = [true_logits(reference, texts[n])[-1] for n in order if n != "d"]
    torch.testing.assert_close(logits, torch.stack(expected), atol=1e-4, rtol=0)


def test_blocks_filled_by_one_request_serve_another(llama):
    tokens = random_tokens(30)
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    whole = logits_in_chunks(llama, tokens, 30, sequences=sequences)
    # Another request begins with the first 20 tokens: same blocks, own tail.
    sequences.blocks["b"] = sequences.blocks["a"][:5]
    reused = llama.logits(step(sequences.work("b", tokens[20:], 20)))
    torch.testing.assert_close(reused, whole, atol=1e-4, rtol=0)


def test_a_wrong_block_is_seen_in_the_logits(llama):
    """Without this the equality tests could pass while attention ignores the past."""
    tokens = random_tokens(30)
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    right = logits_in_chunks(llama, tokens[:29], 29, sequences=sequences)
    right = llama.logits(step(sequences.work("a", tokens[29:], 29)))
    llama.kv.tensor[sequences.blocks["a"][2]] = 0
    wrong = llama.logits(step(sequences.work("a", tokens[29:], 29)))
    assert (wrong - right).abs().max() > 0.05


def test_a_step_writes_only_to_its_own_blocks(llama):
    llama.kv.tensor.fill_(7.0)
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    llama.logits(step(sequences.work("a", random_tokens(10), 0)))
    mine = [int(block) for block in sequences.blocks["a"]]
    others = [block for block in range(NUM_BLOCKS) if block not in mine]
    assert (llama.kv.tensor[others] == 7.0).all()
    # Ten tokens: the last two rows of the third block stay as they were.
    assert (llama.kv.tensor[mine[2], :, :, :, 2:] == 7.0).all()
    assert (llama.kv.tensor[mine[:2]] != 7.0).all()


def test_rows_of_a_block_that_are_not_filled_do_not_count(llama):
    """A reused slot still holds what its last owner left there."""
    tokens = random_tokens(10)
    clean = logits_in_chunks(llama, tokens, 1)
    llama.kv.tensor.fill_(100.0)
    torch.testing.assert_close(logits_in_chunks(llama, tokens, 1), clean, atol=0, rtol=0)


def test_a_decode_does_not_depend_on_its_neighbours(llama):
    """Bit for bit in attention; the sums of a matrix product may depend on its height."""
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    texts = {name: random_tokens(20, seed=ord(name)) for name in "abcde"}
    llama.logits(step(*(sequences.work(n, t[:19], 0) for n, t in texts.items())))
    last = {n: sequences.work(n, t[19:], 19) for n, t in texts.items()}
    alone = llama.logits(step(last["c"]))
    together = llama.logits(step(*last.values()))
    torch.testing.assert_close(together[2:3], alone, atol=2e-5, rtol=0)


def test_the_plain_path_equals_the_kernels(llama_dir, monkeypatch):
    tokens = random_tokens(37)
    fast = executor_on(llama_dir)
    monkeypatch.setattr("warmturn.engine.attention._flash", lambda: None)
    monkeypatch.setattr("warmturn.engine.attention._decode_kernel", lambda *_: None)
    monkeypatch.setattr("warmturn.engine.linear._packing_pays", lambda _: False)
    plain = executor_on(llama_dir)
    for chunk in (1, 9):
        torch.testing.assert_close(
            logits_in_chunks(plain, tokens, chunk),
            logits_in_chunks(fast, tokens, chunk),
            atol=1e-4,
            rtol=0,
        )


def test_a_block_size_the_kernel_cannot_take_still_works(llama_dir, llama):
    tokens = random_tokens(25)
    odd = Executor(llama_dir, num_blocks=9, block_size=3, dtype="float32")
    logits = logits_in_chunks(odd, tokens, 6, sequences=Sequences(9, 3))
    torch.testing.assert_close(logits, logits_in_chunks(llama, tokens, 6), atol=1e-4, rtol=0)


def test_bfloat16_stays_near_float32(llama_dir, llama):
    tokens = random_tokens(37)
    rough = executor_on(llama_dir, dtype="bfloat16")
    assert rough.dtype == torch.bfloat16
    for chunk in (1, 9, 37):
        logits = logits_in_chunks(rough, tokens, chunk)
        exact = logits_in_chunks(llama, tokens, chunk)
        assert (logits - exact).norm() / exact.norm() < 0.1


def test_executors_may_share_one_loaded_model(llama_dir):
    model = load(llama_dir, "float32")
    one, other = executor_on(model), executor_on(model)
    tokens = random_tokens(12)
    assert torch.equal(logits_in_chunks(one, tokens, 12), logits_in_chunks(other, tokens, 12))
    assert one.kv.tensor.data_ptr() != other.kv.tensor.data_ptr()


def test_the_pool_has_one_run_of_bytes_per_block_and_never_grows(llama):
    config = llama.config
    assert llama.kv.tensor.shape == (
        NUM_BLOCKS, config.num_layers, 2, config.num_kv_heads, BLOCK_SIZE, config.head_dim,
    )  # fmt: skip
    assert llama.kv.tensor[3].is_contiguous()
    before = llama.kv.tensor.data_ptr()
    logits_in_chunks(llama, random_tokens(40), 7)
    assert llama.kv.tensor.data_ptr() == before


def test_execute_returns_one_token_per_sampling_work_in_order(llama):
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    works = [
        sequences.work("a", random_tokens(6), 0),
        sequences.work("b", random_tokens(9, seed=2), 0, samples=False),
        sequences.work("c", random_tokens(1, seed=3), 0),
    ]
    sampled = llama.execute(step(*works), {"a": GREEDY, "c": GREEDY})
    logits = llama.logits(step(*works))
    assert [each.request_id for each in sampled] == ["a", "c"]
    assert [each.token_id for each in sampled] == logits.argmax(1).tolist()


def test_a_step_that_samples_nothing_returns_nothing(llama):
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    silent = step(sequences.work("a", random_tokens(6), 0, samples=False))
    assert llama.execute(silent, {}) == []
    assert llama.logits(silent).shape == (0, VOCAB_SIZE)


def test_work_beyond_its_blocks_or_the_model_is_our_own_mistake(llama):
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    work = sequences.work("a", random_tokens(8), 0)
    short = type(work)("a", work.token_ids, 1, work.block_ids, True, False)
    with pytest.raises(BrokenInvariant, match="tokens 1 to 9 on 2 blocks of 4"):
        llama.logits(step(short))
    blocks = np.zeros(65, np.int32)
    far = type(work)("a", work.token_ids, 250, blocks, True, False)
    with pytest.raises(BrokenInvariant, match="reaches token 258, the model's limit is 256"):
        llama.logits(step(far))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": 0}, "0 blocks of 4 tokens"),
        ({"dtype": "float8"}, "dtype 'float8' is not known; use auto, float32 or bfloat16"),
        ({"device": "cuda"}, "torch finds no CUDA device"),
    ],
)
def test_options_that_cannot_work_are_refused(llama_dir, options, message):
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(InvalidInput, match=message):
        executor_on(llama_dir, **options)


def test_auto_takes_bfloat16_only_where_the_processor_multiplies_it(llama_dir, monkeypatch):
    for multiplies, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(
            "warmturn.engine.executor.cpu_multiplies_bfloat16", lambda found=multiplies: found
        )
        assert executor_on(llama_dir, dtype="auto").dtype == dtype
