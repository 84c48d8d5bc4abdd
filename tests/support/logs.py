"""Reads the tiny logs of tests/formats/data, and logs written out in a test."""

import io
import json
from pathlib import Path

from warmturn.formats.reading import read_log, read_stream

DATA = Path(__file__).parents[1] / "formats" / "data"


def read_data(name, **options):
    """Return what a file of tests/formats/data holds."""
    return list(read_log([DATA / name], **options))


def read_records(*records, **options):
    """Return what a log of these JSON lines holds; text stands as it is."""
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    return read_text("\n".join(lines), **options)


def read_text(text, **options):
    """Return what a log of this text, or of these bytes, holds."""
    data = text if isinstance(text, bytes) else text.encode()
    return list(read_stream(io.BytesIO(data), source="log", **options))
