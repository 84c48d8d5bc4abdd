"""Special tokens and templates as a model directory states them."""

import json

import pytest

from warmturn.errors import InvalidInput, TemplateError
from warmturn.render.model_files import (
    choose_template,
    load_templates,
    load_tokenizer_config,
    named_special_tokens,
)


def test_special_tokens_are_texts_or_objects():
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "pad_token": None,
        "model_max_length": 3,
        "extra_special_tokens": {"image_token": "<img>"},
    }
    assert named_special_tokens(config) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "image_token": "<img>",
    }


def test_a_list_of_extra_tokens_names_none():
    assert named_special_tokens({"extra_special_tokens": ["<img>"]}) == {}


def test_a_directory_without_a_config_has_an_empty_one(tmp_path):
    assert load_tokenizer_config(tmp_path) == {}


@pytest.mark.parametrize("text", ["{", "[]", "\udcff", "[" * 100_000])
def test_a_config_that_is_no_object_is_named(tmp_path, text):
    (tmp_path / "tokenizer_config.json").write_text(text, errors="surrogateescape")
    with pytest.raises(InvalidInput, match=r"tokenizer_config\.json"):
        load_tokenizer_config(tmp_path)


def test_one_template_in_the_config_is_the_default(tmp_path):
    assert load_templates(tmp_path, {"chat_template": "a"}) == {"default": "a"}
    assert load_templates(tmp_path, {}) == {}


def test_named_templates_in_the_config_keep_their_names(tmp_path):
    entries = [{"name": "default", "template": "a"}, {"name": "rag", "template": "b"}]
    assert load_templates(tmp_path, {"chat_template": entries}) == {"default": "a", "rag": "b"}


def test_template_files_win_over_the_config(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("main é", encoding="utf-8")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert load_templates(tmp_path, {"chat_template": "a"}) == {
        "default": "main é",
        "tool_use": "tools",
    }


@pytest.mark.parametrize("entry", [3, [], [{"name": "a"}], ["a"], {"default": 1}])
def test_a_template_of_another_form_is_named(tmp_path, entry):
    with pytest.raises(InvalidInput, match="neither a template nor a list"):
        load_templates(tmp_path, json.loads(json.dumps({"chat_template": entry})))


TEMPLATES = {"default": "d", "tool_use": "t", "rag": "r"}


@pytest.mark.parametrize(
    ("has_tools", "wanted", "chosen"),
    [
        (False, None, "d"),
        (True, None, "t"),
        (True, "rag", "r"),
        (True, "default", "d"),
        (False, "{{ x }}", "{{ x }}"),
    ],
)
def test_a_template_is_chosen_as_hugging_face_chooses(has_tools, wanted, chosen):
    assert choose_template(TEMPLATES, has_tools=has_tools, wanted=wanted) == chosen


def test_tools_without_a_template_of_their_own_use_the_default():
    assert choose_template({"default": "d"}, has_tools=True) == "d"


@pytest.mark.parametrize(("templates", "there"), [({}, "none"), ({"rag": "r"}, "only rag")])
def test_without_a_default_the_error_says_what_there_is(templates, there):
    with pytest.raises(TemplateError, match=rf"there is {there}; .*chat_template\.jinja"):
        choose_template(templates, has_tools=False)
