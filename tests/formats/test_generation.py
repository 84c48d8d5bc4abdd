import pytest

from warmturn.errors import InvalidRequest
from warmturn.formats.generation import HARMLESS, REFUSED, generation


def refused(**fields) -> InvalidRequest:
    """Return the refusal of these fields."""
    with pytest.raises(InvalidRequest) as caught:
        generation(fields)
    return caught.value


def test_the_defaults_are_openai_s():
    plain = generation({})
    assert (plain.temperature, plain.top_p, plain.top_k_or_none) == (1.0, 1.0, None)
    assert plain.stop_strings == ()
    assert not plain.stream
    assert not plain.streaming.include_usage


@pytest.mark.parametrize(
    ("field", "good"),
    [
        ("temperature", [0, 2, 0.7]),
        ("top_p", [1, 0.01]),
        ("top_k", [-1, 0, 50]),
        ("seed", [0, -(2**63), 2**63 - 1]),
        ("min_tokens", [0, 5]),
        ("stop", ["x", [], ["x"] * 16, "y" * 256]),
        ("stop_token_ids", [[], [0, 5]]),
        ("cache_salt", ["s"]),
    ],
)
def test_values_within_their_bounds_are_taken(field, good):
    for value in good:
        assert getattr(generation({field: value}), field) == value


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("temperature", [-0.1, 2.1, "1", True, []]),
        ("top_p", [0, 1.1]),
        ("top_k", [-2, 1.5, 2**31]),
        ("seed", [2**63, -(2**63) - 1, 1.5, 10**40]),
        ("min_tokens", [-1, 10**40]),
        ("stop", ["", ["x"] * 17, "y" * 257, [""], 3]),
        ("stop_token_ids", [[-1], [2**31], ["x"], [1] * 257]),
        ("stream", [1, "true"]),
        ("ignore_eos", [0]),
        ("cache_salt", [3]),
        ("model", [3]),
        ("return_token_ids", ["yes"]),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(field, bad):
    for value in bad:
        error = refused(**{field: value})
        assert (error.param or "").partition("[")[0] == field, value


@pytest.mark.parametrize("field", sorted(REFUSED))
def test_a_field_without_effect_here_is_refused_unless_neutral(field):
    for neutral in REFUSED[field]:
        generation({field: neutral})
    error = refused(**{field: "something else"})
    assert error.param == field
    assert "leave it out" in str(error)


@pytest.mark.parametrize(("field", "value"), [("n", True), ("n", 0), ("echo", 0), ("echo", True)])
def test_a_boolean_is_no_count_and_a_count_no_boolean(field, value):
    assert refused(**{field: value}).param == field


def test_penalties_of_zero_may_be_written_either_way():
    generation({"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0})


def test_stream_options_need_a_stream():
    assert refused(stream_options={"include_usage": True}).param == "stream_options"
    streamed = generation({"stream": True, "stream_options": {"include_usage": True, "new": 1}})
    assert streamed.streaming.include_usage


def test_a_temperature_too_small_to_divide_by_is_greedy():
    assert generation({"temperature": 1e-6}).usable_temperature == 0.0
    assert generation({"temperature": 1e-4}).usable_temperature == 1e-4


def test_one_stop_string_and_a_list_of_one_are_equal():
    assert generation({"stop": "x"}).stop_strings == generation({"stop": ["x"]}).stop_strings


def test_no_field_is_both_refused_and_harmless():
    assert not HARMLESS & REFUSED.keys()
