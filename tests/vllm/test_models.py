"""Names of models, and what is said of those that are not there."""

import json

import pytest

from adapters.engines.vllm import models, tiny
from harness.engine import EngineError


@pytest.mark.parametrize("wanted", [512, 1000, 2048, 8192, 23_040])
def test_a_tiny_model_has_about_the_kv_that_was_asked_for(wanted):
    assert tiny.shape_for(wanted, 0).kv_bytes_per_token == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("name", ["tiny:kv", "tiny:seed=x", "tiny:kv=1,layers=2"])
def test_an_unknown_argument_is_named(name):
    with pytest.raises(EngineError, match="known: kv=BYTES, seed=N"):
        models.resolve(name, None)


def test_a_name_that_is_no_directory_is_refused_with_what_is_known():
    with pytest.raises(EngineError, match="'tiny', 'tiny:kv=BYTES,seed=N', or the path of a directory"):
        models.resolve("gpt-99", None)


def model_directory(path, **config):
    (path / "config.json").write_text(json.dumps({"vocab_size": 1000, **config}))
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def test_another_hash_than_wanted_is_refused(tmp_path):
    path = model_directory(tmp_path)
    found = models.resolve(str(path), None).sha256
    assert models.resolve(str(path), found.upper()).sha256 == found
    (path / "model.safetensors").write_bytes(b"others")
    with pytest.raises(EngineError, match=f"expected {found}"):
        models.resolve(str(path), found)


def test_a_directory_without_weights_or_config_is_refused(tmp_path):
    with pytest.raises(EngineError, match=r"config\.json"):
        models.resolve(str(tmp_path), None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineError, match=r"\.safetensors"):
        models.resolve(str(tmp_path), None)


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ({"bos_token_id": 1, "eos_token_id": 2}, 3),
        ({"bos_token_id": 0, "eos_token_id": [5, 990]}, 6),
        ({"bos_token_id": 998, "eos_token_id": 999, "pad_token_id": None}, 0),
    ],
)
def test_prompts_keep_clear_of_the_special_ids_at_the_low_end(tmp_path, config, first):
    assert models.resolve(str(model_directory(tmp_path, **config)), None).first_normal_id == first
