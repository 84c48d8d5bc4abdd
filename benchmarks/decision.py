"""What a routing decision costs: affinity alone, and by what replicas hold of 32k tokens.

    python benchmarks/decision.py [--model DIR] [--rounds N] [--json FILE]

Times whole calls of the steering, from the body's bytes to the chosen replica: `admit` and `place`,
for affinity also all that follows. Cold prompts are compared with one `encode` of the same text by
the `tokenizers` library, interleaved in the same run. CPU times of this process, so that other work
on the machine disturbs less. Without `--model` it takes the SmolLM2 tokenizer that the tests fetch.
"""

import argparse
import asyncio
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from warmturn.fleet import IndexScope
from warmturn.gateway.prompt_tokens import PromptTokens
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.served_models import ServedModel
from warmturn.gateway.steering import GatewaySteering, SteeredTurn
from warmturn.gateway.turns import Api, Call, CallFields, Ending, Outcome, Turn, Usage
from warmturn.render import Renderer
from warmturn.router import policy_named
from warmturn.session.tenant import IdentityRule, SaltKey, SaltRule
from warmturn.types import ReplicaId

NOW = datetime(2026, 11, 29, tzinfo=UTC)
NUM_REPLICAS = 4
MESSAGE_WORDS = 150
"""About 250 tokens of mixed prose and code, half a turn."""
VOCABULARY = (
    "the cache keeps what a conversation has said so that its next turn pays only for what is "
    "new; return x[i + 1] if (a_b == 12) else {'key': [3.14, None]} # naïve — déjà vu \n\n"
)
HEAVY_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}# Tools
{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{% if message.reasoning_content and loop.index0 > ns.last %}<think>{{ message.reasoning_content.strip() }}</think>{% endif %}
{{- message.content.strip() }}{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A loop over all messages before the one that writes them, tools, thoughts: like newer models'."""

_fields = msgspec.json.Decoder(CallFields).decode


def main() -> int:
    """Run, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a Hugging Face model directory")
    parser.add_argument("--rounds", type=int, default=9, help="conversations per case")
    parser.add_argument(
        "--turns", type=int, default=63, help="per conversation; 63 have 32k tokens"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there, - for stdout")
    options = parser.parse_args()
    directory = options.model or _smollm2()
    result = {
        "affinity_us": affinity_us(),
        "num_rounds": options.rounds,
        "templates": {
            name: with_tokens(directory, template, options.rounds, options.turns)
            for name, template in (
                ("the model's own", None),
                ("with thoughts and tools", HEAVY_TEMPLATE),
            )
        },
    }
    if options.json != "-":
        print_table(result)
    if options.json:
        text = json.dumps(result, indent=1)
        sys.stdout.write(text + "\n") if options.json == "-" else Path(options.json).write_text(
            text, encoding="utf-8"
        )
    return 0


# --- affinity ----------------------------------------------------------------------------------------


def affinity_us() -> dict[str, float]:
    """Return medians per small request, by number of sessions the gateway knows; microseconds."""
    return {
        f"{num} sessions, {name}": figure
        for num in (1_000, 100_000)
        for name, figure in _affinity(num).items()
    }


def _affinity(num_sessions: int) -> dict[str, float]:
    identity = SaltRule(
        SaltKey(b"a key for this benchmark"), IdentityRule("authorization", "bearer")
    )
    steering = _steering("affinity", salts=identity)
    calls = [_small_call(f"session-{number}") for number in range(num_sessions)]
    outcome = Outcome(Ending.COMPLETE, 200, Usage(100, 50, 10))
    clock = iter(number / 1000 for number in range(10**9))

    def whole(call: Call) -> None:
        now = next(clock)
        turn = steering.admit(call, now)
        assert isinstance(turn, Turn)
        steering.place(turn, now)
        steering.response_headers(turn)
        steering.sent(turn, now)
        steering.first_byte(turn, now)
        steering.ended(turn, outcome, now)

    for call in calls:
        whole(call)
    busy = calls[:64]
    now = next(clock)
    turns = [steering.admit(call, now) for call in busy]

    def placed(number: int) -> None:
        turn = turns[number % 64]
        assert isinstance(turn, SteeredTurn)
        key, model = turn.session.key, turn.routed_model
        steering.dispatcher.place(
            key, prompt_tokens=99, model=model, is_first_turn=False, now=now, is_trial=True
        )

    return {
        "whole turn": _batches(lambda number: whole(busy[number % 64])),
        "decision": _batches(placed),
    }


def _batches(work: Callable[[int], None], size: int = 2_000, num: int = 15) -> float:
    times = []
    for _ in range(num):
        start = time.process_time()
        for number in range(size):
            work(number)
        times.append((time.process_time() - start) / size * 1e6)
    return round(statistics.median(times), 2)


def _small_call(session: str) -> Call:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello " * 15}]})
    headers = {
        "host": "gateway", "content-type": "application/json", "user-agent": "bench",
        "authorization": "Bearer sk-somebody-12345", "x-session-id": session,
    }  # fmt: skip
    return _call(body.encode(), headers)


# --- by what replicas hold ----------------------------------------------------------------------------


def with_tokens(
    directory: Path, template: str | None, num_rounds: int, num_turns: int
) -> dict[str, Any]:
    """Return medians of decisions in one template; milliseconds, and ratios of the targets."""
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    marked = (2, 10, num_turns * 4 // 5, num_turns)
    samples: dict[str, list[float]] = {}
    num_tokens = 0
    for number in range(num_rounds):
        renderer = Renderer.from_directory(directory, chat_template=template)
        prompts = PromptTokens(renderer, today=lambda: NOW)
        steering = _steering("price", prompts=prompts)
        asyncio.run(_conversation(steering, prompts, number, num_turns, marked, samples))
        num_tokens = _stateless(prompts, steering, number, num_turns, samples)
        _cold(directory, template, library, number, num_turns, samples)
        prompts.close()
    medians = {case: round(statistics.median(times), 3) for case, times in samples.items()}
    for case in ("reply on the path", "reply tokenised before"):
        early = medians[f"turn 2, {case}"]
        medians[f"turn {marked[2]} : turn 2, {case}"] = round(
            medians[f"turn {marked[2]}, {case}"] / early, 2
        )
    medians["cold : library encode"] = round(
        medians["cold, whole prompt in the thread"] / medians["library encode, whole prompt"], 2
    )
    return {"num_prompt_tokens": num_tokens, "median_ms": medians}


async def _conversation(
    steering: GatewaySteering,
    prompts: PromptTokens,
    number: int,
    num_turns: int,
    marked: tuple[int, ...],
    samples: dict[str, list[float]],
) -> None:
    """Two conversations side by side: of one the replies are encoded when they end."""
    for case, knows_reply in (("reply on the path", False), ("reply tokenised before", True)):
        rng = random.Random(f"{number} {case}")
        messages = [{"role": "system", "content": _words(rng, 2 * MESSAGE_WORDS)}]
        for turn_number in range(1, num_turns + 1):
            messages.append({"role": "user", "content": _words(rng, MESSAGE_WORDS)})
            call = _chat_call(f"{number} {case}", messages)
            start = time.process_time()
            turn = steering.admit(call, float(turn_number))
            if not isinstance(turn, Turn):
                turn = await turn
            steering.place(turn, float(turn_number))
            took_ms = (time.process_time() - start) * 1e3
            if turn_number in marked:
                samples.setdefault(f"turn {turn_number}, {case}", []).append(took_ms)
            reply = _words(rng, MESSAGE_WORDS)
            messages.append({"role": "assistant", "content": reply})
            steering.sent(turn, float(turn_number))
            steering.first_byte(turn, turn_number + 0.1)
            answer = json.dumps({"choices": [{"message": messages[-1]}]}).encode()
            usage = Usage(turn.prompt_tokens, turn.prompt_tokens, MESSAGE_WORDS)
            kept = answer if knows_reply else None
            outcome = Outcome(Ending.COMPLETE, 200, usage, kept)
            steering.ended(turn, outcome, turn_number + 0.2)
            await _idle(prompts)


async def _idle(prompts: PromptTokens) -> None:
    """Proofs and replies are done while the user thinks."""
    while prompts.num_waiting:  # noqa: ASYNC110 - a benchmark may poll
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)


def _stateless(
    prompts: PromptTokens,
    steering: GatewaySteering,
    number: int,
    num_turns: int,
    samples: dict[str, list[float]],
) -> int:
    """The same messages as another session: no state, every segment met before."""
    rng = random.Random(f"{number} reply on the path")
    messages = [{"role": "system", "content": _words(rng, 2 * MESSAGE_WORDS)}]
    for _ in range(num_turns - 1):
        messages += [
            {"role": role, "content": _words(rng, MESSAGE_WORDS)} for role in ("user", "assistant")
        ]
    messages.append({"role": "user", "content": _words(rng, MESSAGE_WORDS)})
    call = _chat_call(f"{number} elsewhere", messages)
    num_whole = prompts.num_whole
    start = time.process_time()
    turn = steering.admit(call, 1e6)
    assert isinstance(turn, Turn)
    steering.place(turn, 1e6)
    took_ms = (time.process_time() - start) * 1e3
    if prompts.num_whole != num_whole + 1:
        raise SystemExit("not told as a whole from known segments: a defect, not a benchmark")
    samples.setdefault("no state, all segments known", []).append(took_ms)
    return turn.prompt_tokens


def _cold(
    directory: Path,
    template: str | None,
    library: tokenizers.Tokenizer,
    number: int,
    num_turns: int,
    samples: dict[str, list[float]],
) -> None:
    """Nothing known at all: the thread's work beside the library's own, in turns."""
    renderer = Renderer.from_directory(directory, chat_template=template)
    prompts = PromptTokens(renderer, today=lambda: NOW)
    rng = random.Random(f"cold {number}")
    messages = [{"role": "system", "content": _words(rng, 2 * MESSAGE_WORDS)}]
    messages += [
        {"role": ("user", "assistant")[index % 2], "content": _words(rng, MESSAGE_WORDS)}
        for index in range(2 * num_turns - 1)
    ]
    text = renderer.render_text(messages, now=NOW)
    call = _chat_call("cold", messages)
    asked = prompts.asked(call, "cold", IndexScope())
    assert asked is not None

    def ours() -> None:
        start = time.perf_counter()
        cold = prompts.tell(asked, frozenset({16}))
        samples.setdefault("cold, held up the caller", []).append(
            (time.perf_counter() - start) * 1e3
        )
        assert isinstance(cold, Future)
        made = cold.result()
        samples.setdefault("cold, whole prompt in the thread", []).append(
            (time.perf_counter() - start) * 1e3
        )
        assert made is not None
        counts.append(made[1].num_tokens)

    def theirs() -> None:
        start = time.perf_counter()
        ids = library.encode(text, add_special_tokens=False).ids
        samples.setdefault("library encode, whole prompt", []).append(
            (time.perf_counter() - start) * 1e3
        )
        counts.append(len(ids))

    counts: list[int] = []
    for work in (ours, theirs) if number % 2 else (theirs, ours):
        work()
    if counts[0] != counts[1]:
        raise SystemExit("the numbers of tokens differ: a defect, not a benchmark")
    prompts.close()


# --- shared ---------------------------------------------------------------------------------------------


def _steering(
    policy: str, *, salts: SaltRule | None = None, prompts: PromptTokens | None = None
) -> GatewaySteering:
    steering = GatewaySteering(
        policy_named(policy), models=[ServedModel("m", prompts=prompts)], salts=salts
    )
    for number in range(NUM_REPLICAS):
        spec = ReplicaSpec(
            ReplicaId(f"replica-{number}"), ("m",), block_size=16, capacity_tokens=2_000_000
        )
        steering.add_replica(spec, 0.0)
    return steering


def _chat_call(session: str, messages: list[dict[str, str]]) -> Call:
    body = {"model": "m", "stream": True, "messages": messages}
    return _call(json.dumps(body).encode(), {"x-session-id": session})


def _call(body: bytes, headers: dict[str, str]) -> Call:
    return Call(Api.CHAT, "/v1/chat/completions", headers, body, _fields(body), 0.0)


def _words(rng: random.Random, count: int) -> str:
    words = VOCABULARY.split(" ")
    return " ".join(rng.choice(words) for _ in range(count))


def print_table(result: dict[str, Any]) -> None:
    """Print one line per case."""
    print("affinity, microseconds of CPU per small request (target: decision 15, whole turn 20)")
    for case, figure in result["affinity_us"].items():
        print(f"  {case:44}{figure:10.1f}")
    for template, figures in result["templates"].items():
        print(f"template {template}: {figures['num_prompt_tokens']} prompt tokens, milliseconds")
        for case, figure in figures["median_ms"].items():
            print(f"  {case:44}{figure:10.2f}")


def _smollm2() -> Path:
    path = Path(__file__).parents[1] / "tests" / "support" / "corpora.py"
    spec = importlib.util.spec_from_file_location("warmturn_test_corpora", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    directory: Path = module.tokenizer_directory("smollm2")
    return directory


if __name__ == "__main__":
    raise SystemExit(main())
