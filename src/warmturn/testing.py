"""For the tests of applications: a pytest fixture that fails where turns are not append-only.

    def test_my_agent_only_appends(append_only):
        turns = run_my_agent()          # the OpenAI request bodies it sent, in order
        append_only(turns, model="models/my-model")

pytest finds the fixture by itself where warmturn is installed. It therefore loads this module
for every test run there, so the checker is imported only where it is used.
"""

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from warmturn.errors import InvalidInput

if TYPE_CHECKING:
    from warmturn.check import CheckReport
    from warmturn.formats import LoggedRequest
    from warmturn.render import ChatTemplate, Renderer

__all__ = ["AppendOnly", "append_only", "report_on_turns"]

_PLACEHOLDERS = {"bos_token": "<s>", "eos_token": "</s>"}


class AppendOnly(Protocol):
    """What the fixture gives: call it with the turns of an application."""

    def __call__(
        self,
        turns: Iterable[Mapping[str, Any]],
        *,
        model: str | Path | None = None,
        template: str | None = None,
        fail_under: float = 0.9,
    ) -> "CheckReport":
        """Check `turns`; see `report_on_turns`. Fails the test where one of them breaks."""


@pytest.fixture
def append_only() -> AppendOnly:
    """Return a check that fails the test, with cause and place, where turns are not append-only."""

    def check(
        turns: Iterable[Mapping[str, Any]],
        *,
        model: str | Path | None = None,
        template: str | None = None,
        fail_under: float = 0.9,
    ) -> "CheckReport":
        __tracebackhide__ = True
        report = report_on_turns(turns, model=model, template=template, fail_under=fail_under)
        if not report.is_clean:
            pytest.fail(failure_message(report), pytrace=False)
        return report

    return check


def report_on_turns(
    turns: Iterable[Mapping[str, Any]],
    *,
    model: str | Path | None = None,
    template: str | None = None,
    fail_under: float = 0.9,
) -> "CheckReport":
    """Check what an application sent, in the order it was sent.

    Each turn is a request body, or `{"request": body, "response": answer}`, which also finds
    replies that are not sent back as generated. `model` is a Hugging Face model directory,
    `template` the source of a chat template; with neither, a plain template of our own shows
    what the client changes. Raises `InvalidInput` where a turn is no request.
    """
    from warmturn.check import Settings, check_conversations  # noqa: PLC0415 - see the module

    requests = list(_requests(turns))
    if not requests:
        raise InvalidInput("there are no turns to check: did the application send any request?")
    return check_conversations(
        requests,
        template=_loaded(model, template),
        settings=Settings(fail_under=fail_under),
    )


def _loaded(model: str | Path | None, template: str | None) -> "ChatTemplate | Renderer":
    from warmturn.check.generic import generic_template  # noqa: PLC0415 - see the module
    from warmturn.render import ChatTemplate, Renderer  # noqa: PLC0415

    if model is not None:
        return Renderer.from_directory(model, chat_template=template)
    if template is not None:
        return ChatTemplate(template, special_tokens=_PLACEHOLDERS)
    return generic_template()


def _requests(turns: Iterable[Mapping[str, Any]]) -> "Iterable[LoggedRequest]":
    """Read the turns as the lines of a log, so that both are understood in the same way."""
    from warmturn.formats import LoggedRequest, read_stream  # noqa: PLC0415 - see the module

    text = "".join(json.dumps(turn) + "\n" for turn in turns)
    for item in read_stream(io.BytesIO(text.encode()), source="turns", strict=True):
        assert isinstance(item, LoggedRequest)  # a strict reader raises for all others
        yield item


def failure_message(report: "CheckReport") -> str:
    """Return what a developer reads in the failed test: cause, place, both sides, what helps."""
    lines = [f"{report.num_failures} of {report.num_requests} turns are not append-only"]
    for conversation in report.conversations:
        for turn in conversation.turns:
            if not turn.is_failure:
                continue
            lines.append(f"turn {turn.line}: {turn.cause} (blame: {turn.blame})")
            for finding in turn.findings[:1]:
                place = finding.message_index
                where = "" if place is None else f"messages[{place}]: "
                lines += [
                    f"  {where}{finding.detail}",
                    f"  cached:   {finding.earlier_at!r}",
                    f"  sent now: {finding.later_at!r}",
                ]
            lines += [f"  helps: {fix.change}" for fix in turn.fixes if fix.is_proven]
    return "\n".join(lines)
