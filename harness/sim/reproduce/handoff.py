"""E2: handing 100 tokens over, as KV across the line or as ids that MD recomputes."""

from __future__ import annotations

import random

import numpy as np

from harness.policy.journal import ID_BYTES
from harness.sim.event_queue import EventQueue
from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.plots import handoff_strip
from harness.sim.reproduce.targets import Findings
from harness.sim.wan import Flow, LineModel, WanPool


def measure(calibration: Calibration, effort: Effort) -> Findings:
    """Repetitions one after another on an idle line; maxima are means over the seeds."""
    c = calibration
    tokens, repetitions = int(c("handoff.tokens")), int(c("handoff.repetitions"))
    deployment = c.deployment("h200", int(c("latency.main_cross_devices")))
    length = int(c("latency.length_tokens"))
    kv_bytes = round(deployment.kv_bytes(length, length + tokens))
    rtt_s = c("latency_line.rtt_ms") / 1e3
    step_s = deployment.step_s(tokens, tokens * length, 0)
    kv_ms: list[list[float]] = []
    extend_ms: list[list[float]] = []
    for seed in range(1, 10 * effort.seeds + 1):
        kv_ms.append([1e3 * t for t in _kv_times(c, kv_bytes, repetitions, seed)])
        rng = random.Random(seed)
        extend_ms.append(
            [
                1e3 * (rtt_s + step_s) + max(0.0, rng.gauss(c("handoff.extra_ms"), c("handoff.extra_sd_ms")))
                for _ in range(repetitions)
            ]
        )
    values = {
        "kv_mean": float(np.mean(kv_ms)),
        "kv_max": float(np.mean([max(run) for run in kv_ms])),
        "kv_size": kv_bytes / 1e3,
        "kv_copy": c("handoff.copy_ms"),
        "extend_mean": float(np.mean(extend_ms)),
        "extend_sd": float(np.mean([np.std(run) for run in extend_ms])),
        "extend_max": float(np.mean([max(run) for run in extend_ms])),
    }
    values["extend_mean_above_kv"] = values["extend_mean"] / values["kv_mean"]
    values["extend_max_below_kv"] = values["kv_max"] / values["extend_max"]
    notes = {
        "extend_mean": (
            f"messages {1e3 * rtt_s:.0f} ms, the step {1e3 * step_s:.0f} ms, {c('handoff.extra_ms'):.0f} ms "
            "are fitted: the report does not say what its engine does there"
        ),
        "kv_size": f"ids instead: {tokens * ID_BYTES / 1e3:g} KB (the report: 1.5 KB, with what goes along)",
    }
    return Findings(values, notes, (handoff_strip(kv_ms[0], extend_ms[0]),))


def _kv_times(calibration: Calibration, kv_bytes: int, repetitions: int, seed: int) -> list[float]:
    queue = EventQueue()
    line = LineModel(
        rate_bytes_s=calibration("latency_line.rate_gbit_s") * 1e9 / 8,
        rtt_s=calibration("latency_line.rtt_ms") / 1e3,
        efficiency=calibration("latency_line.efficiency"),
        connection_bytes_s=calibration("handoff.flow_mbit_s") * 1e6 / 8,
        rate_sigma=calibration("handoff.rate_sigma"),
        slow_start=False,
    )
    pool = WanPool(queue, line, seed)
    times: list[float] = []

    def landed(flow: Flow) -> None:
        start_ns = flow.argument
        assert isinstance(start_ns, int)
        times.append((queue.now_ns - start_ns) * 1e-9)
        if len(times) < repetitions:
            pool.start(kv_bytes, landed, queue.now_ns)

    pool.start(kv_bytes, landed, 0)
    queue.run()
    return times
