"""Parameters of the reproduction: one TOML file, every value with its source and basis.

A fitted one that has `low` and `high` is free: `pddbench reproduce --fit` moves it within these bounds
to meet the targets that are declared as fitted, and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harness.costs.deployment import Deployment, deployment_of
from harness.costs.profile import ModelProfile, ProfileError, load_accelerator, load_model
from harness.costs.quantity import Basis, Quantity
from harness.sim.wan import LineModel

_SHIPPED: Final = Path(__file__).with_name("report.toml")


class Calibration(msgspec.Struct, frozen=True):
    """Values by name, in groups (latency, wan_test, handoff, economy, collapse)."""

    groups: dict[str, dict[str, Quantity]]

    def __call__(self, name: str) -> float:
        """Value of 'group.name'. ProfileError for an unknown one."""
        group, _, key = name.partition(".")
        try:
            return self.groups[group][key].value
        except KeyError:
            raise ProfileError(f"calibration: {name!r} is missing") from None

    def free(self) -> dict[str, Quantity]:
        """Parameters that a fit may move, by name."""
        return {
            f"{group}.{key}": quantity
            for group, values in self.groups.items()
            for key, quantity in values.items()
            if quantity.basis is Basis.FITTED and quantity.low is not None and quantity.high is not None
        }

    def changed(self, values: dict[str, float]) -> Calibration:
        """A copy with other values."""
        groups = {group: dict(quantities) for group, quantities in self.groups.items()}
        for name, value in values.items():
            group, _, key = name.partition(".")
            groups[group][key] = msgspec.structs.replace(groups[group][key], value=value)
        return Calibration(groups)

    def line(self, group: str) -> LineModel:
        """The pool of a group that has rate, rtt, efficiency, flow, connections and sigma."""
        return LineModel(
            rate_bytes_s=self(f"{group}.rate_gbit_s") * 1e9 / 8,
            rtt_s=self(f"{group}.rtt_ms") / 1e3,
            efficiency=self(f"{group}.efficiency"),
            connection_bytes_s=self(f"{group}.flow_mbit_s") * 1e6 / 8,
            connections=int(self(f"{group}.connections")),
            rate_sigma=self(f"{group}.rate_sigma"),
        )

    def deployment(self, accelerator: str, devices: int) -> Deployment:
        """The report's model on so many devices, with the fitted prefill rate."""
        return deployment_of(self.model(), load_accelerator(accelerator), devices)

    def model(self) -> ModelProfile:
        model = load_model("v4-class")
        rate = self("latency.prefill_tokens_s")
        replace = msgspec.structs.replace
        return replace(
            model,
            weight_bytes=replace(model.weight_bytes, value=self("latency.weight_gb") * 1e9),
            prefill_tokens_s={name: replace(q, value=rate) for name, q in model.prefill_tokens_s.items()},
        )


def load_calibration(path: Path | None = None) -> Calibration:
    """The shipped calibration, or one's own. ProfileError when it is not one."""
    file = path or _SHIPPED
    try:
        return Calibration(msgspec.toml.decode(file.read_bytes(), type=dict[str, dict[str, Quantity]]))
    except OSError as error:
        raise ProfileError(f"{file}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ProfileError(f"{file}: {error}") from None
