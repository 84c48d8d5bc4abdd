"""What `warmturn check` reads: logs with a progress bar, templates, tokenizers."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from warmturn.check import Settings
from warmturn.check.engines import Engine, default_block_tokens
from warmturn.check.generic import generic_template
from warmturn.check.tokens import Encoder
from warmturn.errors import InvalidInput
from warmturn.formats import BadLine, LoggedRequest, read_stream
from warmturn.formats.format import Item
from warmturn.formats.reading import is_wanted, read_share
from warmturn.formats.record import Skipped, Wanted
from warmturn.render import ChatTemplate, Renderer, Tokenizer

__all__ = [
    "LogSource",
    "Rendering",
    "load_rendering",
    "progress_console",
    "read_template",
    "settings_of",
]

T = TypeVar("T")

PLACEHOLDER_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
"""For a template without its tokenizer: some cannot be rendered where these are not defined."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """How prompts are rendered, and what to tell the user about it."""

    template: ChatTemplate | Renderer
    tokenizer: Encoder | None
    about: str


def settings_of(
    engine: Engine,
    block_size: int | None,
    fail_under: float,
    prefill_rate: float | None,
    limit_context: int | None,
) -> Settings:
    """Return the checker's settings; without a block size, the usual one of the engine."""
    block_tokens = block_size or default_block_tokens(engine)
    return Settings(
        block_size=block_tokens,
        hybrid_block_tokens=block_tokens,
        fail_under=fail_under,
        prefill_tokens_per_s=prefill_rate,
        max_model_tokens=limit_context,
    )


def load_rendering(model: Path | None, template: Path | None, tokenizer: Path | None) -> Rendering:
    """Load what was asked for; without a model and a template, our own generic template.

    Raises `InvalidInput` where a file is missing or broken, `TemplateError` for a template that
    does not compile or a model without one.
    """
    encoder = None if tokenizer is None else _load_tokenizer(tokenizer)
    if model is not None:
        return _of_model(model, template, encoder)
    if template is None:
        return Rendering(generic_template(), encoder, _generic_about(encoder))
    special = PLACEHOLDER_TOKENS | ({} if encoder is None else encoder.special_tokens)
    loaded = ChatTemplate(read_template(template), special_tokens=special)
    counted = f"tokens of {tokenizer}" if tokenizer else _ESTIMATED
    return Rendering(loaded, encoder, f"rendered with {template}; {counted}")


_ESTIMATED = "tokens are estimated at 4 characters each (--tokenizer counts them)"


def _of_model(model: Path, template: Path | None, encoder: Tokenizer | None) -> Rendering:
    if not model.is_dir():
        raise InvalidInput(
            f"--model {model} is no directory; give a Hugging Face model directory, or only its "
            "--template and --tokenizer"
        )
    source = None if template is None else read_template(template)
    renderer = Renderer.from_directory(model, chat_template=source)
    renderer.template_for(has_tools=False)  # better now than at each request
    by = f"the template {template}" if template else "its chat template"
    return Rendering(renderer, encoder or renderer.tokenizer, f"rendered as {model} with {by}")


def _generic_about(encoder: Tokenizer | None) -> str:
    counted = "" if encoder is not None else f"; {_ESTIMATED}"
    return (
        "No --model or --template: rendered with a plain template of our own, so that only what "
        f"the client changes is found, not what a template or a server does{counted}."
    )


def _load_tokenizer(path: Path) -> Tokenizer:
    return Tokenizer.from_directory(path) if path.is_dir() else Tokenizer.from_file(path)


def read_template(path: Path) -> str:
    """Return the source of one template. Raises `InvalidInput`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot read the template {path}: {reason}; check the path") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """Which logs to read, and how."""

    paths: tuple[str, ...]
    format_name: str | None
    is_strict: bool

    @property
    def is_files(self) -> bool:
        """Whether the logs can be read more than once: standard input cannot."""
        return "-" not in self.paths

    @property
    def num_bytes(self) -> int:
        """Bytes of all files, packed as they are. Raises `InvalidInput` where one is missing."""
        return sum(_num_bytes(path) or 0 for path in self.paths)

    def has_conversation_ids(self) -> bool:
        """Say whether the first request that can be read names its conversation."""
        items = self.read(None)
        request = next((item for item in items if isinstance(item, LoggedRequest)), None)
        return request is not None and request.conversation_id is not None

    def read(self, console: Console | None) -> Iterator[LoggedRequest | BadLine]:
        """Yield the requests of all files in order, with a progress bar on a terminal.

        Raises `InvalidInput` at once where a file is missing.
        """
        return self._opened_by(
            lambda log, path: read_stream(
                log, source=path, format=self.format_name, strict=self.is_strict
            ),
            console,
        )

    def read_share(self, wanted: Wanted, console: Console | None) -> Iterator[Item]:
        """Yield what `wanted` takes of what `read` yields, and `Skipped` for each other record.

        Strict as `read` is: then every process reads all, to end at the same line.
        """
        if self.is_strict:
            return (item if is_wanted(item, wanted) else Skipped() for item in self.read(console))
        return self._opened_by(
            lambda log, path: read_share(log, wanted, source=path, format=self.format_name),
            console,
        )

    def _opened_by(
        self, read: Callable[[BinaryIO, str], Iterator[T]], console: Console | None
    ) -> Iterator[T]:
        sizes = [_num_bytes(path) for path in self.paths]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        return self._read_all(read, total, console)

    def _read_all(
        self,
        read: Callable[[BinaryIO, str], Iterator[T]],
        total: int | None,
        console: Console | None,
    ) -> Iterator[T]:
        with _progress(total, console) as advance:
            for path in self.paths:
                with _Counted(_opened(path), advance) as stream:
                    # The reader buffers a raw stream by itself.
                    yield from read(cast("BinaryIO", stream), path)


def progress_console() -> Console:
    """Return where the progress bar goes, if it is a terminal."""
    return Console(stderr=True)


def _num_bytes(path: str) -> int | None:
    """Return the size of a file, None for standard input."""
    return None if path == "-" else _asked(path, lambda: Path(path).stat().st_size)


def _opened(path: str) -> BinaryIO:
    return sys.stdin.buffer if path == "-" else _asked(path, lambda: Path(path).open("rb"))


def _asked(path: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot read the log {path}: {reason}; check the path") from error


@contextmanager
def _progress(total: int | None, console: Console | None) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("checking"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    is_shown = (
        console is not None and console.file.isatty()
    )  # a forced colour makes no terminal of a file
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("", total=total)
        yield lambda num_bytes: bar.update(task, advance=num_bytes)


class _Counted(io.RawIOBase):
    """A stream that tells how many bytes were read from it."""

    def __init__(self, inner: BinaryIO, advance: Callable[[int], None]) -> None:
        self._inner = inner
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        self._advance(len(data))
        return len(data)

    def close(self) -> None:
        if not self.closed and self._inner is not sys.stdin.buffer:
            self._inner.close()
        super().close()
