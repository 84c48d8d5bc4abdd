"""One pair of requests under the microscope: what is cached, what comes next, what if.

A **trial** undoes one suspected change and renders again. It counts only if the break moves:
if more of the cached text is shared than before. Where a trial changes both requests, less of
the cached text must be lost.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from warmturn.check.alignment import Alignment, align
from warmturn.check.compare import last_token_chars, shared_chars
from warmturn.check.message_keys import content_text
from warmturn.check.names import Level
from warmturn.check.prompt import Prompt, PromptRenderer
from warmturn.check.reply import Generated
from warmturn.errors import WarmturnError

__all__ = ["Pair", "Trial", "holds"]


@dataclass(frozen=True)
class Pair:
    """An earlier request with its reply, and a later one, both rendered."""

    renderer: PromptRenderer
    earlier: Prompt
    later: Prompt
    generated: Generated
    earlier_text: str
    later_text: str

    @cached_property
    def cached_text(self) -> str:
        """What lies in the cache after the earlier turn, its last token included."""
        return self.earlier_text + self.generated.text

    @cached_property
    def shared(self) -> int:
        """Characters of `cached_text` that the later prompt begins with."""
        return shared_chars(self.cached_text, self.later_text)

    @property
    def lost(self) -> int:
        """Characters of `cached_text` that are of no use to the later prompt."""
        return len(self.cached_text) - self.shared

    @property
    def is_append_only(self) -> bool:
        """Whether all is shared but, at most, the last generated token, which has no keys yet."""
        return self.lost <= last_token_chars(self.generated.text)

    @cached_property
    def alignment(self) -> Alignment:
        """How the later messages continue the earlier ones."""
        found = align(self.earlier.messages, self.later.messages)
        if found.num_kept == 0 and found.num_put_in > 0 and self._is_reply(found.echo_index - 1):
            return replace(found, num_put_in=found.num_put_in - 1)
        return found

    def _is_reply(self, index: int) -> bool:
        message = self.later.messages[index]
        generated = (self.generated.content or "").strip()
        is_same = bool(generated) and content_text(message).strip() == generated
        return message.get("role") == "assistant" and is_same

    @property
    def echo_index(self) -> int | None:
        """Index of the reply among the later messages; None where it was not sent back."""
        index = self.alignment.echo_index
        messages = self.later.messages
        is_reply = index < len(messages) and messages[index].get("role") == "assistant"
        return index if is_reply else None

    def with_later(self, later: Prompt) -> "Pair":
        """Return the pair with another later request, rendered. Raises `TemplateError`."""
        return replace(self, later=later, later_text=self.renderer.text(later))

    def with_later_text(self, text: str) -> "Pair":
        """Return the pair with the later text edited by hand."""
        return replace(self, later_text=text)

    def with_both(self, earlier: Prompt, later: Prompt) -> "Pair":
        """Return the pair with both requests changed and rendered. Raises `TemplateError`."""
        changed = replace(self, earlier=earlier, earlier_text=self.renderer.text(earlier))
        return changed.with_later(later)

    def text_of(self, prompt: Prompt, *, add_generation_prompt: bool) -> str | None:
        """Return a rendering, None where the template refuses it."""
        try:
            return self.renderer.text(prompt, add_generation_prompt=add_generation_prompt)
        except WarmturnError:
            return None


@dataclass(frozen=True, slots=True)
class Trial:
    """A pair with one suspected change undone, and what the change would be called."""

    cause: str
    level: Level
    pair: Pair
    detail: str
    message_index: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """Figures of the cause, for the report: `slide_by_messages`, `tools_same_set` ..."""


def holds(before: Pair, trial: Trial) -> bool:
    """Say whether undoing the change moves the break."""
    after = trial.pair
    if after.cached_text == before.cached_text:
        return after.shared > before.shared
    removed = max(0, len(before.cached_text) - len(after.cached_text))
    return after.is_append_only or after.lost + removed < before.lost
