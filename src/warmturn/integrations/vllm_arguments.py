"""A `vllm serve` line as its options, read the way vLLM reads them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["VllmArguments"]


@dataclass(frozen=True, slots=True)
class VllmArguments:
    """Options by name, dashes as on the line; of a repeated one the last counts."""

    values: Mapping[str, str | None]
    """None for an option without a value."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> "VllmArguments":
        """Read `--name value`, `--name=value` and `--name`; `_` in a name is `-`.

        Raises `InvalidInput` for a word that belongs to no option.
        """
        values: dict[str, str | None] = {}
        last: str | None = None
        for word in words:
            if word.startswith("--"):
                last, _, value = word.partition("=")
                last = _plain(last)
                values[last] = value if "=" in word else None
            elif last is not None and values[last] is None:
                values[last] = word
            elif last is None:
                raise InvalidInput(
                    f"{word!r} is no option of vLLM; write --name value, after a lone --"
                )
            else:
                values[last] = f"{values[last]} {word}"  # options that take a list
        return cls(values)

    def has(self, name: str) -> bool:
        """Say whether the option, or the one that switches it off, is on the line."""
        opposite = f"--no-{name.removeprefix('--')}"
        return name in self.values or opposite in self.values

    def is_on(self, name: str) -> bool:
        """Say whether a switch is on."""
        return name in self.values and self.values[name] in {None, "True", "true", "1"}

    def text(self, name: str) -> str | None:
        """Return an option's value; None where it is not there or has none."""
        return self.values.get(name)

    def json(self, name: str) -> dict[str, Any]:
        """Return the object an option holds, with what `--name.key value` adds; empty if absent.

        Raises `InvalidInput` for a value that is no JSON object.
        """
        text = self.values.get(name)
        found: dict[str, Any] = {}
        if text is not None:
            try:
                found = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{name} holds no JSON: {error}") from error
            if not isinstance(found, dict):
                raise InvalidInput(f"{name} holds {text[:80]}, not a JSON object")
        for keys, value in self._dotted(name):
            place = found
            for key in keys[:-1]:
                place = place.setdefault(key, {})
                if not isinstance(place, dict):
                    raise InvalidInput(
                        f"{name}.{'.'.join(keys)} sets a key below one that holds no object"
                    )
            place[keys[-1]] = _scalar(value)
        return found

    def _dotted(self, name: str) -> Iterator[tuple[list[str], str | None]]:
        for option, value in self.values.items():
            if option.startswith(f"{name}."):
                yield option.removeprefix(f"{name}.").split("."), value


def _plain(name: str) -> str:
    """Return the name with dashes; keys after a dot keep their underscores."""
    head, dot, keys = name.partition(".")
    return head.replace("_", "-") + dot + keys


def _scalar(value: str | None) -> Any:
    if value is None:
        return True
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
