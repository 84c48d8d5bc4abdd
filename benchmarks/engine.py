"""Prefill and decode beside transformers' own cache: same process, weights, dtype, threads.

Prefill: seconds from nothing to the first token of one prompt of random tokens.
Decode: seconds per further token after a context, one sequence.
Batch: seconds per token of eight sequences decoded together and one after another.

Both sides are greedy and take turns, so that a busy machine slows both; each ratio is the
median over the pairs. The peer is `generate` of transformers with DynamicCache and SDPA.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rich.table import Table

from output import console, parser, shown, summary, verdict, write
from warmturn.engine.api import Choice, SamplingParams
from warmturn.engine.executor import Dtype, Executor, load
from warmturn.engine.fetch import resolve_model
from warmturn.replica.step import Step, Work
from warmturn.types import RequestId, TokenIds

BLOCK_SIZE = 16
CHUNK_TOKENS = 2048
"""Tokens per prefill step, when a sequence is alone."""
BATCH = 8
MIN_BATCH_GAIN = 3.0
GREEDY = Choice(SamplingParams(temperature=0.0), 0)


class Ours:
    """Sequences of one executor, each on its own blocks."""

    def __init__(self, model_dir: Path, dtype: Dtype, longest_tokens: int) -> None:
        per_sequence = -(-longest_tokens // BLOCK_SIZE)
        self.executor = Executor(
            load(model_dir, dtype), num_blocks=per_sequence + BATCH * 16, block_size=BLOCK_SIZE
        )
        # Scattered, as a pool in use is.
        blocks = np.random.default_rng(0).permutation(self.executor.kv.num_blocks)
        self.blocks = blocks.astype(np.int32)
        self.per_sequence = per_sequence

    def prefill(self, tokens: TokenIds, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self._prefill(tokens, self.blocks, chunk_tokens)

    def decode(self, context: TokenIds, num_tokens: int) -> Callable[[], None]:
        """Prepare a sequence; return what decodes `num_tokens` after it."""
        self._prefill(context, self.blocks, CHUNK_TOKENS)
        return lambda: self._decode(len(context), [self.blocks], num_tokens)

    def batch(self, context: TokenIds, num_tokens: int) -> tuple[Callable[[], None], ...]:
        """Prepare eight sequences; return what decodes them together, and one by one."""
        tables = np.split(self.blocks[: BATCH * 16], BATCH)
        for table in tables:
            self._prefill(context, table, CHUNK_TOKENS)

        def one_by_one() -> None:
            for table in tables:
                self._decode(len(context), [table], num_tokens)

        return lambda: self._decode(len(context), tables, num_tokens), one_by_one

    def _prefill(self, tokens: TokenIds, blocks: TokenIds, chunk_tokens: int) -> None:
        for position in range(0, len(tokens), chunk_tokens):
            chunk = tokens[position : position + chunk_tokens]
            self._execute([self._work(0, chunk, position, blocks)])

    def _decode(self, position: int, tables: list[TokenIds], num_tokens: int) -> None:
        token_ids = [1] * len(tables)
        for index in range(num_tokens):
            token_ids = self._execute(
                [
                    self._work(row, np.array([token], np.int32), position + index, table)
                    for row, (token, table) in enumerate(zip(token_ids, tables, strict=True))
                ]
            )

    def _work(self, row: int, tokens: TokenIds, position: int, blocks: TokenIds) -> Work:
        num_blocks = -(-(position + len(tokens)) // BLOCK_SIZE)
        name = RequestId(str(row))
        return Work(name, tokens, position, blocks[:num_blocks], samples=True, is_decode=False)

    def _execute(self, works: list[Work]) -> list[int]:
        choices = {work.request_id: GREEDY for work in works}
        sampled = self.executor.execute(Step(0, tuple(works)), choices)
        return [each.token_id for each in sampled]


# The name is old from some 5.x on, the new one unknown before; both work until 6.0.
warnings.filterwarnings("ignore", message="`past_key_values` is deprecated")


class Transformers:
    """The same model under transformers, greedy, without an end token."""

    def __init__(self, model_dir: Path, dtype: Dtype) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).eval()
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def prefill(self, tokens: TokenIds) -> None:
        self._generate(torch.from_numpy(tokens).long()[None], 1, transformers.DynamicCache())

    def decode(self, context: TokenIds, num_tokens: int) -> Callable[[], None]:
        cache = transformers.DynamicCache()
        ids = torch.from_numpy(context).long()[None]
        self._generate(ids, 1, cache)
        ids = torch.cat((ids, torch.ones(1, 1, dtype=torch.long)), 1)

        def run() -> None:
            self._generate(ids, num_tokens, cache)
            cache.crop(-num_tokens)

        return run

    def _generate(self, ids: torch.Tensor, num_tokens: int, cache: Any) -> None:
        with torch.inference_mode():
            self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=num_tokens,
                do_sample=False,
                past_key_values=cache,
            )


def compare(
    ours: Callable[[], None], theirs: Callable[[], None], pairs: int, num_tokens: int = 1
) -> dict[str, Any]:
    """Run both in turn after one warm-up each; return seconds per token and their ratio."""
    ours(), theirs()
    times = [(_timed(ours), _timed(theirs)) for _ in range(pairs)]
    return {
        "ours_s": summary([mine / num_tokens for mine, _ in times]),
        "peer_s": summary([their / num_tokens for _, their in times]),
        "ratio": summary([their / mine for mine, their in times]),
    }


def _timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(
    model_dir: Path, dtype: Dtype, lengths: list[int], contexts: list[int], *, pairs: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of one dtype."""
    rng = np.random.default_rng(1)
    decoded = 16
    longest = max(lengths + contexts) + decoded
    tokens = rng.integers(100, 40_000, longest).astype(np.int32)
    ours, theirs = Ours(model_dir, dtype, longest), Transformers(model_dir, dtype)
    for length in lengths:
        prompt = tokens[:length]
        row = compare(lambda p=prompt: ours.prefill(p), lambda p=prompt: theirs.prefill(p), pairs)
        yield f"prefill {length:,}", row
    for length in contexts:
        context = tokens[:length]
        runs = ours.decode(context, decoded), theirs.decode(context, decoded)
        yield f"decode at {length:,}", compare(*runs, pairs, decoded)
    together, one_by_one = ours.batch(tokens[:100], decoded)
    row = compare(together, one_by_one, pairs, decoded * BATCH)
    yield f"decode of {BATCH} together", row


def show(dtype: str, rows: dict[str, dict[str, Any]]) -> None:
    """Print one dtype's table."""
    table = Table(title=f"{dtype}: ms, median (10th - 90th percentile)")
    for column in ("", "warmturn", "peer", "peer / warmturn", "target"):
        table.add_column(column, justify="left" if not column else "right")
    for name, row in rows.items():
        cells = [shown(_ms(row[side]), 1) for side in ("ours_s", "peer_s")]
        target = MIN_BATCH_GAIN if "together" in name else 1.0
        reached = verdict(met=row["ratio"]["median"] >= target)
        table.add_row(name, *cells, shown(row["ratio"], 2), f">= {target:g}: {reached}")
    console.print(table)


def _ms(figures: dict[str, float]) -> dict[str, float]:
    return {name: value * 1e3 for name, value in figures.items()}


def main(options: argparse.Namespace) -> None:
    """Measure both dtypes and report."""
    model_dir = resolve_model(options.model)
    peer = f"transformers {transformers.__version__}"
    console.print(
        f"peer: {peer}, DynamicCache, sdpa (last row: ours, one by one); "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    lengths, contexts, pairs = [512, 2048, 6144], [100, 6144], options.pairs
    if options.quick:
        lengths, contexts, pairs = [512], [100], 3
    result: dict[str, Any] = {
        "peer": peer,
        "torch": torch.__version__,
        "num_threads": torch.get_num_threads(),
        "model": model_dir.name,
    }
    for dtype in options.dtypes:
        result[dtype] = dict(measure(model_dir, dtype, lengths, contexts, pairs=pairs))
        show(dtype, result[dtype])
    write(result, options.json)


if __name__ == "__main__":
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2-135m-instruct", help="as for warmturn engine")
    made.add_argument("--quick", action="store_true", help="short prompts only, three pairs")
    made.add_argument("--pairs", type=int, default=5, help="runs of each side")
    made.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"]
    )
    main(made.parse_args())
