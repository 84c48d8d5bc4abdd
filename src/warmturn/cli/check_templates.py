"""Sweeps templates without a log: one file, a model directory, or a folder of templates."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.progress import track

from warmturn.check.sweep import TemplateSweep, sweep_template
from warmturn.cli.check_files import Outputs, report_console
from warmturn.cli.check_inputs import PLACEHOLDER_TOKENS, progress_console, read_template
from warmturn.cli.output import write_json
from warmturn.errors import InvalidInput
from warmturn.render.model_files import load_templates, load_tokenizer_config, named_special_tokens
from warmturn.report import print_sweep, sweep_data

__all__ = ["check_templates", "templates_in"]

_ENOUGH_FOR_PROCESSES = 64
"""Each takes about 25 ms; starting processes takes a second."""


@dataclass(frozen=True, slots=True)
class NamedTemplate:
    """A template's source, its name, and the special tokens it is rendered with."""

    name: str
    source: str
    special_tokens: dict[str, str]


def check_templates(path: Path, outputs: Outputs) -> int:
    """Sweep what is at `path` and report; return the exit code. Raises `InvalidInput`."""
    if outputs.html is not None or outputs.junit is not None:
        raise InvalidInput("--html and --junit show logs; a sweep has --json")
    templates = templates_in(path)
    sweeps = tuple(_swept(templates))
    if all(sweep.error is not None for sweep in sweeps):
        raise InvalidInput(f"{path}: {sweeps[0].error}")
    print_sweep(sweeps, report_console(outputs))
    write_json(sweep_data(sweeps), outputs.json_file)
    return 1 if any(sweep.num_breaks for sweep in sweeps) else 0


def templates_in(path: Path) -> list[NamedTemplate]:
    """Return the templates of a file, a model directory or a folder of `.jinja` files.

    Raises `InvalidInput` where there is none.
    """
    if not path.is_dir():
        source = read_template(path)
        if not source.strip():
            raise InvalidInput(f"the template {path} is empty; check the path")
        return [NamedTemplate(path.stem, source, PLACEHOLDER_TOKENS)]
    config = load_tokenizer_config(path)
    special = PLACEHOLDER_TOKENS | named_special_tokens(config)
    named = load_templates(path, config)
    if not named:
        files = sorted(path.rglob("*.jinja"))
        named = {str(file.relative_to(path).with_suffix("")): read_template(file) for file in files}
    if not named:
        raise InvalidInput(
            f"{path} has no chat template: neither .jinja files nor a chat_template in "
            "tokenizer_config.json"
        )
    return [NamedTemplate(name, source, special) for name, source in named.items()]


def _swept(templates: Sequence[NamedTemplate]) -> Iterator[TemplateSweep]:
    console = progress_console()
    shown = partial(
        track,
        description="sweeping",
        total=len(templates),
        console=console,
        transient=True,
        disable=not console.file.isatty(),
    )
    if len(templates) < _ENOUGH_FOR_PROCESSES:
        yield from shown(map(_sweep, templates))
        return
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        yield from shown(pool.map(_sweep, templates, chunksize=8))


def _sweep(template: NamedTemplate) -> TemplateSweep:
    return sweep_template(
        template.source, name=template.name, special_tokens=template.special_tokens
    )
