"""Runs of known truth: every figure of a report can be checked against how the run was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reports.run import Run
from reports.runinfo import (
    CellInfo,
    ClockAnchor,
    EngineInfo,
    HostInfo,
    LinkInfo,
    RepInfo,
    RunInfo,
    RunState,
    TraceInfo,
    VersionInfo,
)
from reports.schema import (
    DECISIONS,
    FAULTS,
    HANDOFFS,
    INSTRUMENT_SAMPLES,
    LINK_SAMPLES,
    REQUESTS,
    WORKER_SAMPLES,
)
from reports.writer import TableWriter

EPOCH_NS = 1_760_000_000_000_000_000
RATE_BIT_S = 200_000_000


@dataclass(frozen=True)
class FakeFault:
    """Between these seconds of a repetition requests are `slow` times slower and fail at `error_rate`."""

    name: str
    start_s: float
    end_s: float
    slow: float = 5.0
    error_rate: float = 0.0


@dataclass(frozen=True)
class FakeRun:
    """`slower`: factor on TTFT by cell. `rep_noise`: log-sd of a factor on whole repetitions."""

    cells: tuple[str, ...] = ("xdc", "pdd")
    sessions: int = 40
    turns: int = 8
    reps: int = 2
    seed: int = 0
    trace_seed: int = 7
    tokens: int = 60
    slower: Mapping[str, float] = field(default_factory=dict)
    rep_noise: float = 0.0
    error_rate: Mapping[str, float] = field(default_factory=dict)
    faults: tuple[FakeFault, ...] = ()
    slo: Mapping[str, float] = field(default_factory=lambda: {"ttft_ms": 400.0, "tpot_ms": 40.0})
    state: RunState = RunState.COMPLETE
    host_class: str = "fake-cpu/2c/8g/linux"
    trace_digest: str = "trace-7"
    started_ns: int = EPOCH_NS
    commit: str = "c0ffee0000000000000000000000000000000000"
    arrival_s: float = 1.0

    def write(self, path: Path) -> Run:
        order = self._order()
        rep_s = self.sessions * self.arrival_s + self.turns * 4.0
        reps = []
        for place, (cell, rep) in enumerate(order):
            start_ns = self.started_ns + round(place * (rep_s + 5) * 1e9)
            end_ns = self._write_rep(path, cell, rep, start_ns)
            reps.append(
                RepInfo(
                    cell=cell,
                    rep=rep,
                    order=place,
                    started_ns=start_ns,
                    ended_ns=end_ns,
                )
            )
        self.info(reps).write(path)
        return Run.open(path)

    def info(self, reps: list[RepInfo]) -> RunInfo:
        link = LinkInfo(
            driver="relay",
            modelled=True,
            profile="cross-country",
            kernel="6.1.0",
            a_to_b_rate_bit_s=RATE_BIT_S,
            b_to_a_rate_bit_s=RATE_BIT_S,
            a_to_b_delay_ms=30.0,
            b_to_a_delay_ms=30.0,
        )
        engines = tuple(
            EngineInfo(
                worker=name,
                role=role,
                cluster=cluster,
                engine="llamacpp",
                model="tiny-f32",
                model_digest="ab12",
            )
            for name, role, cluster in (
                ("p0", "prefill", "A"),
                ("rld0", "relay_decode", "A"),
                ("md0", "main_decode", "B"),
            )
        )
        labels = {"xdc": "Naive cross-DC (P-MD)", "pdd": "PDD (P-RLD-MD, one-shot)"}
        return RunInfo(
            name="fake",
            state=self.state,
            started_ns=self.started_ns,
            ended_ns=max((r.ended_ns or 0 for r in reps), default=None),
            seed=self.seed,
            config_toml='name = "fake"\n\n[load]\nrate = 1.0\n',
            config={"name": "fake", "load": {"rate": 1.0}},
            versions=VersionInfo(
                pddbench="0.1.0",
                python="3.11.7",
                packages={"pyarrow": "26.0.1"},
                git_commit=self.commit,
                git_dirty=False,
            ),
            host=HostInfo(
                host_class=self.host_class,
                cpu_model="Fake CPU",
                cores=2,
                memory_bytes=8 << 30,
                kernel="6.1.0",
                platform="linux",
                hostname_hash="0123456789ab",
            ),
            cells=tuple(
                CellInfo(
                    name=cell,
                    mode=cell,
                    label=labels.get(cell, cell),
                    reps=self.reps,
                    link=link,
                    engines=engines,
                    parameters={"mode": cell},
                    cost_per_hour=88.0 if cell == "xdc" else 83.0,
                )
                for cell in self.cells
            ),
            reps=tuple(reps),
            trace=TraceInfo(
                name="synthetic",
                digest=self.trace_digest,
                requests=self.sessions * self.turns,
                sessions=self.sessions,
            ),
            token_scale=1 / 16,
            slo=dict(self.slo),
            clocks=(ClockAnchor("router", 1, 40), ClockAnchor("loadgen", 2, 60)),
        )

    def _order(self) -> list[tuple[str, int]]:
        """A B B A A B …"""
        order = []
        for rep in range(self.reps):
            cells = self.cells if rep % 2 == 0 else tuple(reversed(self.cells))
            order += [(cell, rep) for cell in cells]
        return order

    def _write_rep(self, path: Path, cell: str, rep: int, start_ns: int) -> int:
        trace = np.random.default_rng(self.trace_seed)
        cell_seed = sum(cell.encode()) * 100 + rep
        rng = np.random.default_rng((self.seed, cell_seed))
        whole = self.slower.get(cell, 1.0) * np.exp(self.rep_noise * rng.normal())
        meta = {"clock_offset_ns": "1", "clock_error_ns": "40"}

        def table(kind: object, shard: str) -> TableWriter:
            return TableWriter(path, kind, cell=cell, rep=rep, shard=shard, metadata=meta, flush_s=1e9)  # type: ignore[arg-type]

        relayed_mode = cell != "xdc"
        last_ns = start_ns
        sent_bytes = 0.0
        carried: list[tuple[int, float]] = []
        with (
            table(REQUESTS, "loadgen-0") as requests,
            table(HANDOFFS, "router") as handoffs,
            table(DECISIONS, "router") as decisions,
        ):
            seq = 0
            for session in range(self.sessions):
                pace = np.exp(0.4 * trace.normal())
                at_s = session * self.arrival_s * 0.9 + 0.1
                history = int(trace.integers(300, 900))
                for turn in range(self.turns):
                    cold = turn == 0 or trace.random() < 0.07
                    new = int(trace.integers(300, 900)) if cold else int(trace.integers(5, 60))
                    outputs = max(1, int(trace.lognormal(np.log(self.tokens), 0.6)))
                    think_s = float(trace.exponential(1.5))
                    prompt = history + new
                    cached = 0 if turn == 0 else history if not cold else history // 4
                    fault = next((f for f in self.faults if f.start_s <= at_s < f.end_s), None)
                    slow = whole * (fault.slow if fault else 1.0)
                    jitter = np.exp(0.1 * rng.normal())
                    miss = prompt - cached
                    prefill_s = (0.02 + miss * 0.00012) * jitter * slow
                    kv_bytes = miss * 2048
                    wan_s = 0.06 + kv_bytes * 8 / RATE_BIT_S * 6 * slow * pace * np.exp(0.25 * rng.normal())
                    relayed = relayed_mode and cold
                    ttft_s = prefill_s + (0.004 * slow if relayed else wan_s)
                    failed = rng.random() < (fault.error_rate if fault else self.error_rate.get(cell, 0.0))
                    intended = start_ns + round(at_s * 1e9)
                    sent = intended + round(rng.exponential(0.0001) * 1e9)
                    steps = np.maximum(rng.normal(0.02, 0.001, outputs), 0.001)
                    steps[0] = ttft_s
                    switch = None
                    if relayed:
                        switch = int(np.ceil(wan_s / 0.02)) + 1
                        if switch < outputs:
                            steps[switch] = 0.07 + 0.004 * rng.normal()
                        else:
                            switch = None
                    offsets = np.cumsum(np.round(steps * 1e9).astype(np.int64))
                    end = sent + (int(offsets[-1]) if not failed else 30_000_000)
                    last_ns = max(last_ns, end)
                    request_id = f"{cell}-{rep}-{session}-{turn}"
                    requests.write(
                        {
                            "request_id": request_id,
                            "trace_request": f"s{session}/{turn}",
                            "session_id": f"s{session}",
                            "turn": turn,
                            "tenant": "gold" if session % 3 == 0 else "free",
                            "phase": "warmup" if session == 0 and turn == 0 else "measure",
                            "intended_ns": intended,
                            "sent_ns": sent,
                            "first_byte_ns": None if failed else sent + int(offsets[0]),
                            "first_token_ns": None if failed else sent + int(offsets[0]),
                            "first_output_ns": None if failed else sent + int(offsets[0]),
                            "last_token_ns": None if failed else sent + int(offsets[-1]),
                            "end_ns": end,
                            "prompt_tokens": prompt,
                            "requested_tokens": outputs,
                            "output_tokens": None if failed else outputs,
                            "cached_tokens": None if failed else cached,
                            "expected_cached_tokens": cached,
                            "token_offsets_ns": None if failed else offsets,
                            "output_digest": None if failed else f"{hash((session, turn)) & 0xFFFF:016x}",
                            "status": "error" if failed else "ok",
                            "error": "POST /v1/completions: connection reset" if failed else None,
                            "http_status": None if failed else 200,
                            "clock_source": "kernel",
                            "merged_reads": 0,
                            "retries": 0,
                            "shard": "loadgen-0",
                        }
                    )
                    prefill_done = sent + round(prefill_s * 1e9)
                    landed = prefill_done + round(wan_s * 1e9)
                    switch_ns = None if switch is None else sent + int(offsets[switch])
                    handoffs.write(
                        {
                            "request_id": request_id,
                            "session_id": f"s{session}",
                            "pipeline": "relayed" if relayed else "direct",
                            "handoff_mode": "one_shot" if switch else None,
                            "handoff_payload": "extend_decode" if switch else None,
                            "prefill_worker": "p0",
                            "relay_worker": "rld0" if relayed else None,
                            "main_worker": "md0",
                            "arrived_ns": sent + 200_000,
                            "decided_ns": sent + 250_000,
                            "estimated_transfer_ns": round(wan_s * 0.9e9),
                            "prefill_start_ns": sent + 300_000,
                            "prefill_done_ns": prefill_done,
                            "prefill_cached_tokens": cached,
                            "prefill_computed_tokens": miss,
                            "relay_transfer_start_ns": prefill_done if relayed else None,
                            "relay_transfer_done_ns": prefill_done + 4_000_000 if relayed else None,
                            "relay_kv_bytes": kv_bytes if relayed else None,
                            "relay_first_token_ns": sent + int(offsets[0]) if relayed else None,
                            "main_hit_tokens": cached,
                            "main_transfer_start_ns": prefill_done,
                            "main_transfer_done_ns": landed,
                            "main_kv_bytes": kv_bytes,
                            "relay_tokens": (switch or outputs) if relayed and not failed else None,
                            "handoff_start_ns": landed if switch else None,
                            "handoff_bytes": 15 * switch if switch else None,
                            "extend_tokens": switch,
                            "extend_batches": 1 if switch else None,
                            "extend_done_ns": None if switch_ns is None else switch_ns - 21_000_000,
                            "switch_ns": switch_ns,
                            "switch_index": switch,
                            "main_first_token_ns": switch_ns if relayed else sent + int(offsets[0]),
                            "cache_gap_tokens": 0,
                            "end_ns": end,
                            "output_tokens": 0 if failed else outputs,
                            "outcome": "failed" if failed else "ok",
                            "retries": 0,
                        }
                    )
                    for event, actions in (
                        ({"type": "arrived", "prompt_tokens": prompt}, [{"type": "prefill", "worker": "p0"}]),
                        (
                            {"type": "prefilled"},
                            [{"type": "relay" if relayed else "transfer", "worker": "md0"}],
                        ),
                    ):
                        decisions.write(
                            {
                                "seq": seq,
                                "now_ns": sent + 250_000 + seq,
                                "request_id": request_id,
                                "event": json.dumps(event),
                                "actions": json.dumps(actions),
                            }
                        )
                        seq += 1
                    carried.append((landed, kv_bytes))
                    at_s += (end - sent) / 1e9 + think_s
                    history = prompt + outputs
        carried.sort()
        with (
            table(LINK_SAMPLES, "runner") as link,
            table(WORKER_SAMPLES, "router") as workers,
            table(INSTRUMENT_SAMPLES, "loadgen-0") as instrument,
        ):
            place = 0
            for t_ns in range(start_ns, last_ns + 1_000_000_000, 1_000_000_000):
                while place < len(carried) and carried[place][0] <= t_ns:
                    sent_bytes += carried[place][1]
                    place += 1
                second = (t_ns - start_ns) / 1e9
                rate = RATE_BIT_S
                if any(f.start_s <= second < f.end_s for f in self.faults):
                    rate //= 10
                for direction, share in (("a_to_b", 1.0), ("b_to_a", 0.01)):
                    link.write(
                        {
                            "t_ns": t_ns,
                            "direction": direction,
                            "driver": "relay",
                            "profile": "cross-country",
                            "sent_bytes": round(sent_bytes * share * 1.02),
                            "sent_packets": round(sent_bytes * share / 1400),
                            "dropped_packets": 0,
                            "backlog_bytes": 200_000 if rate < RATE_BIT_S else 0,
                            "rate_bit_s": rate,
                            "rtt_ns": 60_400_000,
                        }
                    )
                workers.write(
                    {
                        "t_ns": t_ns,
                        "worker": "md0",
                        "role": "main_decode",
                        "cluster": "B",
                        "running": 3,
                        "waiting": 0,
                    }
                )
                instrument.write(
                    {"t_ns": t_ns, "shard": "loadgen-0", "loop_lag_ns": 900_000, "lateness_ns": 400_000}
                )
        if self.faults:
            with table(FAULTS, "runner") as out:
                for fault in self.faults:
                    out.write(
                        {
                            "fault": fault.name,
                            "kind": "bandwidth_collapse",
                            "target": "link",
                            "parameters": json.dumps({"rate_mbit": 20}),
                            "planned_start_ns": start_ns + round(fault.start_s * 1e9),
                            "applied_ns": start_ns + round(fault.start_s * 1e9) + 50_000_000,
                            "planned_end_ns": start_ns + round(fault.end_s * 1e9),
                            "cleared_ns": start_ns + round(fault.end_s * 1e9) + 50_000_000,
                        }
                    )
        return last_ns
