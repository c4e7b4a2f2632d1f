"""Profiles say where their figures come from; a measured engine is fitted to what its steps took."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import tomli_w

from harness.costs.deployment import attention_pairs, deploy
from harness.costs.measured import Measured, deployment, load_measured
from harness.costs.profile import (
    ProfileError,
    known_accelerators,
    known_lines,
    known_models,
    load_accelerator,
    load_line,
    load_model,
)
from harness.costs.quantity import Basis, Quantity
from harness.experiment.measure_steps import _design, _non_negative, plain


@pytest.mark.parametrize("load", [load_accelerator, load_model, load_line])
def test_every_shipped_profile_loads_with_sources(load: object) -> None:
    known = {load_accelerator: known_accelerators, load_model: known_models, load_line: known_lines}[load]()  # type: ignore[index]
    assert known
    for name in known:
        for value in msgspec.structs.asdict(load(name)).values():  # type: ignore[operator]
            if isinstance(value, Quantity):
                assert value.source


def test_kv_sizes_are_those_of_the_architectures() -> None:
    sizes = {
        "deepseek-v3": 70_272,
        "kimi-k2": 70_272,
        "qwen3-235b": 192_512,
        "qwen3-32b": 262_144,
        "llama-3-70b": 327_680,
        "llama-3-8b": 131_072,
        "v4-class": 4390,
    }
    assert {name: load_model(name).kv_bytes_per_token.value for name in sizes} == sizes
    assert deploy("v4-class", "h100x16").kv_bytes(0, 100) == pytest.approx(4_649_000)


def test_weights_that_do_not_fit_are_refused_with_the_number_that_does() -> None:
    with pytest.raises(ProfileError, match="devices are enough"):
        deploy("deepseek-v3", "h100x8")


def test_a_value_outside_its_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="not within"):
        Quantity(3.0, Basis.FITTED, "somewhere", low=0.0, high=2.0)
    with pytest.raises(ValueError, match="source"):
        Quantity(3.0, Basis.FITTED, " ")


def test_step_times_give_their_own_coefficients_back() -> None:
    true = {"overhead": 2e-3, "linear": 1e-4, "pair": 3e-8, "decode": 5e-4, "read": 2e-8}
    prefill = [
        (n, past, true["overhead"] + n * true["linear"] + attention_pairs(n, past) * true["pair"])
        for n in (64, 256, 512)
        for past in (0, 1024)
    ]
    decode = [
        (b, c, true["overhead"] + b * true["decode"] + b * c * true["read"])
        for b in (1, 4, 16)
        for c in (64, 1024)
    ]
    rows, times = _design(prefill, decode)
    assert _non_negative(rows, times) == pytest.approx(list(true.values()), rel=1e-6)
    assert np.all(_non_negative(rows, times - 1.5e-3) >= 0)


def test_a_measured_file_reads_back_as_a_deployment(tmp_path: Path) -> None:
    def quantity(value: float) -> Quantity:
        return Quantity(value, Basis.FITTED, "here")

    told = Measured("toy", *(quantity(v) for v in (1e-4, 3e-8, 5e-4, 2e-8, 2e-3, 16.0, 100.0, 5000.0, 1e9)))
    (tmp_path / "measured.toml").write_text(tomli_w.dumps(dict(plain(told))))
    found = load_measured(tmp_path / "measured.toml")
    assert found == deployment(told)
    assert found.capacity_tokens(10) == 5000
    assert found.step_s(4, 0, 400) == pytest.approx(2e-3 + 4 * 5e-4 + 400 * 2e-8)
    assert found.step_s(256, attention_pairs(256, 0), 0) == pytest.approx(
        2e-3 + 256e-4 + 256 * 257 / 2 * 3e-8
    )
