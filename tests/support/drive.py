"""Drives a replica and a real executor without an event loop: greedy, step by step."""

from warmturn.blocks.schemes import scheme_named
from warmturn.cache.pool import Pool
from warmturn.engine.api import Choice, SamplingParams
from warmturn.replica.replica import Replica
from warmturn.replica.sequence import Submission

GREEDY = SamplingParams(temperature=0.0)


class Drive:
    """One replica over an executor's memory; `num_blocks` may be less than the executor has."""

    def __init__(self, executor, *, num_blocks, block_size=16, max_model_len=8192, **options):
        pool = Pool(num_blocks, block_size)
        self.replica = Replica(
            pool,
            scheme=scheme_named("native"),
            model="test",
            max_model_len=max_model_len,
            **options,
        )
        self.executor = executor
        self.replies, self.turns, self.num_preempted, self.num_evicted = {}, {}, 0, 0
        self._clock, self._count = 0.0, 0

    def submit(self, prompt, max_tokens, salt=None):
        """Queue a request; return its name."""
        self._count += 1
        name = f"r{self._count}"
        self.replica.submit(Submission(name, prompt, max_tokens, salt=salt), now=self._clock)
        self.replies[name] = []
        return name

    def step(self):
        """Run one step; False when there is nothing to do."""
        self._clock += 1.0
        step = self.replica.plan(now=self._clock)
        if step is None:
            return False
        names = [work.request_id for work in step.works if work.samples]
        choices = {n: Choice(GREEDY, self.replica.num_generated(n)) for n in names}
        report = self.replica.complete(self.executor.execute(step, choices), now=self._clock)
        self.num_preempted += report.num_preempted
        self.num_evicted += len(report.changes.evicted)
        for progress in report.progress:
            self.replies[progress.sampled.request_id].append(progress.sampled.token_id)
            if progress.turn is not None:
                self.turns[progress.sampled.request_id] = progress.turn
        return True

    def run(self):
        """Run until nothing is left, then check every invariant."""
        while self.step():
            pass
        self.replica.check()
        return self

    def reply(self, prompt, max_tokens, **fields):
        """Run one request alone; return its reply."""
        name = self.submit(prompt, max_tokens, **fields)
        self.run()
        return self.replies[name]
