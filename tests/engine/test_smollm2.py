"""SmolLM2-135M on real weights, against transformers in the same process."""

import json

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from tests.support.tiny_models import Sequences, step
from warmturn.engine.api import Choice, SamplingParams
from warmturn.engine.executor import Executor

pytestmark = [pytest.mark.slow, pytest.mark.network]

NUM_BLOCKS, BLOCK_SIZE, NUM_NEW = 160, 16, 24
GREEDY = Choice(SamplingParams(temperature=0), 0)
QUESTIONS = (
    "What is the capital of France?",
    "Name three animals that live in the sea.",
    "Write one sentence about snow, then 12345 + 67890.",
)
PARAGRAPH = "A train left the small station at noon and crossed the long bridge. "


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """On cores that others use too, threads would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer(smollm_dir):
    return Tokenizer.from_file(str(smollm_dir / "tokenizer.json"))


@pytest.fixture(scope="module")
def executor(smollm_dir):
    return Executor(smollm_dir, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype="float32")


@pytest.fixture(scope="module")
def reference(smollm_dir):
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm_dir, dtype=torch.float32)
    return model.eval()


def prompt_of(tokenizer, question):
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return np.array(tokenizer.encode(text).ids, np.int32)


def greedy(executor, prompts):
    """Decode all prompts together; prompts go in one step, then one token each."""
    sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE)
    replies = {str(row): [] for row in range(len(prompts))}
    new = {str(row): (prompt, 0) for row, prompt in enumerate(prompts)}
    for _ in range(NUM_NEW):
        works = [sequences.work(name, *fed) for name, fed in new.items()]
        for sampled in executor.execute(step(*works), dict.fromkeys(new, GREEDY)):
            tokens, position = new[sampled.request_id]
            replies[sampled.request_id].append(sampled.token_id)
            new[sampled.request_id] = ([sampled.token_id], position + len(tokens))
    return list(replies.values())


def test_last_token_logits_are_within_a_thousandth(executor, reference, tokenizer):
    tokens = np.array(tokenizer.encode(PARAGRAPH * 60).ids, np.int32)[:700]
    with torch.inference_mode():
        expected = reference(torch.from_numpy(tokens).long()[None], logits_to_keep=1).logits[0, 0]
    for chunk in (700, 256):
        sequences = Sequences(NUM_BLOCKS, BLOCK_SIZE, seed=chunk)
        for position in range(0, 700, chunk):
            work = sequences.work("a", tokens[position : position + chunk], position)
            logits = executor.logits(step(work))
        assert (logits[0] - expected).abs().max() < 1e-3


def test_greedy_replies_equal_those_of_transformers(executor, reference, tokenizer):
    prompts = [prompt_of(tokenizer, question) for question in QUESTIONS]
    for prompt, reply in zip(prompts, greedy(executor, prompts), strict=True):
        ids = torch.from_numpy(prompt).long()[None]
        generated = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NUM_NEW,
            min_new_tokens=NUM_NEW,
            suppress_tokens=None,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=[],
        )
        assert generated[0, len(prompt) :].tolist() == reply


def test_bfloat16_answers_and_loses_no_more_than_transformers_does(
    executor, smollm_dir, reference, tokenizer
):
    rough = Executor(smollm_dir, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype="bfloat16")
    (reply,) = greedy(rough, [prompt_of(tokenizer, QUESTIONS[0])])
    assert "Paris" in tokenizer.decode(reply)
    tokens = prompt_of(tokenizer, PARAGRAPH * 20)
    exact = executor.logits(step(Sequences(NUM_BLOCKS, BLOCK_SIZE).work("a", tokens, 0)))[0]
    ours = rough.logits(step(Sequences(NUM_BLOCKS, BLOCK_SIZE).work("a", tokens, 0)))[0]
    peer = transformers.AutoModelForCausalLM.from_pretrained(smollm_dir, dtype=torch.bfloat16)
    with torch.inference_mode():
        theirs = peer(torch.from_numpy(tokens).long()[None], logits_to_keep=1).logits[0, 0].float()
    assert (ours - exact).norm() < 1.5 * (theirs - exact).norm()


def test_the_converted_tokenizer_knows_its_special_tokens(smollm_dir, tokenizer):
    config = json.loads((smollm_dir / "tokenizer_config.json").read_text())
    assert tokenizer.encode("<|im_start|>a<|im_end|>").ids[::2] == [1, 2]
    assert config["eos_token"] == "<|im_end|>"
    text = "Numbers 2024, emoji 🙂, accents é, tabs\tand\n\nlines."
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert list(tokenizer.encode("2024").tokens) == list("2024")
