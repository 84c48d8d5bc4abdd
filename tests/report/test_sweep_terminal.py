import io
import json

from rich.console import Console

from tests.support.logged import PLAIN
from warmturn.check.sweep import sweep_template
from warmturn.report import print_sweep, sweep_data

TRIMS = PLAIN.replace("{{ m.content }}", "{{ m.content | trim }}")


def swept(source=PLAIN, name="t"):
    return sweep_template(source, name=name, special_tokens={})


def printed(*sweeps):
    out = io.StringIO()
    print_sweep(sweeps, Console(file=out, width=100))
    return out.getvalue()


def test_one_template_is_shown_shape_by_shape():
    text = printed(swept(TRIMS))
    assert "  ok     plain: a question, an answer, the next question" in text
    assert "  BREAKS white-space: an answer with white space around it" in text
    assert "template.content_trimmed, in the model's words" in text
    assert "cached   " in text


def test_a_template_that_does_not_compile_says_why():
    assert "not valid Jinja" in printed(swept("{% if %}"))


def test_a_shape_the_template_refuses_says_why():
    source = "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}" + PLAIN
    assert "not compared: " in printed(swept(source))
    assert "no tools here" in printed(swept(source))


def test_many_templates_are_counted():
    sweeps = [swept(), swept(TRIMS), swept("{% if %}"), swept(TRIMS)]
    text = printed(*sweeps)
    row = next(line for line in text.splitlines() if line.startswith("white-space"))
    assert row.split() == ["white-space", "1", "2", "2", "0", "0", "0", "0"]
    assert "4 templates, " in text
    assert "1 render no shape" in text


def test_the_data_is_json():
    data = json.loads(json.dumps(sweep_data([swept(TRIMS, name="trims"), swept()])))
    assert data["num_templates"] == 2
    assert data["templates"][0]["name"] == "trims"
    shapes = {shape["shape"]: shape for shape in data["templates"][0]["shapes"]}
    assert shapes["white-space"]["cause"] == "template.content_trimmed"
    assert [shape["name"] for shape in data["shapes"]] == list(shapes)
