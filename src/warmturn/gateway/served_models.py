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
    adapter: str | None = None
    """The adapter it is, on a base model whose replicas announce it by this name."""


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

    @property
    def names(self) -> tuple[str, ...]:
        """Every name and alias configured."""
        return tuple(self._by_name)
