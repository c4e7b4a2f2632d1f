"""Model names, files and hashes."""

import hashlib

import gguf
import pytest

from adapters.engines import load_engine
from adapters.engines.llamacpp import abi, models, requantize, tiny
from harness.engine import EngineError, EngineOptions


def test_a_tiny_model_is_the_same_file_every_time(tmp_path):
    files = [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    for file in files:
        # The stem is the name inside the file.
        (tmp_path / "model.gguf").unlink(missing_ok=True)
        tiny.write(tmp_path / "model.gguf", tiny.shape_for(500, 1))
        (tmp_path / "model.gguf").rename(file)
    hashes = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert len(hashes) == 1


def test_tiny_models_differ_by_seed_and_size(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = [models.resolve(name, None) for name in ("tiny", "tiny:seed=1", "tiny:kv=500")]
    assert len({m.sha256 for m in made}) == 3
    assert all(m.path.is_relative_to(tmp_path) for m in made)
    assert models.resolve("tiny", made[0].sha256).path == made[0].path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("huge", "known: 'tiny'"),
        ("tiny:layers=3", "kv=BYTES, seed=N"),
        ("tiny:kv", "kv=BYTES, seed=N"),
        ("nowhere/model.gguf", "does not exist"),
    ],
)
def test_unknown_models_are_refused_in_one_line(name, says):
    with pytest.raises(EngineError, match=says) as refused:
        models.resolve(name, None)
    assert "\n" not in str(refused.value)


def test_a_model_file_with_another_hash_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="expected 00"):
        models.resolve(str(path), "00" * 32)


def test_a_file_that_is_no_model_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model at all")
    with pytest.raises(EngineError, match="cannot load") as refused:
        load_engine("llamacpp", EngineOptions(model=str(path)))
    assert "\n" not in str(refused.value)


def test_requantizing_keeps_metadata_and_plain_tensors(tmp_path):
    tiny.write(tmp_path / "f32.gguf", tiny.shape_for(500, 1))
    requantize.to_q8_0(tmp_path / "f32.gguf", tmp_path / "q8.gguf")
    before, after = (gguf.GGUFReader(tmp_path / f"{n}.gguf") for n in ("f32", "q8"))
    kept, stored = (
        {key: field.contents() for key, field in reader.fields.items() if key != "general.file_type"}
        for reader in (before, after)
    )
    assert stored == kept
    kept, stored = ([(t.name, t.data.tobytes()) for t in reader.tensors] for reader in (before, after))
    assert stored == kept


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(EngineError, match="known: emulated, llamacpp"):
        load_engine("sglang", EngineOptions())


def test_options_of_another_engine_are_refused():
    with pytest.raises(EngineError, match="emulated"):
        load_engine("llamacpp", EngineOptions(devices="h100"))
    with pytest.raises(EngineError, match="devices"):
        load_engine("emulated", EngineOptions(model="llama-3-8b"))
    with pytest.raises(EngineError, match=r"known: .*kimi-k2"):
        load_engine("emulated", EngineOptions(model="tiny", devices="h100"))
    with pytest.raises(EngineError, match=r"known: .*h200"):
        load_engine("emulated", EngineOptions(model="llama-3-8b", devices="b300x8"))
    with pytest.raises(EngineError, match="do not fit"):
        load_engine("emulated", EngineOptions(model="kimi-k2", devices="h100x8"))


@pytest.mark.parametrize("name", ["llamacpp", "emulated"])
@pytest.mark.parametrize(
    "option",
    ["max_sequences", "max_context_tokens", "capacity_tokens", "batch_tokens", "threads", "time_scale"],
)
def test_sizes_that_make_no_sense_are_refused_by_name(name, option):
    with pytest.raises(EngineError, match=f"options.{option} is 0"):
        load_engine(name, EngineOptions(**{option: 0}))


def test_more_sequences_than_the_library_can_hold_are_refused():
    with pytest.raises(EngineError, match="<= 256"):
        load_engine("llamacpp", EngineOptions(max_sequences=300, max_context_tokens=64))


def test_another_wheel_version_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(abi.importlib.metadata, "version", lambda _: "2025.1.1")
    with pytest.raises(abi.AbiError, match=r"2025\.1\.1 is installed.*install xllamacpp=="):
        abi._shared_object()


def test_a_struct_layout_that_differs_is_refused():
    params = abi.lib.llama_context_default_params()
    params.n_batch = 7
    with pytest.raises(abi.AbiError, match="n_batch reads as 7, expected 2048"):
        abi._check_defaults("context parameter", params, abi._CONTEXT_DEFAULTS)
