"""Published models by name: their geometry, parameter counts and where both are from.

`presets.json` holds, per name, the fields of the model's public config.json that size its cache,
and the parameters of its model card. Tests count the parameters again from the shapes.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["Preset", "preset_named", "presets"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One published model."""

    name: str
    source: str
    """Address of the config."""
    parameters: int
    active_parameters: int
    config: dict[str, Any]
    """As published, fields that do not size anything left out."""
    note: str = ""


@cache
def presets() -> dict[str, Preset]:
    """Return all by name."""
    text = files("warmturn.cost").joinpath("presets.json").read_text(encoding="utf-8")
    return {
        name: Preset(
            name,
            entry["source"],
            entry["parameters"],
            entry.get("active_parameters", entry["parameters"]),
            entry["config"],
            entry.get("note", ""),
        )
        for name, entry in json.loads(text).items()
    }


def preset_named(name: str) -> Preset:
    """Return one by name, in any case. Raises `InvalidInput` with the names that come closest."""
    key = name.lower()
    found = presets().get(key)
    if found is None:
        near = [known for known in presets() if key[:5] and known.startswith(key[:5])]
        raise InvalidInput(
            f"no model is called {name[:80]!r}: neither a file, a directory, nor one of "
            f"{len(presets())} known models"
            + (f"; near are {', '.join(near)}" if near else "; `warmturn plan --list` names them")
        )
    return found
