"""A random life of a pool beside a naive model of it: lists and dictionaries, no arrays."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.soak import examples
from warmturn.cache.pool import Pool
from warmturn.errors import NeverFits

BLOCK_SIZE, NUM_BLOCKS = 4, 7
NAMES = st.lists(st.integers(1, 3), max_size=8)


def chain(path):
    """Hashes of a path in the tree of contents: equal prefixes give equal hashes."""
    words = np.zeros((len(path), 4), np.uint64)
    for i in range(len(path)):
        words[i, 0] = int("".join(map(str, path[: i + 1])))
    return words


class NaiveModel:
    """What a pool should do, said with a list of free contents in order of eviction."""

    def __init__(self):
        self.idle = []  # contents without a user, evicted from the front
        self.held = {}  # content -> number of users
        self.users = {}  # name -> (list of contents or None for blocks without content)
        self.evicted = []

    def blank(self):
        used = sum(contents.count(None) for contents in self.users.values())
        return NUM_BLOCKS - len(self.idle) - len(self.held) - used

    def hits(self, contents):
        known = 0
        for content in contents:
            if content not in self.idle and content not in self.held:
                break
            known += 1
        return known

    def take(self, count):
        while self.blank() < count:
            self.evicted.append(self.idle.pop(0))

    def hold(self, content):
        if content in self.idle:
            self.idle.remove(content)
        self.held[content] = self.held.get(content, 0) + 1

    def allocate(self, name, contents, num_tokens):
        needed = -(-num_tokens // BLOCK_SIZE)
        usable = contents[: (num_tokens - 1) // BLOCK_SIZE]
        hits = usable[: self.hits(usable)]
        idle_hits = sum(content in self.idle for content in hits)
        if needed - len(hits) > self.blank() + len(self.idle) - idle_hits:
            return None
        for content in hits:
            self.hold(content)
        self.take(needed - len(hits))
        self.users[name] = [*hits, *[None] * (needed - len(hits))]
        return len(hits)

    def append(self, name, count):
        if count > self.blank() + len(self.idle):
            return False
        self.take(count)
        self.users[name] += [None] * count
        return True

    def store(self, name, contents):
        for i, content in enumerate(contents):
            if self.users[name][i] is None:
                self.users[name][i] = content
                self.hold(content)

    def release(self, name):
        for content in reversed(self.users.pop(name)):
            if content is None:
                continue
            self.held[content] -= 1
            if not self.held[content]:
                del self.held[content]
                self.idle.append(content)

    def touch(self, contents):
        for content in reversed(contents[: self.hits(contents)]):
            if content in self.idle:
                self.idle.remove(content)
                self.idle.append(content)


class PoolLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.pool, self.model = Pool(NUM_BLOCKS, BLOCK_SIZE), NaiveModel()
        self.requests, self.evicted, self.clock, self.count = {}, [], 0.0, 0

    def now(self):
        self.clock += 1.0
        return self.clock

    @rule(path=NAMES, extra=st.integers(1, 6))
    def allocate(self, path, extra):
        name, self.count = f"r{self.count}", self.count + 1
        words = chain(path)
        num_tokens = len(path) * BLOCK_SIZE + extra
        if -(-num_tokens // BLOCK_SIZE) > NUM_BLOCKS:
            try:
                self.pool.allocate(name, words, num_tokens, now=self.now())
            except NeverFits:
                return
            raise AssertionError("never was not refused")
        got = self.pool.allocate(name, words, num_tokens, now=self.now())
        assert got == self.model.allocate(name, words[:, 0].tolist(), num_tokens)
        if got is not None:
            self.requests[name] = words

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), full=st.booleans())
    def store(self, data, full):
        name = data.draw(st.sampled_from(sorted(self.requests)))
        words = self.requests[name]
        upto = len(words) if full else data.draw(st.integers(0, len(words)))
        self.pool.store(name, words[:upto], now=self.now())
        self.model.store(name, words[:upto, 0].tolist())

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(0, 2))
    def append(self, data, count):
        name = data.draw(st.sampled_from(sorted(self.requests)))
        wanted = len(self.model.users[name]) + count
        if wanted > NUM_BLOCKS:
            return
        got = self.pool.append(name, wanted * BLOCK_SIZE, now=self.now())
        assert got == self.model.append(name, count)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def release(self, data):
        name = data.draw(st.sampled_from(sorted(self.requests)))
        del self.requests[name]
        self.pool.release(name, now=self.now())
        self.model.release(name)

    @rule(path=NAMES)
    def touch(self, path):
        words = chain(path)
        assert self.pool.touch(words, now=self.now()) == self.model.hits(words[:, 0].tolist())
        self.model.touch(words[:, 0].tolist())

    @rule(count=st.integers(0, 3))
    def evict(self, count):
        dropped = self.model.idle[:count]
        assert self.pool.evict(count, now=self.now()) == len(dropped)
        self.model.evicted += dropped
        del self.model.idle[:count]

    @rule()
    def reset(self):
        assert self.pool.reset() is not bool(self.requests)
        if not self.requests:
            self.model.idle.clear()

    @rule(path=NAMES)
    def match(self, path):
        words = chain(path)
        assert self.pool.match(words) == self.model.hits(words[:, 0].tolist())

    @invariant()
    def agrees(self):
        self.pool.check()
        self.evicted += self.pool.drain().evicted[:, 0].tolist()
        assert self.evicted == self.model.evicted
        assert self.pool.num_free == self.model.blank() + len(self.model.idle)
        contents = [self.pool.hash_of(block) for block in self.pool.free_queue()]
        assert [int(c[0]) for c in contents if c is not None] == self.model.idle


TestPoolLife = PoolLife.TestCase
TestPoolLife.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
