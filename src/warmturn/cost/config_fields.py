"""Typed reading of a model config: each error names the field and why it matters."""

from collections.abc import Mapping
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["ConfigFields"]

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
_MOST = 2**40
"""No dimension or count of a model is larger; keeps foreign numbers from exhausting anything."""


class ConfigFields:
    """The fields of the language model, wherever they are nested; read-only."""

    def __init__(self, config: Mapping[str, Any], *, name: str) -> None:
        self.name = name
        self._fields = _flattened(config)

    def __contains__(self, field: str) -> bool:
        """Say whether the field is there and not null."""
        return self._fields.get(field) is not None

    @property
    def names(self) -> frozenset[str]:
        """Fields that are not null."""
        return frozenset(name for name in self._fields if name in self)

    @property
    def model_type(self) -> str:
        """The family's name; empty where the config has none."""
        value = self._fields.get("model_type")
        return value.removesuffix("_text") if isinstance(value, str) else ""

    def raw(self, field: str) -> Any:
        """Return the value as it is, None where absent."""
        return self._fields.get(field)

    def number(self, *names: str, why: str, least: int = 1) -> int:
        """Return the first of the fields that is there. Raises `InvalidInput` where none is."""
        found = self.number_or_none(*names, least=least)
        if found is None:
            raise self.error(f"has no {' or '.join(names)}", why)
        return found

    def number_or_none(self, *names: str, least: int = 1) -> int | None:
        """Return the first of the fields that is there, None where none is."""
        for name in names:
            if name in self:
                return self._checked(name, self._fields[name], least)
        return None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean field."""
        value = self._fields.get(name)
        return default if value is None else bool(value)

    def numbers(self, name: str, *, length: int | None = None, least: int = 0) -> list[int] | None:
        """Return a list of integers, None where the field is no list or an empty one."""
        value = self._fields.get(name)
        if not isinstance(value, list | tuple) or not value:
            return None
        self._check_length(name, value, length)
        return [self._checked(name, item, least) for item in value]

    def words(self, name: str, *, length: int | None = None) -> list[str] | None:
        """Return a list of strings, None where the field is absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.error(f"has a {name} that is no list of names", "it says what each layer is")
        self._check_length(name, value, length)
        return list(value)

    def nested(self, name: str) -> "ConfigFields | None":
        """Return an object inside the config, None where absent."""
        value = self._fields.get(name)
        if not isinstance(value, Mapping):
            return None
        return ConfigFields(value, name=f"{self.name}, {name}")

    def error(self, what: str, why: str) -> InvalidInput:
        """Return the error that says what is wrong with a field and why it matters."""
        return InvalidInput(f"the config of {self.name} {what}; {why}")

    def _checked(self, name: str, value: Any, least: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise self.error(
                f"has {name} = {str(value)[:40]!r}",
                f"an integer of at least {least} is needed to size what a token keeps",
            )
        return value

    def _check_length(
        self, name: str, value: list[Any] | tuple[Any, ...], wanted: int | None
    ) -> None:
        if wanted is not None and len(value) != wanted:
            raise self.error(
                f"has {len(value)} entries in {name} for {wanted} layers",
                "one entry per layer is needed to size each",
            )


def _flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outer fields with the language model's own fields over them."""
    fields = dict(config)
    for _ in range(len(_NESTED)):
        inner = next((fields[n] for n in _NESTED if isinstance(fields.get(n), Mapping)), None)
        if inner is None:
            break
        for name in _NESTED:
            fields.pop(name, None)
        outer_type = fields.get("model_type")
        fields |= inner
        fields["model_type"] = inner.get("model_type") or outer_type
    return fields
