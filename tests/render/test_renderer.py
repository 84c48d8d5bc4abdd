"""From messages to token ids for one model directory."""

import json
from datetime import UTC, datetime

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warmturn.errors import InvalidInput, InvalidRequest, TemplateError
from warmturn.render import Renderer

NOW = datetime(2026, 11, 29, tzinfo=UTC)
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
CHATML = (
    "{% for m in messages %}" + TURN + "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HI = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]


@pytest.fixture
def directory(tmp_path, chat_tokenizer):
    chat_tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": CHATML}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_messages_become_text_and_ids(directory, chat_tokenizer):
    prompt = Renderer.from_directory(directory).render(HI, now=NOW)
    assert prompt.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.token_ids.tolist() == chat_tokenizer.encode(prompt.text).ids


def test_a_template_over_parts_gets_parts(directory):
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    renderer = Renderer.from_directory(directory, chat_template=source)
    assert renderer.render_text(HI, now=NOW) == "[Hi]"


def test_a_named_template_and_the_one_for_tools_are_chosen(directory):
    (directory / "additional_chat_templates").mkdir()
    for name in ("tool_use", "rag"):
        (directory / "additional_chat_templates" / f"{name}.jinja").write_text(name)
    (directory / "chat_template.jinja").write_text("default")
    renderer = Renderer.from_directory(directory)
    assert renderer.render_text(HI, now=NOW) == "default"
    assert renderer.render_text(HI, now=NOW, tools=[]) == "tool_use"
    rag = Renderer.from_directory(directory, chat_template="rag")
    assert rag.render_text(HI, now=NOW, tools=[]) == "rag"


def test_template_variables_and_special_tokens_arrive(directory):
    renderer = Renderer.from_directory(directory, chat_template="{{ eos_token }}{{ thinking }}")
    text = renderer.render_text(HI, now=NOW, chat_template_kwargs={"thinking": True})
    assert text == "<|im_end|>True"


def test_a_last_message_is_continued(directory):
    chat = [*HI, {"role": "assistant", "content": "It is "}]
    text = Renderer.from_directory(directory).render_text(
        chat, now=NOW, add_generation_prompt=False, continue_final_message=True
    )
    assert text.endswith("<|im_start|>assistant\nIt is ")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"messages": []}, "messages"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"self": 1, "now": 2}}, "chat_template_kwargs"),
        ({"messages": [{"content": "Hi"}]}, "messages[0]"),
    ],
)
def test_wrong_requests_name_the_field(directory, options, param):
    arguments = {"messages": HI, **options}
    with pytest.raises(InvalidRequest) as error:
        Renderer.from_directory(directory).render_text(now=NOW, **arguments)
    assert error.value.param == param


def test_variables_with_odd_names_are_no_accident(directory):
    renderer = Renderer.from_directory(directory)
    kwargs = {"loop": 1, "strftime_now": "x", "context": 2, "environment": 3, "args": 4}
    assert renderer.render_text(HI, now=NOW, chat_template_kwargs=kwargs).startswith("<|im_start|>")


def test_without_a_template_only_rendering_fails(directory):
    (directory / "tokenizer_config.json").unlink()
    renderer = Renderer.from_directory(directory)
    assert renderer.tokenizer.encode("abc").size == 1
    with pytest.raises(TemplateError, match=r"there is none; .*chat_template\.jinja"):
        renderer.render_text(HI, now=NOW)


def test_a_broken_template_is_found_at_load(directory):
    (directory / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(TemplateError, match="not valid Jinja"):
        Renderer.from_directory(directory)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"no tokenizer\.json"):
        Renderer.from_directory(tmp_path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["role", "content", "tool_calls", "name", "reasoning", "type", "text", "function", "arguments"]
)
_ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "x"])
_FIELDS = (
    _JSON | st.dictionaries(_KEYS, _JSON, max_size=4) | st.lists(st.dictionaries(_KEYS, _JSON))
)
_MESSAGE = _JSON | st.fixed_dictionaries(
    {"role": _ROLES}, optional={"content": _FIELDS, "tool_calls": _FIELDS}
)
AGENT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.content is string %}{{ m.content | trim }}"
    "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}{{ tools | tojson }}{{ flag }}"
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(_MESSAGE, max_size=4),
    tools=st.none() | st.lists(_JSON, max_size=2),
    kwargs=st.dictionaries(st.sampled_from(["flag", "messages", "x", ""]), _JSON),
    continued=st.booleans(),
)
def test_whatever_json_comes_in_gives_a_prompt_or_a_refusal(
    directory, messages, tools, kwargs, continued
):
    renderer = Renderer.from_directory(directory, chat_template=AGENT)
    try:
        prompt = renderer.render(
            messages,
            now=NOW,
            tools=tools,
            add_generation_prompt=not continued,
            continue_final_message=continued,
            chat_template_kwargs=kwargs,
        )
    except InvalidRequest:
        return
    assert renderer.tokenizer.decode(prompt.token_ids, skip_special_tokens=False) == prompt.text


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("name", ["smollm2", "qwen3"])
def test_a_growing_conversation_encodes_as_a_whole_at_every_turn(name, model_directory):
    renderer = Renderer.from_directory(model_directory(name))
    library = tokenizers.Tokenizer.from_file(str(model_directory(name) / "tokenizer.json"))
    chat = [{"role": "system", "content": "Be brief."}]
    for turn in range(8):
        chat.append({"role": "user", "content": f"Question {turn}: e\u0301?\n\n"})
        prompt = renderer.render(chat, now=NOW)
        expected = library.encode(prompt.text, add_special_tokens=False).ids
        assert prompt.token_ids.tolist() == expected
        chat.append({"role": "assistant", "content": f"<think>\nHm\n</think>\n\nAnswer {turn}."})
