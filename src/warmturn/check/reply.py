"""What the model generated after a prompt, from whatever the log kept of it."""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from warmturn.check.message_keys import content_text, without_space
from warmturn.check.prompt import Message, Prompt, PromptRenderer
from warmturn.errors import TemplateError
from warmturn.formats.record import LoggedRequest

__all__ = [
    "Evidence",
    "Generated",
    "as_assistant",
    "content_of_reply",
    "generated_by",
    "plainly_appended",
    "reply_matches",
    "split_reasoning",
]

Evidence: TypeAlias = Literal["ids", "text", "message", "none"]
"""What the log has of the reply: sampled ids, raw text, the parsed message, or nothing.

Only ids prove what lies in the cache. From text the ids are those of prompt and reply encoded
as one string; from a message the text is that of the template, with its content put back.
"""

_THINKING = (
    ("<think>", "</think>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("◁think▷", "◁/think▷"),
)
"""How families open and close reasoning; the opening may stand in the prompt already."""

_GENERAL_CLOSING = "<|end|>"
"""Ends other things too: only with its opening does it end reasoning."""

_CALL_START = re.compile(
    r"<tool_call|<\|tool|\[TOOL_CALLS\]|<function|<\|start\|>assistant to=|<\|channel\|>commentary"
)
_FINAL_START = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>")
_SPECIALS_AT_END = re.compile(r"(?:<[^<>\s]{1,60}>)+\s*\Z")
_SPECIAL = re.compile(r"<[^<>\s]{1,60}>")
_LONGEST_OPENING = 48
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class Generated:
    """A reply as generated. `text` is raw, end token included where the log has it."""

    text: str
    evidence: Evidence
    reasoning: str | None
    """Without its markers, white space at the borders kept; None where there was none."""
    content: str | None
    """None where it is not known."""
    message: Message | None
    """The parsed message the server answered with, where the log has it."""


def generated_by(
    request: LoggedRequest, prompt: Prompt, prompt_text: str, renderer: PromptRenderer
) -> Generated:
    """Return what the model generated for `request`; see `Evidence` for how sure that is."""
    message = request.reply
    if renderer.is_transcript:
        return _in_transcript(request, prompt, prompt_text, renderer)
    if request.reply_text is not None:
        text = request.reply_text
        evidence: Evidence = "text" if request.reply_token_ids is None else "ids"
    elif message is not None:
        text, evidence = _text_of_message(message, prompt, prompt_text, renderer), "message"
    else:
        text, evidence = "", "none" if request.reply_token_ids is None else "ids"
    reasoning, content = _parts(text, message)
    return Generated(text, evidence, reasoning, content, message)


def plainly_appended(
    earlier: LoggedRequest, later: LoggedRequest, earlier_text: str, later_text: str
) -> Generated | None:
    """Read the reply off the later prompt, where it came back untouched and is printed in full.

    The common case of a log without raw replies: it saves rendering the reply by itself.
    None where there is anything to look into.
    """
    reply = earlier.reply
    if reply is None or earlier.reply_text is not None or earlier.reply_token_ids is not None:
        return None
    content = reply.get("content")
    num_before = len(earlier.messages or ())
    echo = (later.messages or ())[num_before : num_before + 1]
    if not isinstance(content, str) or not content or not echo:
        return None
    if any(reply.get(field) for field in ("tool_calls", *_REASONING_FIELDS)):
        return None
    if echo[0].get("content") != content or not later_text.startswith(earlier_text):
        return None
    start = len(earlier_text)
    at = later_text.find(content, start, start + len(content) + _LONGEST_OPENING)
    if at < 0:
        return None
    ending = _SPECIAL.match(later_text, at + len(content))
    end = at + len(content) if ending is None else ending.end()
    return Generated(later_text[start:end], "message", None, content, reply)


def _in_transcript(
    request: LoggedRequest, prompt: Prompt, prompt_text: str, renderer: PromptRenderer
) -> Generated:
    """A raw reply has no place in a transcript: only its message has."""
    message = request.reply
    if message is None:
        content = content_of_reply(request)
        if content is None:
            return Generated("", "none", None, None, None)
        message = {"role": "assistant", "content": content}
    text = _text_of_message(message, prompt, prompt_text, renderer)
    return Generated(text, "message", None, content_text(message), message)


def split_reasoning(text: str) -> tuple[str | None, str]:
    """Return the reasoning in a raw reply, None without any, and what comes behind it."""
    for opening, closing in _THINKING:
        inner, found, rest = text.partition(closing)
        if found and _is_telling((opening, closing), inner):
            before, _, reasoning = inner.rpartition(opening)
            return (reasoning, rest) if not before.strip() else (inner, rest)
    return None, text


def as_assistant(reply: Message) -> Message:
    """Return a reply as a message of a list; one that names its role is one already."""
    return reply if "role" in reply else {"role": "assistant", **reply}


def reply_matches(request: LoggedRequest, echo: Message) -> bool | None:
    """Say whether `echo` is, loosely, what `request` was answered with; None if unknown."""
    text = without_space(content_text(echo))
    calls = echo.get("tool_calls") or ()
    if request.reply is not None:
        answered = without_space(content_text(request.reply))
        if calls or request.reply.get("tool_calls"):
            return _call_names(echo) == _call_names(request.reply)
        return bool(text == answered)
    if request.reply_text is not None:
        raw = without_space(request.reply_text)
        return text in raw and all(name in raw for name in _call_names(echo))
    return None


def content_of_reply(request: LoggedRequest) -> str | None:
    """Return the text of the answer in a raw reply, without reasoning and end token."""
    return None if request.reply_text is None else _parts(request.reply_text, None)[1]


def _parts(text: str, message: Message | None) -> tuple[str | None, str | None]:
    if message is not None:
        return _reasoning_of(message), content_text(message)
    if not text:
        return None, None
    reasoning, rest = split_reasoning(text)
    if reasoning is not None and not reasoning.strip():
        reasoning = None
    call = _CALL_START.search(rest)
    body = rest if call is None else rest[: call.start()]
    return reasoning, _SPECIALS_AT_END.sub("", _FINAL_START.sub("", body, count=1))


def _call_names(message: Message) -> list[str]:
    calls = message.get("tool_calls")
    functions = [c.get("function") for c in calls or () if isinstance(c, dict)]
    return [str(f.get("name")) for f in functions if isinstance(f, dict)]


def _text_of_message(
    message: Message, prompt: Prompt, prompt_text: str, renderer: PromptRenderer
) -> str:
    """Write the reply as the template writes a last message, but with the content untrimmed."""
    content = content_text(message)
    core = content.strip()
    if core and core != content and isinstance(message.get("content"), str):
        # A template may trim all of the white space, or some: it is put around the bare answer.
        bare_message = {**message, "content": core}
        written = _text_of_message(bare_message, prompt, prompt_text, renderer)
        before, found, after = written.rpartition(core)
        return f"{before}{content}{after}" if found else written
    reasoning = _reasoning_of(message)
    source = renderer.template_for(prompt).source
    whole = _whole_text(prompt, message, renderer)
    if whole is None or not whole.startswith(prompt_text):
        return _with_reasoning(content, reasoning, prompt_text, source) if reasoning else content
    written = whole[len(prompt_text) :]
    if reasoning is None:
        written = _without_empty_reasoning(written)
    elif reasoning not in written:
        written = _with_reasoning(written, reasoning, prompt_text, source)
    # What a template writes between messages, a line feed mostly, is not generated.
    bare = written.rstrip()
    return bare if bare.endswith((">", "]")) else written


def _whole_text(prompt: Prompt, message: Message, renderer: PromptRenderer) -> str | None:
    """Return the prompt with the reply as its last message; None where the template refuses."""
    try:
        return renderer.text(_answered(prompt, message), add_generation_prompt=False)
    except TemplateError:
        return None


def _reasoning_of(message: Message) -> str | None:
    fields = (message.get(field) for field in _REASONING_FIELDS)
    found = (value.strip() for value in fields if isinstance(value, str))
    return next((value for value in found if value), None)


def _is_telling(pair: tuple[str, str], text: str) -> bool:
    """Say whether the closing marker ends reasoning: some end other things too."""
    return pair[1] != _GENERAL_CLOSING or pair[0] in text


def _without_empty_reasoning(written: str) -> str:
    """Drop the empty block some templates print before a last message: nobody generated it."""
    for opening, closing in _THINKING:
        inner, found, rest = written.partition(closing)
        if found and inner.strip() in {"", opening}:
            return rest.lstrip("\n")
    return written


def _with_reasoning(written: str, reasoning: str, prompt_text: str, source: str) -> str:
    """Put the reasoning back that a template does not print even for a last message.

    Only templates that know of reasoning: for others the model may not have been asked to think.
    """
    known = [pair for pair in _THINKING if pair[1] in source and _is_telling(pair, source)]
    if not known:
        return written
    opening, closing = known[0]
    if written.lstrip().startswith(closing):
        return f"{reasoning}{written}"
    if prompt_text.rstrip().endswith(opening):
        return f"{reasoning}\n{closing}\n\n{written}"
    return f"{opening}\n{reasoning}\n{closing}\n\n{written}"


def _answered(prompt: Prompt, message: Message) -> Prompt:
    return Prompt(
        (*prompt.messages, as_assistant(message)), prompt.tools, prompt.kwargs, prompt.now
    )
