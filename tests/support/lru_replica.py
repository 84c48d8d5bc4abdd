"""A replica as counters see it, with the truth beside it: how long evicted blocks had lain idle.

Naive on purpose: conversations are counts of blocks in one queue, requests run for a fixed time.
Time is virtual; every run of a seed is the same.
"""

import heapq
import random
from collections import OrderedDict
from dataclasses import dataclass, field

BLOCK = 16
RUN_S = 5.0


@dataclass
class Conversation:
    num_blocks: int
    left: int = 0
    """Blocks still in the pool."""
    released_s: float = 0.0


@dataclass
class LruReplica:
    """Poisson arrivals of new conversations; each comes back `later_turns` times after thinking."""

    num_blocks: int = 4000
    new_per_s: float = 2.0
    later_turns: int = 2
    think_s: tuple[float, float] = (5.0, 60.0)
    prompt_blocks: int = 30
    output_blocks: int = 10
    seed: int = 1
    surge_at_s: float | None = None
    """From here on three times as many arrive."""
    queries: float = 0.0
    hits: float = 0.0
    generated: float = 0.0
    pinned: int = 0
    reuse_gap_s: float = 0.0
    num_reuses: int = 0
    shows_reuse_gaps: bool = False
    idle_ages: list[tuple[float, float]] = field(default_factory=list)
    """(time of eviction, how long the block had lain idle)."""

    def pages(self, *, until_s: float, every_s: float, label: str = "0"):
        """Run, and yield (time, text of /metrics)."""
        rng = random.Random(self.seed)
        queue: OrderedDict[int, Conversation] = OrderedDict()  # idle, least recently used first
        events = [(rng.expovariate(self.new_per_s), 0, "new", None, 0)]
        next_page, number = every_s, 1
        while events:
            now, _, kind, who, turn = heapq.heappop(events)
            while next_page <= now:
                if next_page > until_s:
                    return
                yield next_page, self.text(label)
                next_page += every_s

            def push(at, kind, who, turn):
                nonlocal number
                number += 1
                heapq.heappush(events, (at, number, kind, who, turn))

            if kind == "new":
                surge = 3 if self.surge_at_s is not None and now >= self.surge_at_s else 1
                push(now + rng.expovariate(self.new_per_s * surge), "new", None, 0)
                who, turn = Conversation(0), 0
            if kind in {"new", "turn"}:
                queue.pop(id(who), None)
                found = who.left
                prompt = who.num_blocks + self.prompt_blocks
                self.queries += prompt * BLOCK
                self.hits += found * BLOCK
                self.reuse_gap_s += found * (now - who.released_s)
                self.num_reuses += found
                self._make_room(queue, prompt + self.output_blocks - found, now, extra=found)
                who.num_blocks = prompt + self.output_blocks
                self.pinned += who.num_blocks
                push(now + RUN_S, "done", who, turn)
            else:
                self.generated += self.output_blocks * BLOCK
                self.pinned -= who.num_blocks
                who.left, who.released_s = who.num_blocks, now
                queue[id(who)] = who
                if turn < self.later_turns:
                    push(now + rng.uniform(*self.think_s), "turn", who, turn + 1)

    def _make_room(self, queue, needed, now, *, extra):
        """Evict from the front; `extra` blocks are about to be pinned and hold no room."""
        held = self.pinned + extra + sum(c.left for c in queue.values())
        over = held + needed - self.num_blocks
        while over > 0 and queue:
            oldest = next(iter(queue.values()))
            gone = min(over, oldest.left)
            oldest.left -= gone
            over -= gone
            self.idle_ages += [(now, now - oldest.released_s)] * gone
            if not oldest.left:
                queue.popitem(last=False)

    def text(self, label):
        lines = {
            "vllm:prefix_cache_queries_total": self.queries,
            "vllm:prefix_cache_hits_total": self.hits,
            "vllm:generation_tokens_total": self.generated,
            "vllm:kv_cache_usage_perc": self.pinned / self.num_blocks,
        }
        if self.shows_reuse_gaps:
            lines["vllm:kv_block_reuse_gap_seconds_sum"] = self.reuse_gap_s
            lines["vllm:kv_block_reuse_gap_seconds_count"] = self.num_reuses
        info = f'engine="{label}",block_size="{BLOCK}",num_gpu_blocks="{self.num_blocks}"'
        return "".join(
            [f'{name}{{engine="{label}"}} {value}\n' for name, value in lines.items()]
            + [f"vllm:cache_config_info{{{info}}} 1.0\n"]
        )
