"""A multi-turn conversation of exact token lengths, played with reuse and without."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from warmturn.errors import InvalidInput, PeerError
from warmturn.probe.client import Answer, Client, Message

__all__ = ["SEED_SHAPE", "Shape", "play", "replay_without_reuse"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths in tokens. Turn k's prompt has system + user + (k - 1) * (user + reply) tokens.

    The template's own tokens count as part of the message they stand beside.
    """

    turns: int
    system_tokens: int
    user_tokens: int
    reply_tokens: int

    def prompt_tokens(self, turn: int) -> int:
        """Return the length of the prompt of `turn`, counted from 1."""
        exchange = self.user_tokens + self.reply_tokens
        return self.system_tokens + self.user_tokens + (turn - 1) * exchange

    @property
    def total_tokens(self) -> int:
        """Sum of all prompts: what a server without reuse prefills. Grows with turns squared."""
        return sum(self.prompt_tokens(turn) for turn in range(1, self.turns + 1))

    @property
    def bound_tokens(self) -> int:
        """What perfect reuse prefills: the first prompt, then only each new message."""
        return self.prompt_tokens(1) + (self.turns - 1) * self.user_tokens

    @property
    def longest_tokens(self) -> int:
        """Prompt and reply of the last turn."""
        return self.prompt_tokens(self.turns) + self.reply_tokens


SEED_SHAPE = Shape(turns=10, system_tokens=1500, user_tokens=150, reply_tokens=350)
"""39,000 prompt tokens in all, 3,000 of them new."""

HANDBOOK = (
    "You answer questions of the staff of a small public library. Be brief and concrete. "
    "Books are lent for four weeks, films for one. A loan can be extended twice unless "
    "somebody has reserved the item. Reserved items wait at the desk for seven days. "
    "Damaged items go to the workshop in the basement; write the shelf mark and the damage "
    "on the yellow form. The reading room opens at nine and closes at six, on Saturdays at "
    "two. Groups of more than ten register by telephone a week before. New readers show an "
    "identity card and get a card that is valid for a year. Children under twelve need the "
    "signature of a parent. The copier takes coins only. Lost cards are blocked at once and "
    "replaced for a small fee. Gifts of books are welcome when they are clean and not older "
    "than ten years; older ones are passed to the market in spring. "
)

QUESTIONS = (
    "A reader wants to keep a book longer, but somebody else is waiting for it.",
    "A school class of twenty wants to come tomorrow morning.",
    "Somebody brings three boxes of old novels as a gift.",
    "A child of ten asks for a card and came without parents.",
    "A film came back with a broken case.",
    "A reader lost the card and is worried about misuse.",
    "The copier is out of order and a student has an exam.",
    "An item was reserved nine days ago and nobody came.",
)

DETAILS = (
    "Please tell me what to say at the desk, which form is needed and whom I have to inform. "
    "The reader is friendly but in a hurry, and there is a queue of five people behind. "
    "I am new here, so mention the rule that decides it and the one exception that matters. "
)


def play(
    client: Client, shape: Shape, *, model: str, salt: str, margins: bool = False
) -> Iterator[Answer]:
    """Play the conversation as a chat client does, a turn per answer, greedily.

    Replies have exactly `reply_tokens` tokens (`ignore_eos`), and messages are cut so that
    every prompt has the length the shape says; a server whose count differs raises `PeerError`.
    Special tokens stay in the text, so that what comes back is what was generated.
    `margins`: also ask for the log-probabilities that `Answer.first_margin` needs.
    """
    script = _Script(client, shape, model, salt)
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if margins else {}
    fields |= {"model": model, "cache_salt": salt, **_reply_fields(shape)}
    messages = [script.system()]
    for turn in range(1, shape.turns + 1):
        messages.append(script.user(turn, messages))
        answer = client.chat(messages, **fields)
        _expect_length(answer, shape, turn)
        messages.append({"role": "assistant", "content": answer.text})
        yield answer


def replay_without_reuse(client: Client, prompt_token_ids: list[int], shape: Shape) -> Answer:
    """Send recorded ids under a salt never used before: nothing can be reused."""
    salt = secrets.token_hex(16)
    return client.complete(prompt_token_ids, cache_salt=salt, **_reply_fields(shape))


def _reply_fields(shape: Shape) -> dict[str, Any]:
    return {
        "temperature": 0,
        "max_tokens": shape.reply_tokens,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }


def _expect_length(answer: Answer, shape: Shape, turn: int) -> None:
    wanted = shape.prompt_tokens(turn)
    if answer.prompt_tokens != wanted or len(answer.token_ids) != shape.reply_tokens:
        raise PeerError(
            f"turn {turn} was to have {wanted} prompt and {shape.reply_tokens} reply tokens, the "
            f"server counts {answer.prompt_tokens} and {len(answer.token_ids)}; the conversation "
            "was rewritten on the way (is --exact-continuation on?)"
        )


@dataclass(frozen=True, slots=True)
class _Script:
    """Writes messages of the wanted lengths, as this server's `/tokenize` counts them."""

    client: Client
    shape: Shape
    model: str
    salt: str

    def system(self) -> Message:
        """Cut the handbook so that a prompt of it alone has `system_tokens` tokens."""

        def count(text: str) -> int:
            return self._count([{"role": "system", "content": text}], add_generation_prompt=False)

        wanted = self.shape.system_tokens
        text = _fill(count, wanted, "", HANDBOOK, what="--system-tokens")
        return {"role": "system", "content": text}

    def user(self, turn: int, before: list[Message]) -> Message:
        """Cut a question so that the whole prompt has the length of this turn."""

        def count(text: str) -> int:
            messages = [*before, {"role": "user", "content": text}]
            return self._count(messages, cache_salt=self.salt)

        opening = f"{turn}. {QUESTIONS[(turn - 1) % len(QUESTIONS)]} "
        wanted = self.shape.prompt_tokens(turn)
        text = _fill(count, wanted, opening, DETAILS, what="--user-tokens")
        return {"role": "user", "content": text}

    def _count(self, messages: list[Message], **fields: Any) -> int:
        body = {"messages": messages, "model": self.model, **fields}
        return int(self.client.post("/tokenize", body)["count"])


def _fill(count: Callable[[str], int], wanted: int, opening: str, filler: str, *, what: str) -> str:
    """Return text for which `count` gives `wanted`: words of the filler, then single tokens.

    Raises `InvalidInput` when even the shortest text is too long.
    """
    words = (opening + filler).split(" ")
    least = count("Ok")
    if least > wanted:
        raise InvalidInput(
            f"{what} leaves room for {wanted} tokens up to here, the template alone takes "
            f"{least}; raise it by at least {least - wanted}"
        )
    low, high = 0, 1
    while count(_words(words, high)) <= wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if count(_words(words, middle)) <= wanted:
            low = middle
        else:
            high = middle
    text = _words(words, low)
    while count(text) < wanted:
        text += " ok"
    if count(text) != wanted:
        raise PeerError(f"no text of exactly {wanted} tokens was found; try another {what}")
    return text


def _words(words: list[str], count: int) -> str:
    repeated = words * (count // len(words) + 1)
    return " ".join(word for word in repeated[:count] if word) or "Ok"
