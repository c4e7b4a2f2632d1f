"""The experiment file: every wrong key is named with what would be right; overrides and cells resolve."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiment.check import check
from harness.experiment.config import ConfigError, load_experiment, resolve
from harness.experiment.runner import order

MINIMAL = 'name = "x"\n[[cells]]\nname = "a"\nmode = "pdd"\n'
EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (MINIMAL + "[link]\nrtt = 3\n", "link.rtt: unknown key; known keys: driver, profile"),
        (MINIMAL.replace("pdd", "nope"), "cells[0].mode: unknown mode 'nope'; known modes: colocated, idc"),
        ('name = "x"\n', "cells: missing"),
        (MINIMAL + '[[cells]]\nname = "a"\nmode = "xdc"\n', "cells[1].name: 'a' is taken"),
        (
            MINIMAL + "[policy.handoff]\nbatch = 1\n",
            "cells[0].policy: handoff.batch: unknown key; known keys: payload",
        ),
        (MINIMAL + '[policy]\nrelay = "yes"\n', "cells[0].policy: relay: expected `bool`, got `str`"),
        (MINIMAL + "repetitions = 0\n", "repetitions"),
        (MINIMAL + "[load.limits]\nduration_s = -1\n", "load.limits.duration_s"),
        (MINIMAL + '[workload]\nsource = "gone.jsonl"\n', "gone.jsonl: no such file or folder"),
        (
            MINIMAL + '[link]\nprofile = "moon"\n',
            "link.profile: link profile 'moon': unknown; known profiles",
        ),
        (MINIMAL + "[cluster]\nrelay = 0\n", "mode pdd needs at least one relay worker"),
        (
            MINIMAL + "[cluster.engine_options]\nspeed = 2\n",
            "engine_options: speed: unknown key; known keys: model",
        ),
        ("name = \n", "not TOML"),
    ],
)
def test_a_wrong_file_is_answered_with_what_and_where(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(load_experiment(write(tmp_path, text)))
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_experiment(tmp_path / "gone.toml")


def test_overrides_win_over_cells_over_experiment_over_mode(tmp_path: Path) -> None:
    text = (
        MINIMAL
        + "policy.handoff.mode = 'catch_up'\n"
        + "[policy.handoff]\nmode = 'dynamic'\nswitch_tokens = 3\n"
        + "[policy.routing]\nrelay_bound_ms = 9.0\n"
    )
    (cell,) = resolve(
        load_experiment(write(tmp_path, text), {"policy": {"routing": {"relay_bound_ms": 7.0}}})
    )
    assert cell.policy.relay  # from the mode
    assert cell.policy.handoff.mode == "catch_up"  # from the cell
    assert cell.policy.handoff.switch_tokens == 3  # from the experiment
    assert cell.policy.routing.relay_bound_ms == 7.0  # from the override


def test_repetitions_are_interleaved_there_and_back(tmp_path: Path) -> None:
    text = MINIMAL + '[[cells]]\nname = "b"\nmode = "xdc"\n'
    cells = resolve(load_experiment(write(tmp_path, text)))
    assert [(c.name, rep) for c, rep in order(cells, 2)] == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_experiment_is_valid(path: Path) -> None:
    if "cells" not in path.read_text():
        pytest.skip("a suite or a preset, not an experiment")
    check(load_experiment(path))
