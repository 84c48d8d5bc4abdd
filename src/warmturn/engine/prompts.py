"""Requests to token ids for the engine: render, splice what was generated, check, remember."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from warmturn.blocks.keys import validate_salt
from warmturn.engine.api import EngineRequest, SamplingParams
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.reply import Delta
from warmturn.errors import InvalidRequest, TemplateError
from warmturn.formats import ChatPrompt, GenerateRequest, TextPrompt
from warmturn.render.renderer import Renderer
from warmturn.session.continuation import Continuations, SplicedPrompt
from warmturn.types import RequestId, TokenIds

__all__ = ["Prompt", "Prompts", "engine_request"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the engine gets it."""

    token_ids: TokenIds
    salt: str | None
    text: str | None
    """What the ids were made of; None where a reply to it cannot be spliced back later."""


class Prompts:
    """Makes prompts and remembers replies. One call at a time: `Continuations` has state."""

    def __init__(
        self,
        renderer: Renderer,
        *,
        continuations: Continuations | None,
        metrics: EngineMetrics,
        now: Callable[[], datetime],
    ) -> None:
        """`now` is what templates see as the current date, in the zone the operator chose."""
        self.tokenizer = renderer.tokenizer
        self._renderer = renderer
        self._continuations = continuations
        self._metrics = metrics
        self._now = now

    def now_s(self) -> float:
        """Return the current time in seconds since 1970."""
        return self._now().timestamp()

    def text_of(self, prompt: ChatPrompt | TextPrompt) -> str:
        """Return the text to tokenise. Raises `TemplateError` when a chat's template refuses."""
        if isinstance(prompt, TextPrompt):
            return prompt.text
        try:
            return self._renderer.render_text(
                prompt.messages,
                now=self._now(),
                tools=prompt.tools or None,
                add_generation_prompt=prompt.add_generation_prompt,
                continue_final_message=prompt.continue_final_message,
                chat_template_kwargs=prompt.template_kwargs,
            )
        except TemplateError as error:
            error.param = error.param or "messages"
            raise

    def served_ids(self, prompt: ChatPrompt | TextPrompt, salt: str | None) -> TokenIds:
        """Return the ids with which a request of this prompt and salt would be served."""
        if salt is not None:
            validate_salt(salt)
        return self._splice(prompt, salt)[0].token_ids

    def build(self, request: GenerateRequest) -> Prompt:
        """Return the prompt for the engine. Raises `InvalidRequest` naming the field.

        Exact continuation applies where the text stands for all of the tokens: to a chat, and
        to a completion with `add_special_tokens` false.
        """
        salt = request.generation.cache_salt
        if salt is not None:
            validate_salt(salt)
        self.check_ids(request.generation.stop_token_ids, param="stop_token_ids")
        if isinstance(request.prompt, np.ndarray):
            self.check_ids(request.prompt, param="prompt")
            return Prompt(request.prompt, salt, text=None)
        prompt = self._from_text(request.prompt, salt)
        if not len(prompt.token_ids):
            raise InvalidRequest("the prompt comes to no tokens at all; send some text")
        return prompt

    def _from_text(self, prompt: ChatPrompt | TextPrompt, salt: str | None) -> Prompt:
        spliced, text = self._splice(prompt, salt)
        self._metrics.spliced(
            num_spliced_tokens=spliced.num_spliced_tokens,
            num_drifted_tokens=spliced.num_drifted_tokens,
        )
        return Prompt(spliced.token_ids, salt, text)

    def _splice(
        self, prompt: ChatPrompt | TextPrompt, salt: str | None
    ) -> tuple[SplicedPrompt, str | None]:
        """Return the ids, and the text they stand for where a reply to it can be spliced."""
        text = self.text_of(prompt)
        encode = self.tokenizer.encode
        if self._continuations is None or prompt.add_special_tokens:
            ids = encode(text, add_special_tokens=prompt.add_special_tokens)
            return SplicedPrompt(ids), None
        return self._continuations.splice(salt=salt, text=text, encode=encode), text

    def remember(self, prompt: Prompt, reply: Sequence[Delta]) -> None:
        """Remember a finished reply as generated, so that the next turn continues it exactly.

        Of a reply that a stop string ended only those tokens count whose text was shown whole.
        """
        if self._continuations is None or prompt.text is None:
            return
        token_ids = [token_id for delta in reply for token_id in delta.token_ids]
        if isinstance(reply[-1].stop_reason, str):
            shown = "".join(delta.text for delta in reply)
            token_ids = token_ids[: self._num_tokens_within(token_ids, shown)]
        if token_ids:
            self._continuations.remember(
                salt=prompt.salt,
                prompt_text=prompt.text,
                prompt_token_ids=prompt.token_ids,
                reply_text=self.tokenizer.decode(token_ids, skip_special_tokens=False),
                reply_token_ids=np.asarray(token_ids, dtype=np.int32),
            )

    def check_ids(self, token_ids: Sequence[int] | TokenIds, *, param: str) -> None:
        """Raise `InvalidRequest` for ids outside the vocabulary."""
        highest = int(np.max(token_ids, initial=0))
        if highest >= self.tokenizer.vocab_size:
            raise InvalidRequest(
                f"{param} has token id {highest}; the highest there is is "
                f"{self.tokenizer.vocab_size - 1}",
                param=param,
            )

    def _num_tokens_within(self, token_ids: Sequence[int], text: str) -> int:
        """Return how many leading tokens decode to a prefix of `text`; O(log n) decodings."""

        def decoded(num_tokens: int) -> str:
            return self.tokenizer.decode(token_ids[:num_tokens], skip_special_tokens=False)

        counts = range(len(token_ids) + 1)
        most = bisect_right(counts, len(text), key=lambda count: len(decoded(count))) - 1
        # Where special tokens were left out of the text, no token can be told to lie within it.
        return most if text.startswith(decoded(most)) else 0


def engine_request(request: GenerateRequest, prompt: Prompt, request_id: str) -> EngineRequest:
    """Return what the engine is asked to do."""
    generation = request.generation
    return EngineRequest(
        request_id=RequestId(request_id),
        prompt_token_ids=prompt.token_ids,
        max_tokens=request.max_tokens,
        sampling=SamplingParams(
            temperature=generation.usable_temperature,
            top_p=generation.top_p,
            top_k=generation.top_k_or_none,
            seed=generation.seed,
            num_logprobs=request.num_logprobs,
            min_tokens=generation.min_tokens,
        ),
        stop_token_ids=frozenset(generation.stop_token_ids),
        ignore_eos=generation.ignore_eos,
        cache_salt=prompt.salt,
    )
