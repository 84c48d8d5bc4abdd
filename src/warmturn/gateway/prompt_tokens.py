"""One model's prompts in tokens, in process: a turn costs what is new in it.

    later turn      prefix checked by digest, tail rendered, new segments encoded      here
    no state        parsed and rendered as a whole, known segments looked up           here
    much new text   likewise                                                           in a thread

The caller waits for the thread a few milliseconds at most, and decides on bytes otherwise; the next
turn then finds the state. Nothing is ever asked of an engine.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import msgspec
import xxhash

from warmturn.errors import CallerError, InvalidRequest
from warmturn.fleet import IndexScope, PromptBlocks
from warmturn.formats.anthropic import openai_messages, openai_system, openai_tools
from warmturn.formats.body import check_depth
from warmturn.gateway.prompt_state import PromptState, messages_end
from warmturn.gateway.reply_message import reply_message
from warmturn.gateway.turns import Api, Call
from warmturn.render import Renderer
from warmturn.render.messages import plain_tool
from warmturn.render.tail import Framing, Kind, Opened, TailProofs, TailRenderer, kind_of

__all__ = ["Asked", "Cold", "PromptTokens", "Told"]

DEFAULT_MAX_BYTES = 256 * 2**20
"""Of all states: some 8,000 conversations of 32,000 tokens."""
MAX_NEW_CHARS = 6_000
"""New text that is encoded on the event loop: about 1,500 tokens, some 2 ms."""
MAX_WHOLE_BYTES = 300_000
"""Messages that are rendered as a whole on the event loop: some 3 ms."""
_MAX_FRAMINGS = 64
_MAX_JOBS = 64
"""Waiting for the thread; beyond that replies are not tokenised ahead, and cold prompts not at all."""

_T = TypeVar("_T")

Work: TypeAlias = Callable[[], Callable[[], None] | None]
"""For the thread; what it returns is to be called in the event loop afterwards."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call's prompt, found in its body."""

    key: tuple[str, bytes]
    """Session, and digest of all that stands around the messages or scopes their blocks."""
    api: Api
    messages: bytes
    """The JSON list as sent."""
    end: int
    """Bytes of `messages` through the last one."""
    system: bytes
    """Anthropic's, as sent."""
    scope: IndexScope
    framing: TailRenderer


@dataclass(frozen=True, slots=True)
class Told:
    """A prompt in blocks, and what may be done about it when there is time."""

    blocks: PromptBlocks
    proof: Work | None = None
    """Compares a tail with the whole rendering: to be done when the request is on its way."""


Cold: TypeAlias = Future[tuple[PromptState, PromptBlocks] | None]
"""A prompt that the thread works on; its state is then to be given to `PromptTokens.keep`."""


class PromptTokens:
    """Tokenises for one model; all calls but `close` from the event loop's thread."""

    def __init__(
        self,
        renderer: Renderer,
        *,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """`today` is what templates that print a date show. Close it: it has a thread."""
        self.num_tails = self.num_whole = self.num_cold = self.num_failed = 0
        """Prompts told from their tail, as a whole, in the thread, and not at all."""
        self.num_refuted = 0
        """Tails that were not what the whole prompt ends with."""
        self._renderer, self._tokenizer = renderer, renderer.tokenizer
        self._today = today
        self._max_bytes = max_bytes
        self._states: OrderedDict[tuple[str, bytes], PromptState] = OrderedDict()
        self._num_bytes = 0
        self._framings: OrderedDict[bytes, TailRenderer] = OrderedDict()
        self._proofs = TailProofs()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prompt-tokens")
        self._lock, self._num_jobs = threading.Lock(), 0

    def close(self) -> None:
        """End the thread; what waits for it is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def num_states(self) -> int:
        """Conversations remembered."""
        return len(self._states)

    @property
    def num_waiting(self) -> int:
        """Pieces of work that the thread has not done yet."""
        return self._num_jobs

    def asked(self, call: Call, session: str, scope: IndexScope) -> Asked | None:
        """Find the prompt in a call; None where it has no messages that are understood."""
        fields = call.fields
        if call.api not in _APIS or not len(fields.messages):
            return None
        if len(fields.continue_final_message) or len(fields.add_generation_prompt):
            return None  # rare, and they change how the prompt ends
        messages, system = bytes(fields.messages), bytes(fields.system)
        try:
            end = messages_end(messages)
            framing, digest = self._framed(call)
        except (CallerError, ValueError, msgspec.MsgspecError, RecursionError):
            self.num_failed += 1
            return None
        scoped = repr((scope.salt, scope.adapter)).encode()
        key = session, _digest_of(digest, scoped, system)
        return Asked(key, call.api, messages, end, system, scope, framing)

    def tell(self, asked: Asked, block_sizes: frozenset[int]) -> Told | Cold | None:
        """Return the prompt in blocks, at once or from the thread; None where it cannot be told."""
        try:
            told = self._at_once(asked, block_sizes)
        except _CANNOT:
            self.num_failed += 1
            return None
        return self._from_thread(asked, block_sizes) if told is None else told

    def peek(self, asked: Asked, block_sizes: frozenset[int]) -> PromptBlocks | None:
        """Return the prompt in blocks without remembering it; it may take long."""
        try:
            return self._whole(asked, block_sizes)[1]
        except _CANNOT:
            return None

    def keep(self, asked: Asked, state: PromptState) -> None:
        """Remember a conversation's state; the least recently used ones make room."""
        old = self._states.pop(asked.key, None)
        if old is not None:
            self._num_bytes -= old.num_bytes
        self._states[asked.key] = state
        self._num_bytes += state.num_bytes
        while self._num_bytes > self._max_bytes and len(self._states) > 1:
            _, gone = self._states.popitem(last=False)
            self._num_bytes -= gone.num_bytes

    def later(self, work: Work) -> None:
        """Do a piece of work in the thread, and what it returns back here in the event loop.

        Left undone where too much waits for the thread already, or no loop runs.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._num_jobs >= _MAX_JOBS:
            return

        def done(future: Future[Callable[[], None] | None]) -> None:
            afterwards = None if future.cancelled() else future.result()
            if afterwards is not None and not loop.is_closed():
                loop.call_soon_threadsafe(afterwards)

        self._submit(work).add_done_callback(done)

    def learn_reply(
        self, asked: Asked, answer: bytes, then: Callable[[PromptBlocks], None]
    ) -> Work:
        """Return the work to encode a reply before the turn that will bring it back.

        Afterwards `then` gets the prompt and its reply in blocks.
        """
        state = self._states.get(asked.key)
        checkpoint = state.checkpoints[-1] if state is not None else None

        def work() -> Callable[[], None] | None:
            try:
                message = reply_message(answer)
                opened = None if message is None else asked.framing.tail([message])
            except _CANNOT:
                return None
            if state is None or checkpoint is None or opened is None:
                return None
            text = checkpoint.carry + opened.history
            ids = self._tokenizer.encode_segments(self._tokenizer.segments(text))

            def done() -> None:
                if state.checkpoints[-1] is checkpoint:  # no later turn has come meanwhile
                    then(state.blocks_with(ids))

            return done

        return work

    def _at_once(self, asked: Asked, block_sizes: frozenset[int]) -> Told | None:
        """Tell the prompt here; None where that would hold up the event loop."""
        state = self._states.get(asked.key)
        if state is not None and state.block_sizes == block_sizes:
            told = self._from_tail(asked, state)
            if told is not None:
                return told
        if asked.end > MAX_WHOLE_BYTES:
            return None
        opened = asked.framing.whole(self._messages(asked))
        state = PromptState(asked.scope, block_sizes)
        pieces = state.pieces(opened, self._tokenizer)
        if self._tokenizer.num_new_chars(pieces) > MAX_NEW_CHARS:
            return None
        blocks = self._extended(state, asked, opened, pieces)
        self.num_whole += 1
        self.keep(asked, state)
        return Told(blocks)

    def _from_tail(self, asked: Asked, state: PromptState) -> Told | None:
        """Go on from the state; None where the body does not, or its new part is long or odd."""
        checkpoint = state.shared_with(asked.messages, asked.end)
        if checkpoint is None or asked.end - checkpoint.num_bytes > MAX_NEW_CHARS * 4:
            return None
        new = _new_messages(asked, checkpoint.num_bytes)
        kind = kind_of(new)
        opened = asked.framing.tail(new) if self._proofs.allows(kind) else None
        if opened is None:
            return None
        num_tails = len(state.checkpoints) - 1
        before = state.num_bytes
        state.go_back(checkpoint)
        pieces = state.pieces(opened, self._tokenizer)
        if self._tokenizer.num_new_chars(pieces) > MAX_NEW_CHARS:
            return None
        blocks = self._extended(state, asked, opened, pieces)
        self.num_tails += 1
        self._num_bytes += state.num_bytes - before
        self._states.move_to_end(asked.key)
        proof = None
        digest = state.history_digest
        if digest is not None and self._proofs.is_wanted(kind, num_tails=num_tails):
            proof = self._proof(asked, kind, digest)
        return Told(blocks, proof)

    def _extended(
        self, state: PromptState, asked: Asked, opened: Opened, pieces: list[str]
    ) -> PromptBlocks:
        return state.extend(opened, pieces, self._tokenizer, messages=asked.messages, end=asked.end)

    def _whole(self, asked: Asked, block_sizes: frozenset[int]) -> tuple[PromptState, PromptBlocks]:
        opened = asked.framing.whole(self._messages(asked))
        state = PromptState(asked.scope, block_sizes)
        pieces = state.pieces(opened, self._tokenizer)
        return state, self._extended(state, asked, opened, pieces)

    def _from_thread(self, asked: Asked, block_sizes: frozenset[int]) -> Cold | None:
        if self._num_jobs >= _MAX_JOBS:
            self.num_failed += 1
            return None

        def work() -> tuple[PromptState, PromptBlocks] | None:
            try:
                return self._whole(asked, block_sizes)
            except _CANNOT:
                return None

        self.num_cold += 1
        return self._submit(work)

    def _proof(self, asked: Asked, kind: Kind, digest: int) -> Work:
        def refute() -> None:
            self.num_refuted += 1
            self._proofs.refute(kind)
            gone = self._states.pop(asked.key, None)
            self._num_bytes -= 0 if gone is None else gone.num_bytes

        def work() -> Callable[[], None] | None:
            try:
                whole = asked.framing.whole(self._messages(asked))
                text = whole.history.encode("utf-8", "surrogatepass")
                is_same = xxhash.xxh3_64_intdigest(text) == digest
            except _CANNOT:
                is_same = False
            return None if is_same else refute

        return work

    def _submit(self, work: Callable[[], _T]) -> Future[_T]:
        with self._lock:
            self._num_jobs += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._one_done)
        return future

    def _one_done(self, _future: Future[Any]) -> None:
        with self._lock:
            self._num_jobs -= 1

    def _messages(self, asked: Asked) -> list[dict[str, Any]]:
        system = _decoded(asked.system) if asked.system else None
        before = openai_system(system) if asked.api is Api.MESSAGES else []
        return [*before, *_new_messages(asked, 0)]

    def _framed(self, call: Call) -> tuple[TailRenderer, bytes]:
        """Return what stands around the messages, made once for all calls that frame them alike."""
        now = self._today()
        tools, kwargs = bytes(call.fields.tools), bytes(call.fields.chat_template_kwargs)
        day = now.date().isoformat().encode()
        digest = _digest_of(call.api.encode(), tools, kwargs, day)
        framing = self._framings.get(digest)
        if framing is None:
            parsed = _decoded(tools) if tools else None
            if parsed is not None and call.api is Api.MESSAGES:
                parsed = openai_tools(parsed)
            framing = self._framings[digest] = TailRenderer(
                self._renderer,
                Framing(
                    now,
                    None if parsed is None else [plain_tool(tool) for tool in parsed],
                    _decoded(kwargs) if kwargs else None,
                ),
            )
            if len(self._framings) > _MAX_FRAMINGS:
                self._framings.popitem(last=False)
        return framing, digest


def _new_messages(asked: Asked, start: int) -> list[dict[str, Any]]:
    """Parse the messages that begin at byte `start`, and give them OpenAI's form."""
    head = b"[null" if start else b""  # what comes next is the comma before the first new one
    new = msgspec.json.decode(head + memoryview(asked.messages)[start:])
    messages = new[1:] if start else new
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise InvalidRequest("messages is not a list of objects", param="messages")
    check_depth(messages, param="messages")
    if asked.api is Api.MESSAGES:
        return list(openai_messages(messages))
    return messages


def _digest_of(*parts: bytes) -> bytes:
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(len(part).to_bytes(8))  # no two lists of parts are written alike
        hasher.update(part)
    return hasher.digest()


def _decoded(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


_APIS = frozenset({Api.CHAT, Api.MESSAGES})
_CANNOT = (CallerError, msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError)
"""What foreign bodies and templates may bring about; the replica will say what is wrong with them."""
