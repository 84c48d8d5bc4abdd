"""The environment templates are written for, feature by feature."""

import pytest
from jinja2.exceptions import SecurityError, UndefinedError

from warmturn.render.environment import chat_environment


def render(source, **variables):
    return chat_environment().from_string(source).render(**variables)


def test_lines_with_only_a_block_leave_no_trace():
    assert render("a\n   {% if true %}\nb\n   {% endif %}\nc") == "a\nb\nc"


def test_loops_can_be_left_and_continued():
    source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
    assert render(source + "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "02"


def test_json_is_written_as_python_writes_it():
    value = {"b": "<é>'", "a": [1, True, None]}
    assert render("{{ v | tojson }}", v=value) == '{"b": "<é>\'", "a": [1, true, null]}'
    assert render("{{ v | tojson(indent=2) }}", v=[1]) == "[\n  1\n]"
    assert render("{{ v | tojson(separators=(',', ':'), sort_keys=true) }}", v=value) == (
        '{"a":[1,true,null],"b":"<é>\'"}'
    )
    assert render("{{ v | tojson(ensure_ascii=true) }}", v="é") == '"\\u00e9"'


def test_the_generation_tag_renders_its_body():
    assert render("<{% generation %}{{ x }}{% endgeneration %}>", x="a") == "<a>"


def test_a_namespace_carries_values_out_of_loops():
    source = "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}"
    assert render(source + "{% endfor %}{{ ns.n }}") == "3"
    assert render("{{ namespace(self=1)['self'] }}") == "1"
    assert render("{{ namespace({'a': 2}).a }}") == "2"


@pytest.mark.parametrize(
    "source", ["{{ namespace(_x=1) }}", "{% set ns = namespace() %}{% set ns.__class__ = 1 %}"]
)
def test_a_namespace_takes_no_hidden_names(source):
    with pytest.raises(SecurityError, match="names may not start with"):
        render(source)


def test_dict_makes_dictionaries_and_leads_nowhere():
    assert render("{{ dict(a=1) }} {{ dict.fromkeys(['b'], 2) }}") == "{'a': 1} {'b': 2}"
    with pytest.raises(SecurityError):
        render("{{ dict.__class__.__mro__ }}")
    with pytest.raises(UndefinedError):
        render("{{ dict.mro() }}")


def test_ordinary_arithmetic_is_untouched():
    assert render("{{ 3 * 4 }} {{ '-' * 3 }} {{ 2 ** 10 }} {{ 2.5 * 2 }} {{ 2 ** -1 }}") == (
        "12 --- 1024 5.0 0.5"
    )
