"""Ways to call an app: in process, and over a real socket."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator

import httpx
import uvicorn

from warmturn.engine.listening import listening_socket


def call(app, method: str, path: str, **kwargs) -> httpx.Response:
    """Send one request to `app` in process; an exception that escapes the app is raised here."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tiny") as client:
            return await client.request(method, path, **kwargs)

    return asyncio.run(send())


def events_of(response: httpx.Response) -> list:
    """Return the events of a stream: parsed JSON, and "[DONE]"."""
    assert response.headers["content-type"].startswith("text/event-stream")
    payloads = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [data if data == "[DONE]" else json.loads(data) for data in payloads]


@contextlib.contextmanager
def served(app) -> Iterator[str]:
    """Serve `app` with uvicorn on a free port of the loopback; yield its base URL."""
    with listening_socket("127.0.0.1", 0) as listening:
        config = uvicorn.Config(app, log_level="critical", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
            assert not thread.is_alive()


def wait_until(condition, *, timeout_s: float = 5.0) -> None:
    """Wait for `condition`; fail when it takes longer."""
    for _ in range(int(timeout_s / 0.005)):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("waited in vain")
