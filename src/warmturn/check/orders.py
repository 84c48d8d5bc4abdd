"""What keeps two conversations from sharing one system text.

Not a break of any turn: each conversation may be clean by itself. But where the text is long
and the same for all but a name near its top, every first turn pays for it again.
"""

from collections import OrderedDict

from warmturn.check.message_keys import is_similar
from warmturn.check.spans import changed_spans
from warmturn.check.volatile import classify

__all__ = ["SharedOrders"]

_MOST_TEXTS = 16
_FAULTS = frozenset({
    "client.timestamp_in_system",
    "client.volatile_value_in_system",
    "client.user_data_in_system",
})  # fmt: skip


class SharedOrders:
    """Remembers the latest system texts, a few of them."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def add(self, text: str) -> tuple[str, ...]:
        """Return what alone makes `text` differ from one seen before; () if nothing, or much, does."""
        if text not in self._texts:
            self._texts[text] = self._faults(text) if text else ()
            if len(self._texts) > _MOST_TEXTS:
                self._texts.popitem(last=False)
        return self._texts[text]

    def _faults(self, text: str) -> tuple[str, ...]:
        for other in reversed(self._texts):
            if is_similar(other, text):
                changes = classify(other, text, changed_spans(other, text))
                kinds = tuple(dict.fromkeys(change.kind for change in changes))
                if kinds and _FAULTS.issuperset(kinds):
                    return kinds
        return ()
