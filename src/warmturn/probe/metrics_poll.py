"""Read a server's `/metrics` again and again, with the time of each page."""

import time
from collections.abc import Callable

from warmturn.errors import InvalidInput
from warmturn.horizon import TimedPage, read_metrics_page
from warmturn.probe.client import Client

__all__ = ["metrics_base", "poll_metrics"]


def metrics_base(url: str) -> str:
    """Return the base URL of a server named by any of its usual addresses."""
    return url.rstrip("/").removesuffix("/metrics").removesuffix("/v1")


def poll_metrics(
    client: Client,
    *,
    interval_s: float,
    duration_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    on_page: Callable[[int, int], object] = lambda *_: None,
) -> list[TimedPage]:
    """Return pages `interval_s` apart over `duration_s`, both ends included.

    A page that is late does not shift the later ones. Raises `PeerError` where the server does not
    answer, `InvalidInput` for pages that are none.
    """
    if not 0 < interval_s <= duration_s:
        raise InvalidInput(
            f"a page every {interval_s} s over {duration_s} s was asked for; the first must be "
            "above 0 and at most the second"
        )
    total = int(duration_s / interval_s) + 1
    start = clock()
    pages = []
    for number in range(total):
        wait = start + number * interval_s - clock()
        if wait > 0:
            sleep(wait)
        text = client.get_text("/metrics")
        pages.append(TimedPage(clock(), read_metrics_page(text)))
        on_page(number + 1, total)
    return pages
