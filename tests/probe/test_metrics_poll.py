import pytest

from warmturn.errors import InvalidInput, PeerError
from warmturn.probe.metrics_poll import metrics_base, poll_metrics

PAGE = "vllm:generation_tokens_total {}\n"


class Server:
    """A clock and a server in one: time passes by sleeping and by slow answers."""

    def __init__(self, answer_s=0.0):
        self.now = 100.0
        self.slept = []
        self.answer_s = answer_s
        self.num_pages = 0

    def get_text(self, path):
        assert path == "/metrics"
        self.now += self.answer_s
        self.num_pages += 1
        return PAGE.format(self.num_pages)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def poll(self, **given):
        return poll_metrics(self, clock=lambda: self.now, sleep=self.sleep, **given)


def test_pages_are_an_interval_apart_with_both_ends():
    pages = Server().poll(interval_s=5, duration_s=20)
    assert [page.time_s for page in pages] == [100, 105, 110, 115, 120]
    assert [page.page.total("generated_tokens") for page in pages] == [1, 2, 3, 4, 5]


def test_a_slow_answer_does_not_shift_the_later_pages():
    server = Server(answer_s=2)
    assert [page.time_s for page in server.poll(interval_s=5, duration_s=10)] == [102, 107, 112]
    assert server.slept == [3, 3]


def test_progress_is_told():
    seen = []
    Server().poll(interval_s=1, duration_s=2, on_page=lambda *at: seen.append(at))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(("interval", "duration"), [(0, 1), (5, 1), (-1, 1)])
def test_times_that_make_no_pages_are_refused(interval, duration):
    with pytest.raises(InvalidInput):
        Server().poll(interval_s=interval, duration_s=duration)


def test_a_server_that_does_not_answer_is_an_error():
    server = Server()
    server.get_text = lambda _path: (_ for _ in ()).throw(PeerError("gone"))
    with pytest.raises(PeerError, match="gone"):
        server.poll(interval_s=1, duration_s=1)


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/metrics", "http://h:1/v1/"]
)
def test_a_server_may_be_named_by_any_of_its_addresses(url):
    assert metrics_base(url) == "http://h:1"
