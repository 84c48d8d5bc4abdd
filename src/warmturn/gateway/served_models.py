"""Which models clients may ask for, under which names."""

from collections.abc import Iterable
from dataclasses import dataclass

from warmturn.errors import InvalidInput
from warmturn.gateway.prompt_tokens import PromptTokens

__all__ = ["ServedModel", "ServedModels"]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model as its replicas call it."""

    name: str
    aliases: tuple[str, ...] = ()
    prompts: PromptTokens | None = None
    """Tokenises its prompts. None: they are compared as chunks of bytes."""
    base: str | None = None
    """Of an adapter the model it is for: replicas serve both, and share no blocks between them."""


class ServedModels:
    """Names in, models out. Raises `InvalidInput` where one name stands for two."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self._by_name: dict[str, ServedModel] = {}
        for model in models:
            for name in (model.name, *model.aliases):
                if name in self._by_name:
                    raise InvalidInput(
                        f"model name {name!r} is given twice; give each model its own names"
                    )
                self._by_name[name] = model

    def named(self, name: str) -> ServedModel | None:
        """Return the configured model; None for one that replicas may serve all the same."""
        return self._by_name.get(name)

    def base_of(self, name: str) -> str:
        """Return the base model whose blocks a model's are announced with."""
        model = self._by_name.get(name)
        return name if model is None else model.base or model.name

    def adapter_of(self, name: str) -> str | None:
        """Return the adapter that separates its blocks from its base model's."""
        model = self._by_name.get(name)
        return None if model is None or model.base is None else model.name

    @property
    def names(self) -> tuple[str, ...]:
        """Every name and alias configured."""
        return tuple(self._by_name)
