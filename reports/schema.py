"""The tables a run writes: one Parquet dataset each, `RUN/<table>/cell=<cell>/rep=<n>/<shard>.parquet`.

Every process writes only what it alone observed; rows of different tables join on `request_id`.
All `*_ns` instants are nanoseconds since the UNIX epoch as read by the writing process's monotonic
clock plus the anchor it took at start; the anchor and its error stand in the shard's file metadata.
A simulated run counts from 0. Null always means "not reported" or "did not happen", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column: Arrow type, unit ('' for none), meaning."""

    name: str
    type: pa.DataType
    unit: str
    doc: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table: who writes it, what a row is, and its columns."""

    name: str
    writer: str
    row: str
    columns: tuple[Column, ...]

    def arrow(self) -> pa.Schema:
        """Arrow schema with unit and meaning in the field metadata and the version in the schema's."""
        fields = [
            pa.field(c.name, c.type, c.nullable, metadata={"unit": c.unit, "doc": c.doc})
            for c in self.columns
        ]
        return pa.schema(
            fields, metadata={"pddbench_table": self.name, "pddbench_schema": str(SCHEMA_VERSION)}
        )


def _id(name: str, doc: str) -> Column:
    return Column(name, pa.string(), "", doc, nullable=False)


def _text(name: str, doc: str) -> Column:
    return Column(name, pa.string(), "", doc)


def _at(name: str, doc: str, *, nullable: bool = True) -> Column:
    return Column(name, pa.int64(), "ns", doc, nullable)


def _count(name: str, unit: str, doc: str, *, nullable: bool = True) -> Column:
    return Column(name, pa.int64(), unit, doc, nullable)


def _real(name: str, unit: str, doc: str) -> Column:
    return Column(name, pa.float64(), unit, doc)


REQUESTS: Final = Table(
    "requests",
    "load generator",
    "one request as the client saw it",
    (
        _id("request_id", "unique in the run; the server's records carry the same"),
        _id("trace_request", "identity of the turn in the trace: the key that pairs repetitions and cells"),
        _id("session_id", "session of the trace"),
        _count("turn", "", "index of the turn in its session, from 0", nullable=False),
        _text("tenant", "tenant or priority class named by the trace"),
        _id("phase", "'warmup' (kept, never measured) or 'measure'"),
        _at("intended_ns", "when the schedule wanted it sent", nullable=False),
        _at("sent_ns", "just before the first byte was handed to the kernel; null when never sent"),
        _count("connect_ns", "ns", "time to open the connection; null when reused"),
        _at("first_byte_ns", "first byte of the response"),
        _at("first_token_ns", "first non-empty output token"),
        _at("first_output_ns", "first non-reasoning token"),
        _at("last_token_ns", "last output token"),
        _at("end_ns", "response complete, failed or given up"),
        _count("prompt_tokens", "tokens", "prompt length sent", nullable=False),
        _count("requested_tokens", "tokens", "output length asked for", nullable=False),
        _count("output_tokens", "tokens", "output tokens received (counted by ids or usage, not by chunks)"),
        _count("cached_tokens", "tokens", "prefix hit reported by the server"),
        _count("expected_cached_tokens", "tokens", "prefix hit the trace implies with an infinite cache"),
        Column(
            "token_offsets_ns",
            pa.list_(pa.int64()),
            "ns",
            "receive time of each output token minus sent_ns; a chunk of k tokens gives k equal entries",
        ),
        _text("output_digest", "hex xxh64-style digest of the output ids: equal digests, equal tokens"),
        Column("output_ids", pa.list_(pa.int32()), "", "the output ids, when the experiment keeps them"),
        _id(
            "status",
            "'ok', 'error', 'timeout', 'cancelled' (by the client's plan) or 'unfinished' (cut by the end)",
        ),
        _text("error", "one line: what failed and where"),
        _count("http_status", "", "HTTP status; null when no response came"),
        _id("clock_source", "'kernel' (SO_TIMESTAMPNS) or 'user' for this request's receive stamps"),
        _count(
            "merged_reads", "", "reads whose kernel stamp covers more than one token event", nullable=False
        ),
        _count("retries", "", "attempts beyond the first", nullable=False),
        _id("shard", "load generator process that sent it"),
    ),
)

HANDOFFS: Final = Table(
    "handoffs",
    "router",
    "one request as the router and its policy saw it",
    (
        _id("request_id", "joins requests"),
        _id("session_id", "prompt cache key of the request"),
        _id(
            "pipeline", "'colocated', 'direct' (P-MD), 'relayed' (P-RLD-MD), 'local' (P-RLD) or 'append' (MD)"
        ),
        _text("handoff_mode", "'one_shot' or 'catch_up' as taken; null without a handoff"),
        _text("handoff_payload", "'extend_decode' or 'kv_transfer'; null without a handoff"),
        _text("prefill_worker", "worker that prefilled (the last one, after a retry)"),
        _text("relay_worker", "worker that relayed"),
        _text("main_worker", "worker that decoded in the end"),
        _at("arrived_ns", "request accepted by the router", nullable=False),
        _at("decided_ns", "pipeline decided"),
        _count("estimated_transfer_ns", "ns", "transfer time of the MD copy estimated at the decision"),
        _at("prefill_start_ns", "prefill asked of P"),
        _at("prefill_done_ns", "P holds the prompt's KV"),
        _count("prefill_cached_tokens", "tokens", "P's own prefix hit"),
        _count("prefill_computed_tokens", "tokens", "tokens P computed"),
        _count("relay_hit_tokens", "tokens", "RLD's own prefix hit (its p0)"),
        _at("relay_transfer_start_ns", "KV to RLD began"),
        _at("relay_transfer_done_ns", "RLD holds the prompt's KV"),
        _count("relay_kv_bytes", "bytes", "KV payload sent to RLD"),
        _count("main_hit_tokens", "tokens", "MD's own prefix hit (its p0)"),
        _at("main_transfer_start_ns", "KV to MD began"),
        _at("main_transfer_done_ns", "MD holds the prompt's KV"),
        _count("main_kv_bytes", "bytes", "KV payload sent to MD across the WAN"),
        _count(
            "saved_kv_bytes",
            "bytes",
            "KV payload not sent because the odd-traffic filter stopped the transfer",
        ),
        _at("relay_first_token_ns", "first eager token from RLD"),
        _count("relay_tokens", "tokens", "output tokens made by RLD that reached the client"),
        _at("handoff_start_ns", "the handoff was decided (MD's KV had landed)"),
        _count("handoff_bytes", "bytes", "payload of the handoff: token ids, or RLD's incremental KV"),
        _count("extend_tokens", "tokens", "ids MD recomputed"),
        _count("extend_batches", "", "batches they went in"),
        _at("extend_done_ns", "MD reported the last extend step done"),
        _count("copy_ns", "ns", "device copy of a kv_transfer handoff"),
        _at("switch_ns", "first token from MD forwarded: the stream changed hands"),
        _count("switch_index", "", "index of that token"),
        _at("main_first_token_ns", "first token from MD"),
        _count("cache_gap_tokens", "tokens", "by how much MD's cache trails P's for this session afterwards"),
        _at("end_ns", "stream ended for the client"),
        _count("output_tokens", "tokens", "tokens forwarded", nullable=False),
        _id("outcome", "'ok', 'failed' or 'cancelled'"),
        _text("error", "one line"),
        _count("retries", "", "pieces of work started again after a failure", nullable=False),
    ),
)

DECISIONS: Final = Table(
    "decisions",
    "router",
    "one event given to the policy and the actions it answered; replaying the events gives the same actions",
    (
        _count("seq", "", "order of handling, from 0", nullable=False),
        _at("now_ns", "the time the policy was told", nullable=False),
        _text("request_id", "request the event belongs to, if to one"),
        _id("event", "JSON, tagged by type"),
        _id("actions", "JSON array, tagged by type"),
    ),
)

LINK_SAMPLES: Final = Table(
    "link_samples",
    "runner",
    "state of one direction of the WAN at one instant",
    (
        _at("t_ns", "sampling instant", nullable=False),
        _id("direction", "'a_to_b' or 'b_to_a'"),
        _id("driver", "'netem', 'uml', 'relay' or 'sim'"),
        _id("profile", "name of the profile in force"),
        _count("sent_bytes", "bytes", "carried since the run began"),
        _count("sent_packets", "packets", "carried since the run began"),
        _count(
            "dropped_packets", "packets", "dropped by the qdisc (loss and queue limit) since the run began"
        ),
        _count("queue_dropped_packets", "packets", "of these, by the full queue of the line"),
        _count("overlimits", "packets", "qdisc overlimits since the run began"),
        _count("backlog_bytes", "bytes", "queued now"),
        _count("rate_bit_s", "bit/s", "configured rate; null when unlimited"),
        _count("rtt_ns", "ns", "round trip of the in-band probe; null when lost"),
        _count("tcp_rtt_ns", "ns", "smoothed RTT of the KV connections (tcp_info), median"),
        _count("retransmits", "segments", "retransmitted on the KV connections since the run began"),
    ),
)

WORKER_SAMPLES: Final = Table(
    "worker_samples",
    "router (told by each worker)",
    "counters of one worker at one instant",
    (
        _at("t_ns", "sampling instant", nullable=False),
        _id("worker", "worker name"),
        _id("role", "'prefill', 'relay_decode', 'main_decode' or 'colocated'"),
        _id("cluster", "'A' or 'B'"),
        _count("running", "sequences", "sequences being computed"),
        _count("waiting", "sequences", "sequences queued"),
        _count("held_tokens", "tokens", "tokens of KV held, in use or cached"),
        _count("capacity_tokens", "tokens", "room for KV"),
        _count("computed_tokens", "tokens", "prompt tokens computed since start"),
        _count("cached_tokens", "tokens", "prompt tokens taken from the worker's own cache since start"),
        _count("external_tokens", "tokens", "prompt tokens imported as KV since start"),
        _count("decoded_tokens", "tokens", "output tokens sampled since start"),
        _count("evicted_tokens", "tokens", "cached tokens evicted since start"),
        _count("steps", "", "engine steps since start"),
        _count("busy_ns", "ns", "time inside engine steps since start"),
        _count("cpu_ns", "ns", "CPU time of the process since start"),
        _count("rss_bytes", "bytes", "resident memory"),
    ),
)

FAULTS: Final = Table(
    "faults",
    "runner",
    "one injected fault",
    (
        _id("fault", "name in the experiment"),
        _id("kind", "kind of fault"),
        _id("target", "'link', a direction or a worker"),
        _id("parameters", "JSON"),
        _at("planned_start_ns", "when it should have begun", nullable=False),
        _at("applied_ns", "when it took effect"),
        _at("planned_end_ns", "when it should have ended"),
        _at("cleared_ns", "when it was undone"),
        _text("error", "one line"),
    ),
)

INSTRUMENT_SAMPLES: Final = Table(
    "instrument_samples",
    "load generator",
    "the instrument's view of itself at one instant",
    (
        _at("t_ns", "sampling instant", nullable=False),
        _id("shard", "load generator process"),
        _count("loop_lag_ns", "ns", "how late a due callback ran, worst since the last sample"),
        _count("lateness_ns", "ns", "how late requests were sent, worst since the last sample"),
        _real("cpu_share", "1", "CPU time used ÷ wall time since the last sample (1 = one core)"),
        _count("in_flight", "requests", "requests on the wire"),
        _count("live_sessions", "sessions", "sessions started and not ended"),
        _count("events", "", "SSE events since the start"),
        _count("merged_reads", "", "merged reads since the start"),
        _count("rss_bytes", "bytes", "resident memory"),
    ),
)

SERVER_METRICS: Final = Table(
    "server_metrics",
    "load generator",
    "one Prometheus sample scraped from the target",
    (
        _at("t_ns", "scrape instant", nullable=False),
        _id("endpoint", "scraped address"),
        _id("metric", "metric name"),
        _id("labels", "JSON"),
        Column("value", pa.float64(), "", "sample value", nullable=False),
    ),
)

TABLES: Final[dict[str, Table]] = {
    t.name: t
    for t in (
        REQUESTS,
        HANDOFFS,
        DECISIONS,
        LINK_SAMPLES,
        WORKER_SAMPLES,
        FAULTS,
        INSTRUMENT_SAMPLES,
        SERVER_METRICS,
    )
}
