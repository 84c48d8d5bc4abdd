"""What a user of the library writes; read by type checkers only, never run."""

from typing import assert_type

import numpy as np

from warmturn.cache.pool import Pool, PoolChanges
from warmturn.errors import CallerError, InvalidRequest, NeverFits, WarmturnError
from warmturn.replica.replica import Replica, StepReport
from warmturn.replica.sequence import Submission
from warmturn.replica.step import Step
from warmturn.types import BlockIds, HashWords, RequestId

pool = Pool(num_blocks=8, block_size=16)
words: HashWords = np.zeros((2, 4), np.uint64)
name = RequestId("a")

assert_type(pool.match(words), int)
assert_type(pool.allocate(name, words, 40, now=0.0), int | None)
assert_type(pool.append(name, 41, now=0.0), bool)
assert_type(pool.table(name), BlockIds)
assert_type(pool.drain(), PoolChanges)


def drive(replica: Replica) -> None:
    """Submit, plan, complete."""
    replica.submit(Submission(name, np.zeros(3, np.int32)), now=0.0)
    assert_type(replica.plan(now=0.0), Step | None)
    assert_type(replica.complete([], now=0.0), StepReport)


def fault(error: WarmturnError) -> str | None:
    """The tree splits by whose fault it was."""
    if isinstance(error, NeverFits):
        assert_type(error.param, str | None)
    return error.param if isinstance(error, InvalidRequest) else str(isinstance(error, CallerError))
