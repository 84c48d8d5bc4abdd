"""An app over the fake engine and the tiny renderer."""

from datetime import UTC, datetime

from tests.support.fake_engine import FakeEngine, Script
from tests.support.tiny_renderer import TinyRenderer
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.server import create_app

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


class TinyServer:
    """`app` and the parts it was made of."""

    def __init__(self, script: Script | None = None, *, max_model_len=1000, **options) -> None:
        self.options = options
        self.engine = FakeEngine(script, max_model_len=max_model_len)
        self.renderer = TinyRenderer()
        self.metrics = EngineMetrics("tiny", max_model_len=max_model_len)
        self.engine.metrics = self.metrics
        self.app = create_app(
            self.engine,
            self.renderer,
            model_name="tiny",
            metrics=self.metrics,
            now=lambda: NOW,
            **options,
        )

    def value(self, name: str, **labels: str) -> float:
        """Return one sample of /metrics."""
        labels = {"model_name": "tiny", "engine": "0"} | labels
        found = self.metrics.registry.get_sample_value(name, labels)
        assert found is not None, name
        return found


def says(text: str, **fields) -> Script:
    """A script whose reply is `text`, a byte per token."""
    return Script(token_ids=tuple(text.encode()), **fields)
