"""How fast and how lean is a comparison at size? Bars: 10 M requests, 60 s and 3 GB on two cores.

    python -m benchmarks.reports [--requests 10000000] [--tokens 64] [--folder DIR]

Makes two cells of synthetic records (half of the requests each, in the layout of a run), compares them in
a process of its own, and prints wall time, CPU time and peak resident memory. Needs about 2 bytes of disk
a token; the records are removed unless --folder is given.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reports.host import probe_host, probe_versions
from reports.runinfo import CellInfo, RunInfo, RunState, TraceInfo
from reports.schema import HANDOFFS, REQUESTS, Table
from reports.shard import Shard, parquet_options

ROW_GROUP = 1 << 16
TURNS = 40
EPOCH_NS = 1_760_000_000_000_000_000
CELLS = ("xdc", "pdd")


def text(prefix: str, numbers: np.ndarray) -> pa.Array:
    digits = pc.cast(pa.array(numbers), pa.string())
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")


def column_table(table: Table, columns: dict[str, object], rows: int) -> pa.Table:
    arrays = []
    for field in table.arrow():
        value = columns.get(field.name)
        if value is None:
            arrays.append(pa.nulls(rows, field.type))
        elif isinstance(value, str):
            arrays.append(pa.repeat(pa.scalar(value), rows))
        else:
            arrays.append(pa.array(value, field.type) if isinstance(value, np.ndarray) else value)
    return pa.Table.from_arrays(arrays, schema=table.arrow())


def block(
    cell: str, start: int, rows: int, tokens: int, rng: np.random.Generator
) -> tuple[pa.Table, pa.Table]:
    """`rows` requests from number `start` on, and their router rows."""
    number = np.arange(start, start + rows)
    outputs = np.maximum(rng.lognormal(np.log(tokens) - 0.18, 0.6, rows).astype(np.int64), 2)
    intended = EPOCH_NS + number * 1_000_000
    sent = intended + rng.exponential(100_000, rows).astype(np.int64)
    relayed = (rng.random(rows) < 0.25) & (cell == "pdd")
    ttft = (rng.lognormal(5, 0.7, rows) * 1e6).astype(np.int64)
    ends = np.cumsum(outputs)
    steps = rng.normal(20e6, 1e6, ends[-1]).astype(np.int64)
    switch = outputs // 2
    steps[(ends - outputs + switch)[relayed]] += 50_000_000
    steps[ends - outputs] = 0
    walk = np.cumsum(steps)
    offsets = walk - np.repeat(walk[ends - outputs] - ttft, outputs)
    first, last = sent + ttft, sent + offsets[ends - 1]
    prompt = rng.integers(500, 60_000, rows)
    ids = text(f"{cell}-", number)
    sessions = text("s", number // TURNS)
    requests = {
        "request_id": ids,
        "trace_request": text("t", number),
        "session_id": sessions,
        "turn": number % TURNS,
        "phase": "measure",
        "intended_ns": intended,
        "sent_ns": sent,
        "first_byte_ns": first,
        "first_token_ns": first,
        "first_output_ns": first,
        "last_token_ns": last,
        "end_ns": last,
        "prompt_tokens": prompt,
        "requested_tokens": outputs,
        "output_tokens": outputs,
        "cached_tokens": (prompt * 0.9).astype(np.int64),
        "expected_cached_tokens": (prompt * 0.9).astype(np.int64),
        "token_offsets_ns": pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], ends]).astype(np.int32)), pa.array(offsets)
        ),
        "status": "ok",
        "clock_source": "kernel",
        "merged_reads": np.zeros(rows, np.int64),
        "retries": np.zeros(rows, np.int64),
        "shard": "loadgen-0",
    }
    landed = first + 500_000_000
    no = ~relayed
    router = {
        "request_id": ids,
        "session_id": sessions,
        "pipeline": pc.if_else(pa.array(relayed), "relayed", "direct"),
        "arrived_ns": sent,
        "decided_ns": sent,
        "prefill_start_ns": sent + 200_000,
        "prefill_done_ns": first - 1_000_000,
        "main_hit_tokens": (prompt * 0.9).astype(np.int64),
        "main_transfer_start_ns": first - 1_000_000,
        "main_transfer_done_ns": landed,
        "main_kv_bytes": (prompt * 200).astype(np.int64),
        "relay_tokens": pa.array(switch, mask=no),
        "handoff_start_ns": pa.array(landed, mask=no),
        "handoff_bytes": pa.array(switch * 15, mask=no),
        "extend_done_ns": pa.array(landed + 20_000_000, mask=no),
        "switch_ns": pa.array(landed + 50_000_000, mask=no),
        "switch_index": pa.array(switch, mask=no),
        "end_ns": last,
        "output_tokens": outputs,
        "outcome": "ok",
        "retries": np.zeros(rows, np.int64),
    }
    return column_table(REQUESTS, requests, rows), column_table(HANDOFFS, router, rows)


def make(run_dir: Path, requests: int, tokens: int) -> None:
    for cell in CELLS:
        rng = np.random.default_rng(sum(cell.encode()))
        shards = [Shard(run_dir, table.name, cell, 0, "s0") for table in (REQUESTS, HANDOFFS)]
        for shard in shards:
            shard.folder.mkdir(parents=True)
        schemas = [REQUESTS.arrow(), HANDOFFS.arrow()]
        writers = [
            pq.ParquetWriter(shard.parquet, schema, **parquet_options(schema))
            for shard, schema in zip(shards, schemas, strict=True)
        ]
        for start in range(0, requests // len(CELLS), ROW_GROUP):
            rows = min(ROW_GROUP, requests // len(CELLS) - start)
            for writer, part in zip(writers, block(cell, start, rows, tokens, rng), strict=True):
                writer.write_table(part, row_group_size=ROW_GROUP)
        for writer in writers:
            writer.close()
    RunInfo(
        name="size",
        state=RunState.COMPLETE,
        started_ns=EPOCH_NS,
        seed=0,
        config_toml="",
        config={},
        versions=probe_versions(Path(__file__).parent, ()),
        host=probe_host(),
        cells=tuple(CellInfo(name=cell, mode=cell, label=cell, reps=1) for cell in CELLS),
        trace=TraceInfo("size", "size"),
        slo={"ttft_ms": 500.0, "tpot_ms": 40.0},
    ).write(run_dir)


def measure(program: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak GB of a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", *program], stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in {0, 3}:
        raise SystemExit(f"failed with {child.returncode}")
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    scale = 1 if sys.platform == "darwin" else 1024
    return wall, cpu, usage.ru_maxrss * scale / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--tokens", type=int, default=64, help="mean output tokens of a request")
    parser.add_argument("--folder", type=Path, help="keep the records here, and use them if they are there")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="pddbench-size-"))
    run_dir = folder / f"size-{arguments.requests}-{arguments.tokens}"
    try:
        if not (run_dir / "run.json").exists():
            start = time.monotonic()
            make(run_dir, arguments.requests, arguments.tokens)
            print(f"made {arguments.requests:,} requests in {time.monotonic() - start:.0f} s")
        size = sum(path.stat().st_size for path in run_dir.rglob("*.parquet"))
        print(
            f"{size / 1e9:.2f} GB of Parquet; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        call = "import sys; from harness.cli import main; sys.argv[0] = 'pddbench'; main()"
        commands = {
            "compare": [call, "compare", f"{run_dir}:xdc", f"{run_dir}:pdd"],
            "report with HTML": [call, "report", str(run_dir)],
        }
        for name, program in commands.items():
            wall, cpu, peak = measure(program)
            print(f"{name:<17} {wall:6.1f} s wall  {cpu:6.1f} s CPU  {peak:5.2f} GB peak")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
