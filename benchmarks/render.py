"""What the next turn of a 32k-token conversation costs to render and to tokenise.

    python benchmarks/render.py [--model DIR] [--json FILE]

Compares with the `tokenizers` library's own `encode` of the whole prompt and with
transformers' rendering of the same template, in the same run, interleaved. Without `--model`
it takes the SmolLM2 tokenizer that the tests fetch.
"""

import argparse
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from warmturn.render import ChatTemplate, Renderer, Tokenizer

NOW = datetime(2026, 11, 29, tzinfo=UTC)
PROMPT_TOKENS = 32_000
MESSAGE_WORDS = 180
"""About 250 tokens of mixed prose and code, half a turn."""

VOCABULARY = (
    "the cache keeps what a conversation has said so that its next turn pays only for what is "
    "new; return x[i + 1] if (a_b == 12) else {'key': [3.14, None]} # naïve — déjà vu \n\n"
)


def main() -> int:
    """Run the rounds, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a Hugging Face model directory")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", help="write the figures there, - for stdout")
    options = parser.parse_args()
    result = run(options.model or _smollm2(), num_rounds=options.rounds)
    if options.json != "-":
        print_table(result)
    if options.json:
        text = json.dumps(result, indent=1)
        sys.stdout.write(text + "\n") if options.json == "-" else Path(options.json).write_text(
            text, encoding="utf-8"
        )
    return 0


def run(directory: Path, *, num_rounds: int) -> dict[str, Any]:
    """Return the figures: per case its median, quartiles and ratio, milliseconds."""
    renderer = Renderer.from_directory(directory)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    chat, texts = _conversation(renderer, num_rounds)
    ours = renderer.tokenizer
    ours.encode(renderer.render_text(chat, now=NOW))
    samples: dict[str, list[float]] = {}

    def timed(case: str, work: Callable[[], object]) -> Any:
        start = time.perf_counter()
        answer = work()
        samples.setdefault(case, []).append((time.perf_counter() - start) * 1e3)
        return answer

    template = renderer.template_for(has_tools=False)
    for number, (text, longer) in enumerate(texts):
        empty = Tokenizer.from_directory(directory)
        answers = [
            timed("ours, one new message", partial(ours.encode, text)).tolist(),
            timed("ours, all segments known", partial(ours.encode, text)).tolist(),
            timed("ours, nothing known", partial(empty.encode, text)).tolist(),
            timed("library encode, whole prompt", partial(_plain, library, text)),
            timed("library encode_batch_fast, whole prompt", partial(_fast, library, text)),
        ]
        if any(ids != answers[0] for ids in answers):
            raise SystemExit("the ids differ: a defect, not a benchmark")
        renders = [
            ("ours, template", partial(template.render, longer, now=NOW)),
            ("transformers, template", partial(_their_render, template, longer)),
        ]
        # The second one finds the processor's caches warm, so they take turns.
        ordered = [timed(*each) for each in (renders if number % 2 else reversed(renders))]
        if ordered[0] != ordered[1]:
            raise SystemExit("the texts differ: a defect, not a benchmark")
        timed("ours, OpenAI messages and template", partial(renderer.render_text, longer, now=NOW))
    return _summary(samples, num_prompt_tokens=len(answers[0]))


def _conversation(
    renderer: Renderer, num_rounds: int
) -> tuple[list[dict[str, str]], list[tuple[str, list[dict[str, str]]]]]:
    """A chat of `PROMPT_TOKENS`, and per round that chat with a message never seen before."""
    rng = random.Random(7)  # one seed: every run sees the same conversation
    chat = [{"role": "system", "content": _words(rng, 2 * MESSAGE_WORDS)}]
    num_tokens = 0
    while num_tokens < PROMPT_TOKENS:
        chat += [
            {"role": role, "content": _words(rng, MESSAGE_WORDS)} for role in ("user", "assistant")
        ]
        num_tokens = len(renderer.tokenizer.encode(renderer.render_text(chat, now=NOW)))
    longer = [
        [*chat, {"role": "user", "content": _words(rng, MESSAGE_WORDS)}] for _ in range(num_rounds)
    ]
    return chat, [(renderer.render_text(each, now=NOW), each) for each in longer]


def _words(rng: random.Random, count: int) -> str:
    words = VOCABULARY.split(" ")
    return " ".join(rng.choice(words) for _ in range(count))


def _plain(library: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = library.encode(text, add_special_tokens=False).ids
    return ids


def _fast(library: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = library.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids


def _their_render(template: ChatTemplate, chat: list[dict[str, str]]) -> str:
    options: dict[str, Any] = {"add_generation_prompt": True, **template.special_tokens}
    answer: Any = render_jinja_template([chat], chat_template=template.source, **options)
    text: str = answer[0][0]
    return text


PEER_OF = {
    "ours, one new message": "library encode, whole prompt",
    "ours, all segments known": "library encode, whole prompt",
    "ours, nothing known": "library encode, whole prompt",
    "ours, template": "transformers, template",
}


def _summary(samples: dict[str, list[float]], *, num_prompt_tokens: int) -> dict[str, Any]:
    medians = {case: statistics.median(times) for case, times in samples.items()}
    cases = {}
    for case, times in samples.items():
        low, _, high = statistics.quantiles(times, n=4)
        peer = PEER_OF.get(case)
        cases[case] = {
            "median_ms": round(medians[case], 4),
            "quartiles_ms": [round(low, 4), round(high, 4)],
            "times_faster_than_peer": peer and round(medians[peer] / medians[case], 2),
        }
    versions = {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__}
    num_rounds = len(next(iter(samples.values())))
    return {
        "num_prompt_tokens": num_prompt_tokens,
        "num_rounds": num_rounds,
        "versions": versions,
        "cases": cases,
    }


def print_table(result: dict[str, Any]) -> None:
    """Print one line per case."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    print(f"{result['num_prompt_tokens']} prompt tokens, {result['num_rounds']} rounds, {versions}")
    print(f"{'':42}{'median ms':>10}{'quartiles':>18}{'x faster':>10}")
    for case, figures in result["cases"].items():
        low, high = figures["quartiles_ms"]
        ratio = figures["times_faster_than_peer"]
        print(
            f"{case:42}{figures['median_ms']:10.2f}{f'{low:.2f} - {high:.2f}':>18}"
            f"{'' if ratio is None else f'{ratio:.1f}':>10}"
        )


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
