import asyncio

import pytest
import uvloop


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request):
    """Run a coroutine on the loop users have, and on the one they have without the extra."""

    def runs(coroutine, timeout_s=30):
        async def limited():
            async with asyncio.timeout(timeout_s):
                return await coroutine

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(limited())

    return runs


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    """Tests' time-outs are tenths of a second."""
    monkeypatch.setattr("warmturn.gateway.data_path._SWEEP_S", 0.05)
