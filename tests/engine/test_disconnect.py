import asyncio

import pytest
from starlette.requests import ClientDisconnect

from warmturn.engine.disconnect import while_connected


async def forever() -> None:
    await asyncio.Event().wait()


async def leaves() -> dict:
    return {"type": "http.disconnect"}


def test_work_that_ends_first_gives_its_result():
    async def work() -> int:
        await asyncio.sleep(0)
        return 3

    assert asyncio.run(while_connected(forever, work())) == 3


def test_work_that_fails_raises_its_own_error():
    async def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(while_connected(forever, work()))


def test_a_client_that_leaves_cancels_work_before_the_error_is_raised():
    is_over = False

    async def work() -> None:
        nonlocal is_over
        try:
            await forever()
        finally:
            await asyncio.sleep(0)  # tidying up may take a while
            is_over = True

    async def play() -> None:
        with pytest.raises(ClientDisconnect):
            await while_connected(leaves, work())
        assert is_over

    asyncio.run(play())


def test_other_messages_do_not_count_as_leaving():
    messages = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])

    async def receive() -> dict:
        return next(messages)

    with pytest.raises(ClientDisconnect):
        asyncio.run(while_connected(receive, forever()))
    assert next(messages, None) is None


def test_being_cancelled_from_outside_leaves_no_task_behind():
    async def play() -> None:
        task = asyncio.create_task(while_connected(forever, forever()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())
