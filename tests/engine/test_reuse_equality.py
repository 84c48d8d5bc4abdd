"""float32 on real weights: reuse never changes a token.

The truth is the same executor with prefix caching off, one request at a time, each prompt
in one chunk. Prompts are pinned: of 25,000 tokens about one has a margin so small that the
order of additions may decide it (docs/design/executor.md).
"""

import numpy as np
import pytest

from tests.support.drive import Drive

pytestmark = [pytest.mark.slow, pytest.mark.network]

NUM_BLOCKS, BLOCK_SIZE = 400, 16

TOPICS = (
    "trains", "bread", "rain", "chess", "bees", "rivers", "glass", "maps",
    "clocks", "ships", "tea", "paper", "salt", "stars", "birds", "music",
)  # fmt: skip
SYSTEM = "You are a patient teacher. Answer in one short sentence and name an example. "


@pytest.fixture(scope="module")
def executor(smollm_dir):
    from warmturn.engine.executor import Executor

    return Executor(smollm_dir, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype="float32")


@pytest.fixture(scope="module")
def encode(smollm_dir):
    from warmturn.render import Tokenizer

    return Tokenizer.from_directory(smollm_dir).encode


@pytest.fixture(scope="module")
def truth(executor):
    """Replies without any reuse, remembered over the tests of this file."""
    known = {}

    def reply(prompt, max_tokens):
        key = (prompt.tobytes(), max_tokens)
        if key not in known:
            cold = Drive(
                executor, num_blocks=NUM_BLOCKS, prefix_caching=False, max_step_tokens=8192
            )
            known[key] = cold.reply(prompt, max_tokens)
        return known[key]

    return reply


def opening(encode, topic):
    return encode(
        f"<|im_start|>system\n{SYSTEM}Today's topic is {topic}.<|im_end|>\n"
        f"<|im_start|>user\nWhat should a beginner know about {topic}?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def next_prompt(encode, prompt, reply, turn):
    """The old prompt, the reply as generated, a new question: a pure append."""
    questions = ("Why?", "Give another example.", "What is the most common mistake?")
    more = encode(
        f"<|im_end|>\n<|im_start|>user\n{questions[turn % 3]}<|im_end|>\n<|im_start|>assistant\n"
    )
    return np.concatenate([prompt, np.array(reply, np.int32), more])


def talk(drive, encode, prompt, *, turns, max_tokens):
    """Play a conversation alone; return (prompt, reply) per turn."""
    played = []
    for turn in range(turns):
        reply = drive.reply(prompt, max_tokens)
        played.append((prompt, reply))
        prompt = next_prompt(encode, prompt, reply, turn)
    return played


def same_as_truth(played, truth):
    return [reply == truth(prompt, len(reply)) for prompt, reply in played]


def test_later_turns(executor, encode, truth):
    drive = Drive(executor, num_blocks=NUM_BLOCKS)
    played = talk(drive, encode, opening(encode, "trains"), turns=4, max_tokens=24)
    assert all(same_as_truth(played, truth))
    cached = [drive.turns[f"r{i}"].cached_tokens for i in range(1, 5)]
    known = [0, *[len(prompt) + len(reply) - 1 for prompt, reply in played[:-1]]]
    assert cached == [tokens // BLOCK_SIZE * BLOCK_SIZE for tokens in known]


def test_forks_of_a_conversation(executor, encode, truth):
    """Three continuations of one turn run at the same time over the same blocks."""
    drive = Drive(executor, num_blocks=NUM_BLOCKS)
    prompt = opening(encode, "bread")
    reply = drive.reply(prompt, 24)
    prompts = [next_prompt(encode, prompt, reply, turn) for turn in range(3)]
    names = [drive.submit(p, 16) for p in prompts]
    drive.run()
    assert all(drive.turns[n].cached_tokens > 0 for n in names)
    assert [drive.replies[n] for n in names] == [truth(p, 16) for p in prompts]


def test_eviction_and_return(executor, encode, truth):
    drive = Drive(executor, num_blocks=14)
    first = talk(drive, encode, opening(encode, "rain"), turns=2, max_tokens=16)
    talk(drive, encode, opening(encode, "chess"), turns=3, max_tokens=40)
    assert drive.num_evicted > 0
    prompt = next_prompt(encode, *first[-1], 2)
    reply = drive.reply(prompt, 16)
    cached = list(drive.turns.values())[-1].cached_tokens
    assert cached < len(first[-1][0]), "part of it was evicted"
    assert reply == truth(prompt, 16)


def test_preemption(executor, encode, truth):
    drive = Drive(executor, num_blocks=12)
    prompts = [opening(encode, topic) for topic in ("bees", "rivers", "glass")]
    names = [drive.submit(p, 48) for p in prompts]
    drive.run()
    assert drive.num_preempted > 0
    assert [drive.replies[n] for n in names] == [truth(p, 48) for p in prompts]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 16, 33, 64, 4096])
def test_chunk_sizes_from_one_to_the_whole_prompt(executor, encode, truth, chunk):
    prompt = opening(encode, "maps")
    drive = Drive(executor, num_blocks=NUM_BLOCKS, max_step_tokens=chunk)
    assert drive.reply(prompt, 16) == truth(prompt, 16)


def test_sixteen_conversations_in_a_pool_a_quarter_of_their_size(executor, encode):
    """All at once, eight turns each; a conversation's next turn follows its own last one.

    The truth is computed sixteen requests at a time, without prefix caching: nothing reused.
    """
    turns, max_tokens = 8, 8
    prompts = {topic: opening(encode, topic) for topic in TOPICS}
    lengths = [len(p) + turns * (max_tokens + 14) for p in prompts.values()]
    num_blocks = sum(-(-n // BLOCK_SIZE) for n in lengths) // 4
    drive = Drive(executor, num_blocks=num_blocks)
    running = {drive.submit(p, max_tokens): (topic, 0) for topic, p in prompts.items()}
    played = []
    while running:
        assert drive.step()
        for name in [n for n in running if n in drive.turns]:
            topic, turn = running.pop(name)
            prompt, reply = prompts[topic], drive.replies[name]
            played.append((prompt, reply))
            if turn + 1 < turns:
                prompts[topic] = next_prompt(encode, prompt, reply, turn)
                running[drive.submit(prompts[topic], max_tokens)] = (topic, turn + 1)
    drive.replica.check()
    assert len(played) == 16 * turns
    assert drive.num_evicted > 0
    cold = Drive(executor, num_blocks=NUM_BLOCKS, prefix_caching=False, max_running=16)
    names = [cold.submit(prompt, max_tokens) for prompt, _ in played]
    cold.run()
    assert [cold.replies[name] for name in names] == [reply for _, reply in played]
    assert max(turn.cached_tokens for turn in cold.turns.values()) == 0


def test_a_wrong_block_would_be_seen(executor, encode, truth):
    """Negative control: zero one cached block and the reply differs."""
    drive = Drive(executor, num_blocks=NUM_BLOCKS)
    prompt = opening(encode, "clocks")
    reply = drive.reply(prompt, 24)
    following = next_prompt(encode, prompt, reply, 0)
    executor.kv.tensor[0].zero_()  # the new pool's first block holds the prompt's first tokens
    assert drive.reply(following, 24) != truth(following, 24)
