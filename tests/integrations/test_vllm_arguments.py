import pytest

from warmturn.errors import InvalidInput
from warmturn.integrations.vllm_arguments import VllmArguments


def parse(text):
    return VllmArguments.parse(text.split())


def test_options_are_read_in_each_way_they_can_be_written():
    read = parse("--port 1 --host=h --enforce-eager --max_model_len 8")
    assert read.values == {
        "--port": "1",
        "--host": "h",
        "--enforce-eager": None,
        "--max-model-len": "8",
    }


def test_of_a_repeated_option_the_last_counts():
    assert parse("--port 1 --port 2").text("--port") == "2"


def test_a_list_belongs_to_its_option():
    assert parse("--served-model-name a b --port 1").text("--served-model-name") == "a b"


def test_a_switch_that_is_switched_off_is_there():
    read = parse("--no-enable-prefix-caching")
    assert read.has("--enable-prefix-caching")
    assert not read.is_on("--enable-prefix-caching")


def test_a_word_before_any_option_is_refused():
    with pytest.raises(InvalidInput, match="'stray' is no option"):
        parse("stray --port 1")


def test_keys_after_dots_make_an_object_and_join_the_one_written_out():
    read = VllmArguments.parse(
        ["--kv-events-config", '{"topic":"a"}', "--kv-events-config.enable_kv_cache_events", "true",
         "--kv-events-config.a.b", "x"]
    )  # fmt: skip
    assert read.json("--kv-events-config") == {
        "topic": "a",
        "enable_kv_cache_events": True,
        "a": {"b": "x"},
    }


@pytest.mark.parametrize(("value", "said"), [("{", "holds no JSON"), ("[1]", "not a JSON object")])
def test_what_is_no_object_is_refused_by_name(value, said):
    with pytest.raises(InvalidInput, match=f"--kv-events-config {said}|--kv-events-config.*{said}"):
        VllmArguments.parse(["--kv-events-config", value]).json("--kv-events-config")


def test_a_key_below_a_value_that_is_no_object_is_refused():
    read = VllmArguments.parse(["--kv-events-config", '{"a":1}', "--kv-events-config.a.b", "2"])
    with pytest.raises(InvalidInput, match=r"--kv-events-config\.a\.b"):
        read.json("--kv-events-config")
