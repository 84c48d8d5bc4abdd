"""One model directory read by us and by transformers: same template, same text, same ids."""

from datetime import UTC, datetime

import pytest

from warmturn.errors import TemplateError
from warmturn.render import Renderer
from warmturn.render.model_files import choose_template, load_templates, load_tokenizer_config

NOW = datetime(2026, 11, 29, tzinfo=UTC)

FILES = {
    "one in the config": {"tokenizer_config.json": '{"chat_template": "config"}'},
    "named in the config": {
        "tokenizer_config.json": '{"chat_template": [{"name": "default", "template": "d"},'
        ' {"name": "tool_use", "template": "t"}]}'
    },
    "no default": {
        "tokenizer_config.json": '{"chat_template": [{"name": "rag", "template": "r"}]}'
    },
    "a file beside the config": {
        "tokenizer_config.json": '{"chat_template": "config"}',
        "chat_template.jinja": "file",
    },
    "a file and additional ones": {
        "tokenizer_config.json": "{}",
        "chat_template.jinja": "file",
        "additional_chat_templates/tool_use.jinja": "tools",
    },
    "additional ones only": {
        "tokenizer_config.json": '{"chat_template": "config"}',
        "additional_chat_templates/rag.jinja": "r",
    },
    "none": {"tokenizer_config.json": "{}"},
}


def _write(directory, files, tokenizer):
    tokenizer.save(str(directory / "tokenizer.json"))
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_tokenizer():
    import tokenizers

    return tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [None, "rag", "{{ own }}"])
@pytest.mark.parametrize("tools", [None, [], [{"type": "function"}]])
@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_the_template_transformers_would_use_is_used(
    tmp_path, files, tools, wanted, tiny_tokenizer
):
    from transformers import PreTrainedTokenizerFast

    _write(tmp_path, files, tiny_tokenizer)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    try:
        expected = theirs.get_chat_template(wanted, tools)
    except ValueError:
        expected = None
    templates = load_templates(tmp_path, load_tokenizer_config(tmp_path))
    try:
        ours = choose_template(templates, has_tools=tools is not None, wanted=wanted)
    except TemplateError:
        ours = None
    assert ours == expected


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("name", ["smollm2", "qwen3"])
def test_a_conversation_has_the_ids_transformers_gives_it(name, model_directory, conversations):
    from transformers import PreTrainedTokenizerFast

    directory = model_directory(name)
    theirs = PreTrainedTokenizerFast.from_pretrained(directory)
    renderer = Renderer.from_directory(directory)
    for title in ("one question", "system and a turn", "unicode", "tools", "reasoning"):
        messages = conversations[title]["messages"]
        tools = conversations[title].get("tools")
        prompt = renderer.render(messages, now=NOW, tools=tools)
        options = {"tools": tools, "add_generation_prompt": True}
        assert prompt.text == theirs.apply_chat_template(messages, tokenize=False, **options)
        ids = theirs.apply_chat_template(messages, return_dict=False, **options)
        assert prompt.token_ids.tolist() == ids
    assert renderer.tokenizer.special_tokens == theirs.special_tokens_map
    assert renderer.tokenizer.eos_token_id == theirs.eos_token_id
