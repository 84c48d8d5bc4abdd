import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.tiny_models import save_tiny_model
from warmturn.engine.model_config import ModelConfig
from warmturn.engine.weights import load_weights
from warmturn.errors import InvalidInput

CPU = torch.device("cpu")


@pytest.fixture
def model_dir(tmp_path):
    save_tiny_model(tmp_path)
    return tmp_path


def load_all(directory, dtype=torch.float32):
    config = ModelConfig.from_directory(directory)
    return load_weights(directory, config, dtype=dtype, device=CPU)


def rewrite(directory, change):
    """Load the file's tensors, change the dictionary, save it again."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def test_projections_of_one_input_are_stacked_in_order(model_dir, monkeypatch):
    monkeypatch.setattr("warmturn.engine.linear._packing_pays", lambda _: False)
    tensors = load_file(model_dir / "model.safetensors")
    layer = load_all(model_dir).layers[1]
    names = [f"model.layers.1.self_attn.{name}_proj.weight" for name in "qkv"]
    assert torch.equal(layer.qkv.weight, torch.cat([tensors[name] for name in names]))
    gate_up = torch.cat([tensors[f"model.layers.1.mlp.{n}_proj.weight"] for n in ("gate", "up")])
    assert torch.equal(layer.gate_up.weight, gate_up)


def test_a_sharded_model_equals_the_single_file(model_dir, monkeypatch):
    monkeypatch.setattr("warmturn.engine.linear._packing_pays", lambda _: False)
    single = load_all(model_dir)
    tensors = load_file(model_dir / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, model_dir / shard)
    weight_map = {name: shard for shard, inside in shards.items() for name in inside}
    index = model_dir / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    (model_dir / "model.safetensors").unlink()
    sharded = load_all(model_dir)
    assert torch.equal(sharded.embedding, single.embedding)
    assert torch.equal(sharded.layers[1].down.weight, single.layers[1].down.weight)
    (model_dir / "b.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"b\.safetensors is missing, truncated or broken"):
        load_all(model_dir)


def test_weights_are_converted_to_the_asked_dtype(model_dir):
    weights = load_all(model_dir, torch.bfloat16)
    assert weights.embedding.dtype == torch.bfloat16
    assert weights.layers[0].qkv.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("kept_share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_one_clear_line(model_dir, kept_share):
    path = model_dir / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(InvalidInput, match="truncated or broken") as raised:
        load_all(model_dir)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_weights_at_all_names_what_was_looked_for(model_dir):
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"neither model\.safetensors nor"):
        load_all(model_dir)


def test_an_index_without_a_map_is_named(model_dir):
    (model_dir / "model.safetensors").unlink()
    (model_dir / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(InvalidInput, match="has no field 'weight_map'"):
        load_all(model_dir)


def test_a_missing_tensor_is_named(model_dir):
    rewrite(model_dir, lambda t: t.pop("model.norm.weight"))
    with pytest.raises(InvalidInput, match=r"no tensor 'model\.norm\.weight'"):
        load_all(model_dir)


def test_an_untied_model_without_a_head_is_refused(model_dir):
    config = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(InvalidInput, match=r"no tensor 'lm_head\.weight'"):
        load_all(model_dir)


def test_a_wrong_shape_is_named_with_both_shapes(model_dir):
    name = "model.layers.0.mlp.up_proj.weight"
    rewrite(model_dir, lambda t: t.update({name: torch.zeros(3, 48)}))
    with pytest.raises(InvalidInput, match=r"up_proj.weight' has shape \[3, 48\].*\[64, 48\]"):
        load_all(model_dir)


def test_integer_weights_are_refused(model_dir):
    name = "model.norm.weight"
    rewrite(model_dir, lambda t: t.update({name: torch.zeros(48, dtype=torch.int8)}))
    with pytest.raises(InvalidInput, match="is I8; only BF16, F16 and F32"):
        load_all(model_dir)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_bias_against_the_config_is_refused(tmp_path, kind):
    """Dropping a bias that is there would give wrong tokens without any other sign."""
    save_tiny_model(tmp_path, kind)
    name = "model.layers.0.self_attn.k_proj.bias"

    def change(tensors):
        if kind == "qwen2":
            del tensors[name]
        else:
            tensors[name] = torch.zeros(16)

    rewrite(tmp_path, change)
    with pytest.raises(InvalidInput, match=r"k_proj\.bias' is (there|missing), against config"):
        load_all(tmp_path)
