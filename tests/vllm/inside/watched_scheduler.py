"""Runs inside vLLM (`--scheduler-cls`): writes down what the block pool really holds.

The truth that event readers are compared with. After every step that had output, the file named by
WARMTURN_POOL_FILE holds the hashes of all cached blocks and the number of steps; written only while
`<file>.wanted` exists, so that timings are not disturbed.
"""

import json
import os
from pathlib import Path

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

FILE = Path(os.environ["WARMTURN_POOL_FILE"])
WANTED = FILE.with_suffix(".wanted")


class WatchedScheduler(AsyncScheduler):
    """vLLM's own scheduler, and a look into its pool."""

    def update_from_output(self, *arguments, **keywords):
        outputs = super().update_from_output(*arguments, **keywords)
        if WANTED.exists():
            self._write_pool()
        return outputs

    def _write_pool(self):
        pool = self.kv_cache_manager.block_pool
        cached = [block for block in pool.blocks if block.block_hash is not None]
        content = {
            "block_hashes": sorted(block.block_hash[:32].hex() for block in cached),
            "num_free_blocks": pool.get_num_free_blocks(),
            "num_running": len(self.running) + len(self.waiting),
        }
        part = FILE.with_suffix(".part")
        part.write_text(json.dumps(content))
        part.rename(FILE)
