"""What traces cost: statistics of 94 million block references, a million generated turns, ten million loaded.

    python -m benchmarks.workloads [references] [generate] [load] [plan]

Each measurement runs in a process of its own, so that its peak memory is its own. `references` writes the
real sessions of Weka's prefix tree as the raw JSON they came as (about 600 MB, in a temporary folder) and
needs the real traces beside the checkout.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from workloads.formats import open_trace
from workloads.generator.presets import preset
from workloads.generator.request import synthesise, synthesise_parts
from workloads.readers.options import ReadOptions
from workloads.replay import make_plan, read_plan, write_plan
from workloads.statistics.trace_statistics import Questions, trace_statistics
from workloads.vocabulary import Vocabulary
from workloads.writers import native

TREE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "weka_prefix_tree.csv.gz"
SEEDED = 1


def write_raw(folder: Path) -> None:
    """Every session as a Weka document, subagents flattened into the thread."""
    trace = open_trace(TREE, options=ReadOptions(keep_forks=True))
    t = trace.turns
    for s, name in enumerate(trace.session_ids):
        requests = [
            {
                "t": int(t.arrival_ns[i]) / 1e9,
                "type": "n",
                "in": int(t.input_tokens[i]),
                "out": int(t.output_tokens[i]),
                "hash_ids": trace.tree.path_ids(int(t.node[i])).tolist(),
            }
            for i in range(int(trace.turn_start[s]), int(trace.turn_start[s + 1]))
        ]
        document = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": requests}
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(document))


def references(folder: Path) -> dict[str, object]:
    """Read raw JSON and compute the statistics under three caches."""
    start = time.perf_counter()
    trace = open_trace(folder)
    read_s = time.perf_counter() - start
    s = trace_statistics(trace, Questions(lru_tokens=(50_000_000,), ttl_s=(120.0,)))
    total_s = time.perf_counter() - start
    size = sum(p.stat().st_size for p in folder.iterdir())
    return {
        "requests": s.turns,
        "block_references": s.block_references,
        "file_mb": size >> 20,
        "read_s": read_s,
        "total_s": total_s,
        "goal": "30 s, 2048 MB",
    }


def generate(_folder: Path) -> dict[str, object]:
    """Generate a million turns of the report's skew."""
    start = time.perf_counter()
    trace = synthesise(preset("report"), name="report", seed=SEEDED, requests=1_000_000)
    return {"requests": len(trace), "total_s": time.perf_counter() - start, "goal": "30 s"}


def make_long(folder: Path) -> dict[str, object]:
    """Generate ten million turns into one native file, in parts."""
    start = time.perf_counter()
    parts = synthesise_parts(preset("report"), name="report", seed=SEEDED, requests=10_000_000)
    rows = native.write_parts(parts, folder / "long.parquet")
    size = (folder / "long.parquet").stat().st_size
    return {"requests": rows, "file_mb": size >> 20, "total_s": time.perf_counter() - start}


def load(folder: Path) -> dict[str, object]:
    """Load ten million turns from the native format."""
    start = time.perf_counter()
    trace = open_trace(folder / "long.parquet")
    return {
        "requests": len(trace),
        "total_s": time.perf_counter() - start,
        "goal": "seconds",
    }


def make_plan_file(folder: Path) -> dict[str, object]:
    """Plan ten thousand turns."""
    trace = open_trace("preset:small-engine", seed=SEEDED, sessions=660)
    start = time.perf_counter()
    plan = make_plan(trace, vocabulary=Vocabulary(3, 49_152), seed=SEEDED)
    write_plan(plan, folder / "plan")
    return {"turns": plan.header.turns, "total_s": time.perf_counter() - start}


def read_plan_file(folder: Path) -> dict[str, object]:
    """Read the plan, and spell every prompt of it."""
    start = time.perf_counter()
    plan = read_plan(folder / "plan")
    read_s = time.perf_counter() - start
    tokens = sum(len(t.new_ids()) for s in plan.sessions for t in s.turns)
    spell_s = time.perf_counter() - start - read_s
    return {
        "turns": plan.header.turns,
        "read_s": read_s,
        "spelled_tokens": tokens,
        "spell_s": spell_s,
        "goal": "1 s",
    }


STEPS = {f.__name__: f for f in (references, generate, make_long, load, make_plan_file, read_plan_file)}
GROUPS = {
    "references": ("references",),
    "generate": ("generate",),
    "load": ("make_long", "load"),
    "plan": ("make_plan_file", "read_plan_file"),
}


def main(names: list[str]) -> None:
    for group in names or list(GROUPS):
        if group not in GROUPS:
            sys.exit(f"unknown: {group}; known: {', '.join(GROUPS)}")
        with tempfile.TemporaryDirectory() as made:
            if group == "references":
                if not TREE.is_file():
                    print(f"references: skipped, {TREE} is not there")
                    continue
                write_raw(Path(made))
            for step in GROUPS[group]:
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.workloads", "--step", step, made], check=True
                )


def run_step(name: str, folder: Path) -> None:
    begun = time.process_time()
    figures = STEPS[name](folder)
    figures["cpu_s"] = time.process_time() - begun  # what the step costs where others share the machine
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name}: " + ", ".join(f"{key} {told(value)}" for key, value in figures.items()), flush=True)


def told(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        run_step(sys.argv[2], Path(sys.argv[3]))
    else:
        main(sys.argv[1:])
