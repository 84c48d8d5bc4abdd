"""Part 1, the append-only checker."""

import json
from datetime import UTC, datetime
from typing import Any

from tests.cases.discovery import Case

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
"""For templates that print a date; no case of these kinds depends on the value."""

NOT_JUDGED = {"neighbour", "other-model"}
"""Pairs that are only measured: they are never counted as a change of the prompt."""


def render_parity(case: Case) -> dict[str, Any]:
    from warmturn.check import compare_renderings
    from warmturn.render import ChatTemplate

    template = ChatTemplate(case.read_text(case.input["template_file"]), special_tokens={})
    text = template.render(
        case.input["messages"],
        now=NOW,
        tools=case.input["tools"] or None,
        add_generation_prompt=case.input["add_generation_prompt"],
        **case.input["template_kwargs"],
    )
    found = {
        name: compare_renderings(text, variant["text"])
        for name, variant in case.asked["variants"].items()
    }
    causes = [parity.cause for parity in found.values() if not parity.is_equal]
    return {
        "reference_text": text,
        "cause": causes[0] if causes else "none",
        "variants": {
            name: {
                "text": case.asked["variants"][name]["text"],
                "equal": parity.is_equal,
                "shared_chars": parity.shared_chars,
            }
            for name, parity in found.items()
        },
    }


def token_log(case: Case) -> dict[str, Any]:
    from warmturn.check import check_token_pair

    is_text_equal = case.asked.get("text_equal")
    names = {int(key): name for key, name in case.input["token_names"].items()}
    sizes = [pair.get("reuse", {}).get("paged", {}) for pair in case.asked["pairs"]]
    found = [
        check_token_pair(
            pair["prev_prompt_ids"],
            pair["prev_output_ids"],
            pair["next_prompt_ids"],
            is_text_equal=is_text_equal,
            token_names=names,
            block_sizes=[int(size) for size in asked],
        )
        for pair, asked in zip(case.input["pairs"], sizes, strict=True)
    ]
    first = next((one for one in found if one.verdict == "break"), found[0])
    return {
        "verdict": first.verdict,
        "first_level_that_breaks": first.level,
        "cause": first.cause,
        "blame": first.blame,
        "text_equal": is_text_equal,
        "pairs": [
            {
                "id": pair["id"],
                "prev_total_tokens": one.total_tokens,
                "shared_tokens": one.shared_tokens,
                "prev_prompt_is_prefix": one.is_prompt_prefix,
                "reuse": {
                    "paged": {str(size): tokens for size, tokens in one.reuse.paged.items()},
                    "exact_end_only": one.reuse.exact_end_only,
                },
            }
            for pair, one in zip(case.input["pairs"], found, strict=True)
        ],
    }


def request_log(case: Case) -> dict[str, Any]:
    asked = {run["id"]: run for run in case.asked["runs"]}
    return {"runs": [_run(case, run, asked[run["id"]]) for run in case.input["runs"]]}


def _run(case: Case, run: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    from warmturn.check import check_conversations
    from warmturn.render import ChatTemplate

    requests = {
        request["id"]: _logged(number, request, run["template_kwargs"])
        for number, request in enumerate(case.input["requests"], 1)
    }
    template = ChatTemplate(case.read_text(run["template_file"]), special_tokens={})
    log = [requests[name] for name in run["log"]]
    report = check_conversations(log, template=template, preparation="as_logged")
    turns = list(report.turns())
    findings = [finding for turn in turns for finding in turn.findings]
    facts = {key: value for f in reversed(findings) for key, value in f.facts.items()}
    written = json.dumps(report.as_dict(), ensure_ascii=False)
    return {
        "id": run["id"],
        "verdict": report.verdict,
        "first_level_that_breaks": report.level,
        "cause": report.cause,
        "blame": report.blame,
        "first_divergence_message": findings[0].message_index if findings else None,
        "must_mention": [word for word in asked.get("must_mention") or () if word in written],
        "slide_by_messages": facts.get("slide_by_messages"),
        "tools_same_set": facts.get("tools_same_set"),
        "parents": {turn.request_id: turn.parent_id for turn in turns},
        "breaks_on_parent_edges": sum(turn.verdict == "break" for turn in turns),
        "pairs": [_pair(template, requests, pair) for pair in asked["pairs"]],
    }


def _logged(number: int, request: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    from warmturn.formats.record import LoggedRequest

    fields = dict.fromkeys(LoggedRequest.__dataclass_fields__)
    tools = request.get("tools")
    return LoggedRequest(
        **fields
        | {
            "source": "input.json",
            "line": number,
            "request_id": request["id"],
            "model": request.get("model"),
            "timestamp_s": request.get("ts"),
            "messages": tuple(request["messages"]),
            "tools": None if tools is None else tuple(tools),
            "template_kwargs": kwargs,
            "reply_text": request.get("output"),
            "level": "full",
        }
    )


def _pair(template: Any, requests: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    from warmturn.check import check_turn

    turn = check_turn(
        requests[asked["prev"]],
        requests[asked["next"]],
        template=template,
        preparation="as_logged",
    )
    lost = turn.cached_chars - turn.shared_chars
    is_judged = asked["role"] not in NOT_JUDGED
    return {
        "prev": asked["prev"],
        "next": asked["next"],
        "role": asked["role"],
        "verdict": None if asked["role"] == "neighbour" else turn.verdict,
        "first_level_that_breaks": turn.level if is_judged else None,
        "cause": turn.cause if is_judged else None,
        "latent_warning": bool(turn.latent),
        "loss_bounded_to_last_round": turn.is_loss_bounded,
        "messages_append_only": turn.are_messages_append_only,
        "prev_prompt_is_prefix": turn.shared_chars >= turn.earlier_prompt_chars,
        "prev_prompt_plus_output_is_prefix": lost == 0,
        "prev_prompt_chars": turn.earlier_prompt_chars,
        "prev_total_chars": turn.cached_chars,
        "next_prompt_chars": turn.prompt_chars,
        "first_divergence_char": turn.shared_chars if lost else None,
        "shared_chars": turn.shared_chars,
        "lost_chars": lost,
    }


ANSWERS = {
    "render-parity": (render_parity, ()),
    "token-log": (token_log, ()),
    "request-log": (request_log, ()),
}
