import json

import pytest

from warmturn.cost import KvCost, geometry_of, read_model
from warmturn.cost.gguf_config import config_of_metadata
from warmturn.errors import InvalidInput, MissingExtra

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 32,
    "vocab_size": 10,
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "tiny-model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def test_a_directory_and_its_config_are_the_same_model(folder):
    (folder / "model-1.safetensors").write_bytes(b"x" * 10)
    (folder / "model-2.safetensors").write_bytes(b"x" * 20)
    by_folder, by_file = read_model(str(folder)), read_model(str(folder / "config.json"))
    assert by_folder.geometry == by_file.geometry
    assert by_folder.name == "tiny-model"
    assert (by_folder.weight_bytes, by_file.weight_bytes) == (30, None)


def test_parameters_are_counted_from_the_shapes(folder):
    """Two embeddings of 640; per layer four matrices of 64 x 64 and three of 64 x 32."""
    counted = read_model(str(folder)).parameters
    assert counted.total == counted.active == 1280 + 2 * (4 * 4096 + 3 * 2048)


def test_a_known_name_has_its_model_card_s_parameters():
    planned = read_model("mixtral-8x7b")
    assert (planned.parameters.total, planned.parameters.active) == (46.7e9, 12.9e9)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "no JSON object"),
        ("[" * 100_000, "is no JSON"),
        ("{}", "num_hidden_layers"),
        ('{"num_hidden_layers": NaN}', "num_hidden_layers"),
    ],
)
def test_a_broken_config_is_named(folder, content, words):
    (folder / "config.json").write_text(content)
    with pytest.raises(InvalidInput, match=words):
        read_model(str(folder))


def test_files_that_are_not_there_are_named(tmp_path, folder):
    (folder / "config.json").unlink()
    for missing in (folder, tmp_path / "x.json", tmp_path / "x.gguf", tmp_path / "a/b/c"):
        with pytest.raises(InvalidInput, match=str(missing)):
            read_model(str(missing))


# --- GGUF -------------------------------------------------------------------------------------


def test_a_gguf_file_is_read_like_the_config_it_was_made_from(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(8)
    writer.add_head_count_kv([2, 4])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    planned = read_model(str(path))
    assert KvCost(planned.geometry).bytes_per_token == (2 + 4) * 2 * 8 * 2
    assert planned.weight_bytes == path.stat().st_size
    assert read_model(str(tmp_path)) == planned


def test_a_broken_gguf_file_is_named(tmp_path):
    pytest.importorskip("gguf")
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF but not really")
    with pytest.raises(InvalidInput, match=r"broken.gguf cannot be read as GGUF"):
        read_model(str(path))


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r"warmturn\[engine\]"):
        read_model(str(tmp_path / "x.gguf"))


def metadata(arch, **fields):
    base = {"block_count": 4, "embedding_length": 64, "attention.head_count": 8}
    named = {key.replace("__", "."): value for key, value in fields.items()}
    return {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in (base | named).items()}


def gguf_cost(arch, **fields):
    return KvCost(geometry_of(config_of_metadata(metadata(arch, **fields), name="x.gguf")))


def test_a_gguf_latent_has_its_rotary_part_elsewhere():
    found = gguf_cost(
        "deepseek2",
        attention__kv_lora_rank=512,
        rope__dimension_count=64,
        attention__key_length=576,
        attention__key_length_mla=192,
    )
    assert found.bytes_per_token == 4 * 576 * 2
    assert found.geometry.head_dim == 192


def test_a_gguf_window_pattern_is_a_list_of_truths_or_a_period():
    window = {"attention__sliding_window": 10, "attention__sliding_window_pattern": [True] * 3}
    window["attention__sliding_window_pattern"] += [False]
    assert gguf_cost("gemma3", **window).geometry.num_owning_window_layers == 3
    window["attention__sliding_window_pattern"] = 2
    assert gguf_cost("gpt-oss", **window).geometry.num_owning_window_layers == 2


def test_a_gguf_hybrid_says_its_recurrent_layers_by_interval_or_by_kv_heads():
    ssm = {"ssm__inner_size": 128, "ssm__state_size": 16, "ssm__conv_kernel": 4}
    delta = gguf_cost(
        "qwen3next", full_attention_interval=4, ssm__time_step_rank=8, ssm__group_count=2, **ssm
    )
    assert delta.geometry.num_attention_layers == 1
    assert delta.state.recurrent == 3 * 128 * 16 * 4
    jamba = gguf_cost("jamba", attention__head_count_kv=[0, 0, 2, 0], **ssm)
    assert jamba.geometry.num_attention_layers == 1
    assert jamba.state.recurrent == 3 * 128 * 16 * 4


def test_a_gguf_that_is_no_model_is_named():
    with pytest.raises(InvalidInput, match=r"x.gguf names no general.architecture"):
        config_of_metadata({}, name="x.gguf")
