"""Engine processes of the gateway's own: `serve --embedded N`.

Each is `warmturn engine` on a free loopback port, with KV events on sockets in a private folder: they
carry prompts in clear. An engine stops when the gateway does, however that ends, because it watches
its standard input. One that dies is started again on its old port, under its old name.
"""

import asyncio
import json
import logging
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from warmturn.errors import PeerError

__all__ = ["EmbeddedEngine", "EmbeddedEngines"]

logger = logging.getLogger(__name__)

START_S = 600.0
"""Loading weights and compiling the kernels for the first time, on a slow machine."""
STOP_S = 15.0
"""An engine gives its requests five seconds; then it is killed."""
_POLL_S = 0.05
_REST_S = 1.0
_MAX_REST_S = 30.0


@dataclass(frozen=True, slots=True)
class EmbeddedEngine:
    """One running engine, as the gateway needs to know it."""

    name: str
    """`embedded-0` …: the same after a restart."""
    url: str
    model: str
    events: str
    replay: str
    block_size: int
    capacity_tokens: int
    pid: int


class EmbeddedEngines:
    """N engines, from their start to their end.

    `options` are those of `warmturn engine`, the same for all.
    """

    def __init__(
        self, num: int, options: Sequence[str], *, on_ready: Callable[[int], None] = lambda _: None
    ) -> None:
        """`on_ready` is told how many are ready, each time one is."""
        self._num, self._options, self._on_ready = num, tuple(options), on_ready
        self._folder = tempfile.TemporaryDirectory(prefix="warmturn-")  # mode 0700
        self._processes: dict[int, Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.engines: list[EmbeddedEngine] = []

    async def __aenter__(self) -> Self:
        """Start all of them. Raises `PeerError` with the last words of one that does not start."""
        starts = [asyncio.create_task(self._start(number)) for number in range(self._num)]
        try:
            for ready, start in enumerate(asyncio.as_completed(starts), start=1):
                await start
                self._on_ready(ready)
            self.engines = [start.result() for start in starts]
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self._stop()
            raise
        self._keepers = [asyncio.create_task(self._keep(n)) for n in range(self._num)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop all of them and remove their sockets."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self._stop()

    async def _start(self, number: int, port: int = 0) -> EmbeddedEngine:
        folder = Path(self._folder.name)
        facts_file, log_file = folder / f"{number}.json", folder / f"{number}.log"
        facts_file.unlink(missing_ok=True)
        events, replay = (f"ipc://{folder}/{number}.{kind}" for kind in ("kv", "replay"))
        with log_file.open("wb") as log:
            process = self._processes[number] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "warmturn", "engine", "--port", str(port)),
                *("--stop-with-stdin", "--json", str(facts_file)),
                *("--kv-events", events, "--kv-events-replay", replay),
                *self._options,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=log,
            )
        facts = await self._facts(process, facts_file, log_file)
        return EmbeddedEngine(
            name=f"embedded-{number}",
            url=facts["url"],
            model=facts["model"],
            events=events,
            replay=replay,
            block_size=facts["block_size"],
            capacity_tokens=facts["num_blocks"] * facts["block_size"],
            pid=facts["pid"],
        )

    @staticmethod
    async def _facts(process: Process, facts_file: Path, log_file: Path) -> dict[str, Any]:
        """Wait until the engine has said of itself that it listens."""
        deadline = asyncio.get_running_loop().time() + START_S
        while asyncio.get_running_loop().time() < deadline:
            facts = _read_facts(facts_file)
            if facts is not None:
                return facts
            if process.returncode is not None:
                raise PeerError(f"an embedded engine did not start: {_last_words(log_file)}")
            await asyncio.sleep(_POLL_S)
        raise PeerError(f"an embedded engine was not ready after {START_S:.0f} s")

    async def _keep(self, number: int) -> None:
        """Start the engine again whenever it ends, after a rest that grows while it fails."""
        rest_s = _REST_S
        while True:
            code = await self._processes[number].wait()
            logger.warning("embedded-%d ended with code %s; starting it again", number, code)
            await asyncio.sleep(rest_s)
            rest_s = min(_MAX_REST_S, 2 * rest_s)
            port = int(self.engines[number].url.rpartition(":")[2])
            try:
                self.engines[number] = await self._start(number, port)
            except PeerError as error:
                logger.warning("embedded-%d: %s", number, error)
            else:
                rest_s = _REST_S

    async def _stop(self) -> None:
        running = [one for one in self._processes.values() if one.returncode is None]
        for process in running:
            with suppress(ProcessLookupError):
                process.terminate()
        await asyncio.gather(*(self._ended(process) for process in running))
        self._folder.cleanup()

    @staticmethod
    async def _ended(process: Process) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _read_facts(file: Path) -> dict[str, Any] | None:
    """Return what the engine wrote; None while it has not, or not to the end."""
    if file.exists() and (text := file.read_text()).endswith("}\n"):
        facts: dict[str, Any] = json.loads(text)
        return facts
    return None


def _last_words(log_file: Path) -> str:
    said = log_file.read_text(errors="replace").strip().splitlines()
    return said[-1].removeprefix("warmturn: ") if said else "it said nothing"
