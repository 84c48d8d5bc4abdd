"""Checks one turn: renders once, compares, and looks for causes only where something broke."""

import unicodedata
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from warmturn.check.causes import Finding, Step, find_causes
from warmturn.check.compare import shared_chars, shared_tokens
from warmturn.check.experiment import Pair
from warmturn.check.message_keys import content_text, is_system, same_json
from warmturn.check.names import Level
from warmturn.check.prompt import Prompt, PromptRenderer, prompt_of
from warmturn.check.reply import Generated, generated_by, plainly_appended
from warmturn.check.tokens import Encoder, TokenFinding, find_token_cause
from warmturn.check.volatile import latent_causes
from warmturn.formats.record import LoggedRequest
from warmturn.types import TokenIds

__all__ = [
    "Comparison",
    "Counts",
    "Rendered",
    "are_messages_append_only",
    "compare",
    "compare_tokens",
    "latent_causes_of",
    "rendered",
]


@dataclass(frozen=True)
class Rendered:
    """A request with its text, and its ids where there is a tokenizer or a log of ids."""

    request: LoggedRequest
    prompt: Prompt
    text: str
    """As rendered here."""
    sent_text: str
    """As the server had it, where the log tells; else as rendered here."""
    renderer: PromptRenderer
    tokenizer: Encoder | None

    @cached_property
    def generated(self) -> Generated:
        """What the model answered. One more render where the log has only the parsed message."""
        request = self.request
        if request.reply_text is None and request.reply_token_ids is not None and self.tokenizer:
            ids = np.asarray(request.reply_token_ids, np.int32)
            raw = self.tokenizer.decode(ids, skip_special_tokens=False)
            request = replace(request, reply_text=raw)
        return generated_by(request, self.prompt, self.text, self.renderer)

    @cached_property
    def prompt_ids(self) -> TokenIds | None:
        """`[num_prompt_tokens]`: from the log, else encoded."""
        if self.request.prompt_token_ids is not None:
            return np.asarray(self.request.prompt_token_ids, np.int32)
        return None if self.tokenizer is None else self.tokenizer.encode(self.sent_text)

    def cached_ids(self, generated: Generated) -> TokenIds | None:
        """Ids of prompt and reply: generated ones where logged, else both encoded as one string."""
        if self.prompt_ids is None:
            return None
        reply_ids = self.request.reply_token_ids
        if reply_ids is not None:
            return np.concatenate([self.prompt_ids, np.asarray(reply_ids, np.int32)])
        if not generated.text or self.tokenizer is None:
            return self.prompt_ids
        if self.request.prompt_token_ids is not None:
            return np.concatenate([self.prompt_ids, self.tokenizer.encode(generated.text)])
        return self.tokenizer.encode(self.sent_text + generated.text)


@dataclass(frozen=True, slots=True)
class Counts:
    """Lengths of one pair, in tokens."""

    earlier_prompt_tokens: int
    cached_tokens: int
    """Prompt and reply, the last generated token included."""
    prompt_tokens: int
    """Of the later prompt."""
    shared_tokens: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one pair of requests shows."""

    pair: Pair
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    token_finding: TokenFinding | None
    counts: Counts | None
    is_loss_bounded: bool | None
    latent: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether cached text or tokens are lost."""
        return bool(self.findings) or self.token_finding is not None

    @property
    def level(self) -> Level | None:
        """The level of the first cause."""
        if self.findings:
            return self.findings[0].level
        return None if self.token_finding is None else "tokens"

    @property
    def cause(self) -> str:
        """The first cause."""
        if self.findings:
            return self.findings[0].cause
        return "none" if self.token_finding is None else self.token_finding.cause


def rendered(
    request: LoggedRequest, renderer: PromptRenderer, tokenizer: Encoder | None
) -> Rendered:
    """Render `request`. Raises `TemplateError` where the template refuses it."""
    prompt = prompt_of(request)
    text = renderer.text(prompt)
    sent = request.prompt_text
    if sent is None and request.prompt_token_ids is not None and tokenizer is not None:
        sent = tokenizer.decode(np.asarray(request.prompt_token_ids), skip_special_tokens=False)
    sent = text if sent is None else sent
    return Rendered(request, prompt, text, sent, renderer, tokenizer)


def compare(
    earlier: Rendered,
    later: Rendered,
    renderer: PromptRenderer,
) -> Comparison:
    """Test `P(n) + G(n)[:-1]` of `earlier` against the prompt of `later`."""
    generated = (
        plainly_appended(earlier.request, later.request, earlier.text, later.text)
        or earlier.generated
    )
    pair = Pair(renderer, earlier.prompt, later.prompt, generated, earlier.text, later.text)
    steps = find_causes(pair)
    findings = tuple(step.finding for step in steps)
    token_finding, counts = compare_tokens(pair, earlier, later, has_text_break=bool(findings))
    notes: tuple[str, ...] = ()
    if not findings and token_finding is None:
        findings, notes = _as_sent(pair, earlier, later)
    return Comparison(
        pair,
        steps,
        findings,
        token_finding,
        counts,
        _is_bounded(pair) if findings and findings[0].blame == "template" else None,
        latent_causes_of(later.prompt),
        notes,
    )


def are_messages_append_only(earlier: Prompt, later: Prompt) -> bool:
    """Say whether the earlier messages are the head of the later ones and tools are equal, as JSON."""
    head = later.messages[: len(earlier.messages)]
    return same_json(earlier.messages, head) and same_json(earlier.tools or (), later.tools or ())


def compare_tokens(
    pair: Pair, earlier: Rendered, later: Rendered, *, has_text_break: bool
) -> tuple[TokenFinding | None, Counts | None]:
    """Return the token-level cause, if any, and the lengths that cost is made of."""
    cached, prompt = earlier.cached_ids(pair.generated), earlier.prompt_ids
    following = later.prompt_ids
    if cached is None or prompt is None or following is None:
        return None, None
    shared = shared_tokens(cached, following)
    # Encoded as one string, prompt and reply may merge; what was sent was the prompt alone.
    in_prompt = shared_tokens(prompt, following)
    if in_prompt < len(prompt):
        shared = min(shared, in_prompt)
    counts = Counts(len(prompt), len(cached), len(following), shared)
    is_whole = shared >= len(cached) - bool(pair.generated.text or len(cached) > len(prompt))
    if has_text_break or is_whole or not _has_same_text(pair, earlier, later):
        return None, counts
    if in_prompt < len(prompt) and earlier.request.reply_token_ids is None and earlier.tokenizer:
        cached = np.concatenate([prompt, earlier.tokenizer.encode(pair.generated.text)])
    finding = find_token_cause(
        cached, following, prompt_tokens=len(prompt), tokenizer=earlier.tokenizer
    )
    return finding, counts


def _has_same_text(pair: Pair, earlier: Rendered, later: Rendered) -> bool:
    """Say whether the texts are known to agree, so that ids alone can be what differs."""
    is_ours = all(
        unicodedata.normalize("NFC", one.sent_text) == unicodedata.normalize("NFC", one.text)
        for one in (earlier, later)
    )
    return is_ours and pair.later_text.startswith(pair.earlier_text)


def _as_sent(
    pair: Pair, earlier: Rendered, later: Rendered
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Look for a break in the prompts as the server had them: rendered here there is none."""
    if (earlier.sent_text, later.sent_text) == (earlier.text, later.text):
        return (), ()
    note = "the prompts in the log differ from those rendered here: is it the server's template?"
    sent = replace(pair, earlier_text=earlier.sent_text, later_text=later.sent_text)
    if sent.is_append_only:
        return (), (note,)
    start, end = max(0, sent.shared - 48), sent.shared + 48
    sides = sent.cached_text[start:end], sent.later_text[start:end]
    detail = "clean as rendered here, broken as the server rendered it"
    finding = Finding(
        "server.template_differs", "text", "server", sent.shared, None, detail, *sides, {}
    )
    return (finding,), (note,)


def _is_bounded(pair: Pair) -> bool:
    """Say whether all up to the last user message of the earlier request is still shared."""
    last = max(
        (i for i, m in enumerate(pair.earlier.messages) if m.get("role") == "user"), default=-1
    )
    head = replace(pair.earlier, messages=pair.earlier.messages[: last + 1])
    text = pair.text_of(head, add_generation_prompt=False)
    return text is not None and pair.shared >= shared_chars(text, pair.earlier_text)


def latent_causes_of(prompt: Prompt) -> tuple[str, ...]:
    """Return the causes that will break a later turn though nothing has changed yet."""
    texts = (content_text(message) for message in prompt.messages if is_system(message))
    return tuple(dict.fromkeys(cause for text in texts for cause in latent_causes(text)))
