"""The table of published models, checked against itself: shapes must give the parameters."""

from pathlib import Path

import pytest

from warmturn.cost import KvCost, geometry_of, preset_named, presets
from warmturn.cost.config_fields import ConfigFields
from warmturn.cost.parameters import count_parameters
from warmturn.errors import InvalidInput

COUNTED = {
    name: count
    for name, preset in presets().items()
    if (
        count := count_parameters(
            ConfigFields(preset.config, name=name), geometry_of(preset.config, name=name)
        )
    )
}
PARTLY = {"llama-3.2-11b-vision"}
"""Its vision tower and the layers that attend to images are not in the text model's shapes."""


def test_at_least_forty_geometries_each_name_their_public_source():
    assert len(presets()) >= 40
    assert all(preset.source.startswith("https://") for preset in presets().values())


@pytest.mark.parametrize("name", sorted(presets()))
def test_each_geometry_can_be_read_and_keeps_something(name):
    cost = KvCost(geometry_of(presets()[name].config, name=name))
    assert cost.bytes_at(1000) > 0


@pytest.mark.parametrize("name", sorted(COUNTED.keys() - PARTLY))
def test_the_shapes_give_the_published_number_of_parameters(name):
    """A wrong layer count, width, expert or vocabulary would show here."""
    assert COUNTED[name].total == pytest.approx(presets()[name].parameters, rel=0.015)


def test_most_geometries_are_checked_that_way():
    assert len(COUNTED) >= 55


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [
        ("llama-2-7b", 524_288),
        ("llama-3.1-8b", 131_072),
        ("qwen3-32b", 262_144),
        ("deepseek-v3", 70_272),
        ("deepseek-v3.2", 78_324),
        ("falcon-7b", 8_192),
        ("qwen3-next-80b-a3b", 24_576),
        ("kimi-linear-48b-a3b", 8_064),
    ],
)
def test_known_bytes_per_token(name, num_bytes):
    assert KvCost(geometry_of(preset_named(name).config)).bytes_per_token == num_bytes


def test_names_are_found_in_any_case_and_near_ones_are_named():
    assert preset_named("LLaMA-3.1-8B").name == "llama-3.1-8b"
    with pytest.raises(InvalidInput, match=r"near are .*llama-3.1-8b"):
        preset_named("llama-3.1-9b")


def test_the_documentation_s_table_is_what_the_code_computes():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "models.md").read_text()
    assert [row for row in page.splitlines() if row.startswith("| [")] == [
        row_of(preset) for preset in presets().values()
    ]


def row_of(preset):
    cost = KvCost(geometry_of(preset.config, name=preset.name))
    shape = cost.geometry
    layers = str(shape.num_owning_layers)
    if shape.num_owning_layers != len(shape.layers):
        layers += f" of {len(shape.layers)}"
    if shape.num_owning_window_layers:
        layers += f", {shape.num_owning_window_layers} windows"
    figures = (cost.bytes_per_token, cost.window_bytes, cost.state.total, cost.bytes_at(8192))
    cells = [f"[{preset.name}]({preset.source})", layers, *(f"{n:,}" for n in figures)]
    return f"| {' | '.join(cells)} |"
