"""What a model directory says about prompts: special tokens and chat templates.

Files and their order are Hugging Face's: `chat_template.jinja` and
`additional_chat_templates/*.jinja` win over `chat_template` in `tokenizer_config.json`, which is
a template or a list of named ones.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidInput, TemplateError

__all__ = ["choose_template", "load_templates", "load_tokenizer_config", "named_special_tokens"]

_SPECIAL_TOKEN_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)

_CONFIG_NAME = "tokenizer_config.json"


def load_tokenizer_config(directory: Path) -> dict[str, Any]:
    """Return `tokenizer_config.json` of `directory`, empty where there is none.

    Raises `InvalidInput` where it is not a JSON object.
    """
    path = directory / _CONFIG_NAME
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}; fetch it again") from error
    if not isinstance(config, dict):
        raise InvalidInput(f"{path} is not a JSON object; fetch it again")
    return config


def named_special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens a tokenizer config names, by name: `{"eos_token": "</s>", ...}`.

    Tokens named only for one model (`image_token` in `extra_special_tokens`) come with them.
    """
    extra = config.get("extra_special_tokens")
    named = {name: config.get(name) for name in _SPECIAL_TOKEN_NAMES}
    named |= extra if isinstance(extra, dict) else {}
    texts = {name: _content(token) for name, token in named.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _content(token: Any) -> str | None:
    """A token is written as its text or as an object that holds the text."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def load_templates(directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the chat templates of a model by name; a single one is called `default`."""
    files = {
        path.stem: path
        for path in sorted((directory / "additional_chat_templates").glob("*.jinja"))
    }
    main = directory / "chat_template.jinja"
    if main.is_file():
        files = {"default": main} | files
    if files:
        return {name: _read(path) for name, path in files.items()}
    return _templates_in(config.get("chat_template"), directory / _CONFIG_NAME)


def _templates_in(entry: Any, path: Path) -> dict[str, str]:
    if entry is None:
        return {}
    if isinstance(entry, str):
        return {"default": entry}
    try:
        named = entry if isinstance(entry, dict) else {t["name"]: t["template"] for t in entry}
    except (KeyError, TypeError):
        named = {}
    if not named or not all(isinstance(source, str) for source in named.values()):
        raise InvalidInput(
            f"chat_template in {path} is neither a template nor a list of "
            '{"name", "template"} objects; correct it or add a chat_template.jinja'
        )
    return dict(named)


def choose_template(
    templates: Mapping[str, str], *, has_tools: bool, wanted: str | None = None
) -> str:
    """Return the template source for a request, as Hugging Face chooses it.

    `wanted` is the name of one of `templates` or itself a template. Without it `tool_use`
    serves requests with tools where there is one, `default` all others. Raises `TemplateError`.
    """
    if wanted is not None:
        return templates.get(wanted, wanted)
    name = "tool_use" if has_tools and "tool_use" in templates else "default"
    if name in templates:
        return templates[name]
    there = f"only {', '.join(sorted(templates))}" if templates else "none"
    raise TemplateError(
        f"the model's default chat template was needed, there is {there}; name one with "
        "--chat-template or put a chat_template.jinja beside tokenizer.json",
        param="messages",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as UTF-8: {error}") from error
