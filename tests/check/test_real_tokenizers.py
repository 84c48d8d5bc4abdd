"""Drift with the vocabularies of real models: the same text, other ids.

The pairs are two tokens a model may sample where encoding their text gives others.
"""

from functools import lru_cache

import numpy as np
import pytest

from warmturn.check import check_token_pair
from warmturn.check.tokens import find_token_cause
from warmturn.render import Tokenizer

pytestmark = pytest.mark.network

DRIFTS = [
    ("qwen3", (198, 198), (271,)),  # two line feeds
    ("qwen3", (220, 1782), (279,)),  # a blank and "the"
    ("qwen3", (32713, 385), (9707,)),
    ("qwen3", (92, 92), (3417,)),  # two closing braces
    ("qwen3", (27, 26865), (13708, 766)),  # "<" and "think"
    ("deepseek", (201, 201), (271,)),
    ("deepseek", (14505, 4979), (19923,)),
    ("deepseek", (736, 21), (6895,)),  # "12" and "3"
    ("deepseek", (525, 737), (2069,)),  # "中" and "国"
    ("tekken", (1010, 1010), (1267,)),
    ("tekken", (1032, 3265), (1278,)),
    ("tekken", (2880, 1046), (13331,)),  # three dots and one
    ("tekken", (4392, 6922), (23841,)),
    ("tekken", (10725, 1906), (22177,)),
    ("tekken", (1060, 74045), (49250, 2077)),
]


@pytest.fixture(scope="module")
def tokenizer(model_directory):
    """Name → tokenizer, loaded once."""
    return lru_cache(lambda name: Tokenizer.from_directory(model_directory(name)))


@pytest.mark.parametrize(("name", "sampled", "encoded"), DRIFTS)
def test_two_tokens_that_encode_as_others_are_drift(tokenizer, name, sampled, encoded):
    ours = tokenizer(name)
    text = ours.decode(np.asarray(sampled), skip_special_tokens=False)
    assert tuple(ours.encode(text)) == encoded
    prompt = ours.encode("Say it: ")
    later = ours.encode(f"Say it: {text}")
    cached = np.asarray([*prompt, *sampled, 0], np.int32)
    found = find_token_cause(cached, later, prompt_tokens=len(prompt), tokenizer=ours)
    assert found.cause in {"token.retokenised_output", "token.boundary_merge"}


def test_smollm2_splits_a_rare_word_otherwise_than_it_was_sampled(tokenizer):
    ours = tokenizer("smollm2")
    sampled = np.asarray([97, 18219, 484, 12788])
    text = ours.decode(sampled, skip_special_tokens=False)
    assert text == "qodaffolk"
    encoded = ours.encode(text)
    pair = check_token_pair([1, 2], sampled.tolist(), [1, 2, *encoded.tolist()], is_text_equal=True)
    assert pair.cause == "token.retokenised_output"
    assert pair.shared_tokens == 3


@pytest.mark.parametrize("name", ["qwen3", "deepseek"])
def test_a_reply_that_begins_with_a_line_feed_merges_with_the_prompts_last_token(tokenizer, name):
    ours = tokenizer(name)
    prompt = "<|im_start|>assistant\n"
    apart = [*ours.encode(prompt), *ours.encode("\nHello")]
    assert list(ours.encode(f"{prompt}\nHello")) != apart


def test_qwen_normalises_to_nfc_so_that_text_and_ids_never_agree(tokenizer):
    ours = tokenizer("qwen3")
    sampled = np.asarray([68, 53839])  # "e" and the combining accent
    found = find_token_cause(
        np.asarray([1, *sampled, 5], np.int32),
        np.asarray([1, *ours.encode("é"), 5], np.int32),
        prompt_tokens=1,
        tokenizer=ours,
    )
    assert found.cause == "token.unicode_normalised"
