"""An executor without a model: its memory is real, its next token is a hash of what it reads.

Keys and values are stood for by the token itself, kept in the slot and row the plan names.
The next token depends on every token read back from memory, so one wrong block, one stale
row or one token too few changes the reply.
"""

import numpy as np

from warmturn.replica.step import Sampled

VOCAB = 997


def next_token(tokens):
    """The reply a right cache must give: a hash of the whole sequence."""
    state = 7
    for token in tokens:
        state = (state * 31 + int(token) + 1) % 1_000_003
    return state % VOCAB


def naive_reply(prompt, max_tokens, stop=frozenset()):
    """Generate without any cache."""
    tokens = [int(t) for t in prompt]
    start = len(tokens)
    while len(tokens) - start < max_tokens:
        tokens.append(next_token(tokens))
        if tokens[-1] in stop:
            break
    return tokens[start:]


class ToyExecutor:
    """Executes steps on a memory of `num_blocks` blocks; `fail_on` names steps that raise."""

    def __init__(self, num_blocks, block_size, fail_on=(), vocab=VOCAB):
        self.memory = np.full((num_blocks, block_size), -1, np.int64)
        self.block_size = block_size
        self.fail_on = set(fail_on)
        self.vocab = vocab
        self.steps = []

    def warm_up(self):
        """There is nothing to compile."""

    def execute(self, step, choices=None):
        self.steps.append(step)
        if step.number in self.fail_on:
            raise RuntimeError("planted failure")
        return [self._run(work) for work in step.works if self._write(work) and work.samples]

    def _write(self, work):
        for i, token in enumerate(work.token_ids):
            block, row = divmod(work.position + i, self.block_size)
            self.memory[work.block_ids[block], row] = token
        return True

    def _run(self, work):
        length = work.position + len(work.token_ids)
        tokens = self.memory[work.block_ids].reshape(-1)[:length]
        return Sampled(work.request_id, next_token(tokens) % self.vocab)
