"""MODEL as users name it: a config.json, a directory, a GGUF file, or a known name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmturn.cost.config import geometry_of
from warmturn.cost.config_fields import ConfigFields
from warmturn.cost.geometry import ModelGeometry
from warmturn.cost.gguf_config import config_of_gguf
from warmturn.cost.parameters import ParameterCount, count_parameters
from warmturn.cost.presets import preset_named
from warmturn.errors import InvalidInput

__all__ = ["PlannedModel", "read_model"]

_MOST_BYTES = 16 * 2**20
"""Of a config: no real one has a hundredth of it."""


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """What a plan needs to know of a model."""

    name: str
    geometry: ModelGeometry
    parameters: ParameterCount | None
    """None where they can be neither read nor counted."""
    source: str
    weight_bytes: int | None = None
    """Of the weight files beside the config; None where there are none."""


def read_model(model: str) -> PlannedModel:
    """Return the model that `model` names.

    Raises `InvalidInput` for unknown names, broken files and unknown geometry, `MissingExtra` for
    GGUF without the gguf package.
    """
    path = Path(model)
    if path.is_dir():
        return _of_directory(path)
    if path.suffix == ".gguf" and path.is_file():
        config, num_bytes = config_of_gguf(path)
        return _of_config(config, path.stem, str(path), num_bytes)
    if path.is_file():
        return _of_config(_read_json(path), _name(path), str(path), None)
    if path.suffix in {".gguf", ".json"} or len(path.parts) > 2:
        raise InvalidInput(f"{model}: no such file; name a config.json, a directory, a GGUF file")
    preset = preset_named(model)
    return PlannedModel(
        preset.name,
        geometry_of(preset.config, name=preset.name),
        ParameterCount(preset.parameters, preset.active_parameters, "the model card"),
        preset.source,
    )


def _of_directory(path: Path) -> PlannedModel:
    config = path / "config.json"
    if config.is_file():
        return _of_config(_read_json(config), _name(config), str(config), _weight_bytes(path))
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        raise InvalidInput(
            f"{path} has no config.json and {len(found)} GGUF files; name one file of it"
        )
    return read_model(str(found[0]))


def _of_config(
    config: Mapping[str, Any], name: str, source: str, weight_bytes: int | None
) -> PlannedModel:
    geometry = geometry_of(config, name=name)
    counted = count_parameters(ConfigFields(config, name=name), geometry)
    return PlannedModel(name, geometry, counted, source, weight_bytes)


def _name(path: Path) -> str:
    return path.resolve().parent.name if path.name == "config.json" else path.stem


def _weight_bytes(directory: Path) -> int | None:
    sizes = [file.stat().st_size for file in directory.glob("*.safetensors")]
    return sum(sizes) or None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"{path} has more than {_MOST_BYTES:,} bytes: no model's config")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no JSON ({str(error)[:80]}); name a config.json") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds no JSON object; name a model's config.json")
    return value
