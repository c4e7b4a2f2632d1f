"""E5: what 80 requests a second of 64K put on the line, with and without the decode-side cache."""

from __future__ import annotations

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.targets import Findings

_HIT = 0.9


def measure(calibration: Calibration, effort: Effort) -> Findings:  # noqa: ARG001 - arithmetic takes no effort
    """KV bytes a second, and the line that carries them."""
    model = calibration.model()
    length, rate = calibration("latency.length_tokens"), calibration("wan_test.request_rate")
    produced = rate * length * model.kv_bytes_per_token.value
    without = produced * 8 / 1e9
    window = rate * model.recent_tokens.value * model.recent_extra_bytes_per_token.value * 8 / 1e9
    capacity = calibration("wan_test.rate_gbit_s") * calibration("wan_test.efficiency")
    values = {
        "kv_production": produced / 1e9,
        "line_without_drc": without,
        "line_with_drc": without * (1 - _HIT),
        "saturated_without_drc": without / capacity,
    }
    notes = {
        "line_with_drc": f"the uncompressed window of every transfer adds {window:.1f} Gbit/s, "
        "which the report leaves out",
        "kv_production": "4,390 bytes a token are derived from this very figure",
    }
    return Findings(values, notes)
