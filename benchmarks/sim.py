"""Speed and memory of the simulator in the report's E1 setting: `python -m benchmarks.sim [--requests N]`.

Each size runs in a process of its own, one core, and reports requests per second of CPU and of wall time and
the peak of resident memory. Sessions come from a generator, so memory shows what the simulator keeps.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.sim.clients import Load, Pace
from harness.sim.reproduce.calibration import load_calibration
from harness.sim.reproduce.setting import cell_of
from harness.sim.request import SimRequest
from harness.sim.session import PlainSession, PlainTurn
from harness.sim.simulation import Simulation

LENGTH, OUTPUT, TURNS, RATE, LIVE = 65_536, 1024, 20, 9.0, 500


class Counter:
    """Keeps nothing but counts."""

    wants_decisions = False

    def __init__(self) -> None:
        self.ok = self.other = 0
        self.ttft_s = 0.0

    def decided(self, *_: object) -> None: ...

    def unsent(self, *_: object, **__: object) -> None:
        self.other += 1

    def sample(self, *_: object) -> None: ...

    def ended(self, request: SimRequest) -> None:
        if request.status == "ok":
            self.ok += 1
            assert request.first_token_ns is not None
            self.ttft_s += (request.first_token_ns - request.arrived_ns) * 1e-9
        else:
            self.other += 1


def sessions(requests: int, seed: int) -> Iterator[PlainSession]:
    """Sessions of 20 turns of 64K, most hits above 95 %, in order of start, made as they are asked for."""
    rng = random.Random(seed)
    every_s, between_s = TURNS / RATE, LIVE / RATE
    for i in range(requests // TURNS):
        start_s = i * every_s + rng.random() * every_s
        turns = []
        for k in range(TURNS):
            at_ns = round((start_s + k * between_s * rng.uniform(0.9, 1.1)) * 1e9)
            hit = rng.uniform(0.95, 0.992) if rng.random() < 0.83 else rng.uniform(0.5, 0.95)
            base, kept = (None, 0) if k == 0 else (k - 1, int(hit * LENGTH))
            turns.append(PlainTurn(k, LENGTH, OUTPUT, base, kept, False, 0, 0, (k - 1,) if k else (), at_ns))
        yield PlainSession(f"s{i}", round(start_s * 1e9), tuple(turns), (f"head-{i % 8}", 15_000))


def measure(requests: int, mode: str, tables: Path | None) -> dict[str, float]:
    """One run in this process."""
    if tables is None:
        observer: Counter | object = Counter()
    else:
        from harness.sim.tables import TableObserver

        observer = TableObserver(tables, cell=mode, rep=0, profile="report", decisions=False)
    load = Load(Pace.EVERY_TURN)
    sim = Simulation(cell_of(load_calibration(), mode), sessions(requests, 1), load, observer, seed=1)  # type: ignore[arg-type]
    gc.collect()
    gc.freeze()
    wall, cpu = time.perf_counter(), time.process_time()
    sim.run()
    if tables is not None:
        observer.close()  # type: ignore[attr-defined]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    done = sim.arrived
    return {
        "requests": done,
        "per_cpu_s": done / cpu,
        "per_wall_s": done / wall,
        "policy_events": sim.policy_events / done,
        "calls": sim.queue.calls / done,
        "peak_mbyte": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "virtual_s": sim.queue.now_ns / 1e9,
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--modes", nargs="+", default=["pdd"])
    parser.add_argument("--tables", type=Path, help="write the tables of a run into this folder, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(options.requests[0], options.modes[0], options.tables)))
        return
    print(
        f"{'mode':8} {'requests':>10} {'req/s of CPU':>14} {'req/s of wall':>14} "
        f"{'peak MB':>9} {'events/req':>11}"
    )
    for mode in options.modes:
        for requests in options.requests:
            command = [
                sys.executable,
                "-m",
                "benchmarks.sim",
                "--child",
                "--requests",
                str(requests),
                "--modes",
                mode,
            ]
            if options.tables is not None:
                command += ["--tables", str(options.tables / f"{mode}-{requests}")]
            # numpy's threads spin for a while after its import: CPU that is not the simulator's.
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
            out = json.loads(done.stdout)
            print(
                f"{mode:8} {out['requests']:>10,} {out['per_cpu_s']:>14,.0f} {out['per_wall_s']:>14,.0f} "
                f"{out['peak_mbyte']:>9,.0f} {out['policy_events']:>11.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
