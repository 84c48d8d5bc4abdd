from dataclasses import replace

import pytest
from tokenizers import AddedToken, Tokenizer, models

from tests.support.tiny_models import VOCAB_SIZE, save_tiny_model
from warmturn.engine.assembly import EngineOptions, EngineServer
from warmturn.errors import InvalidInput

OPTIONS = EngineOptions(
    model_dir=None, model_name="tiny", dtype="float32", device="cpu", threads=None,
    num_blocks=8, block_size=4, max_model_len=None, max_running=4, max_body_bytes=1000,
    prefix_caching=True, exact_continuation=False, hash_scheme="native",
    kv_events=None, kv_events_replay=None, kv_events_topic="",
)  # fmt: skip


def options(directory, *, num_tokens):
    """Options for a tiny model whose tokenizer has `num_tokens` tokens."""
    save_tiny_model(directory)
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.add_tokens([AddedToken(f"t{number}") for number in range(1, num_tokens)])
    tokenizer.save(str(directory / "tokenizer.json"))
    return replace(OPTIONS, model_dir=directory)


def test_a_tokenizer_larger_than_the_model_is_refused_at_start(tmp_path):
    """Its highest ids would fail every step they are in, other requests' with them."""
    with pytest.raises(InvalidInput, match=f"{VOCAB_SIZE + 1} tokens.*{VOCAB_SIZE} embeddings"):
        EngineServer(options(tmp_path, num_tokens=VOCAB_SIZE + 1))


@pytest.mark.parametrize("num_tokens", [2, VOCAB_SIZE])
def test_one_as_large_or_smaller_is_served(tmp_path, num_tokens):
    facts = EngineServer(options(tmp_path, num_tokens=num_tokens)).facts
    assert facts["num_blocks"] == 8


def test_a_replay_endpoint_alone_is_refused(tmp_path):
    alone = replace(options(tmp_path, num_tokens=2), kv_events_replay="ipc://x")
    with pytest.raises(InvalidInput, match="needs --kv-events"):
        EngineServer(alone)
