"""What stands before every handler: a limit on requests at once, and a net under them."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.refusals import log_failure, overloaded, refusal

__all__ = ["Guard"]


class Guard:
    """ASGI middleware. POST requests are limited; GET, so health and metrics, always pass.

    Whatever a handler raises ends here: logged with its place but without its message, which
    may quote a prompt; answered with 500; and the server goes on.
    """

    def __init__(
        self, app: ASGIApp, *, max_concurrent_requests: int, metrics: EngineMetrics
    ) -> None:
        self._app = app
        self._max_active = max_concurrent_requests
        self._num_active = 0
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, count it while it lasts, and catch what it raises."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._caught(scope, receive, send)
        elif self._num_active >= self._max_active:
            self._metrics.rejected()
            await overloaded(self._max_active)(scope, receive, send)
        else:
            self._num_active += 1
            try:
                await self._caught(scope, receive, send)
            finally:
                self._num_active -= 1

    async def _caught(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception as error:  # noqa: BLE001 - nothing a client sends may stop the server
            log_failure(error)
            if not has_started and scope["type"] == "http":
                await refusal(error)(scope, receive, send)
