"""A small good file of every format, as bytes."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from workloads.formats import open_trace
from workloads.writers import native

if TYPE_CHECKING:
    from pathlib import Path


def lines(*rows: dict) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def weka() -> bytes:
    def request(t, tokens, ids, **more):
        return {"t": t, "type": "n", "in": tokens, "out": 20, "hash_ids": ids, **more}

    head = [1, 2]
    document = {
        "id": "trace_a",
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 100,
        "system_tokens": 28,
        "requests": [
            request(0.0, 130, head, api_time=5.0, think_time=0.0, input_types=["text"]),
            request(10.0, 200, [*head, 3], api_time=5.0, think_time=5.0, input_types=["tool_result"]),
            {
                "t": 20.0,
                "type": "subagent",
                "agent_id": "agent_001",
                "requests": [
                    request(0.0, 64, [9], api_time=2.0, think_time=0.0),
                    request(4.0, 130, [9, 10], api_time=2.0, think_time=2.0),
                ],
            },
            {
                "t": 21.0,
                "type": "subagent",
                "agent_id": "agent_002",
                "requests": [request(0.0, 70, [11], api_time=2.0, think_time=0.0)],
            },
            request(30.0, 260, [*head, 3, 4], api_time=1.0, think_time=15.0, input_types=["tool_result"]),
        ],
    }
    return json.dumps(document).encode()


def weka_tree() -> bytes:
    columns = (
        "trace_id,dup_of_fork,seq,agent,t_s,model,in_tokens,out_tokens,n_blocks64,parent_seq,shared_blocks64,"
        "input_kind,stop,api_time_s,think_time_s,ttft_s,tool_tokens,system_tokens"
    )
    rows = (
        "a,,0,main,0.0,m,130,20,2,-1,0,text,tool_use,5.0,0.0,,64,0",
        "a,,1,main,10.0,m,200,20,3,0,2,tool_result,tool_use,5.0,5.0,,64,0",
        "a,,2,agent_001,20.0,m,64,20,1,-1,0,text,end_turn,2.0,0.0,,64,0",
        "a,,3,main,30.0,m,260,20,4,1,3,tool_result,tool_use,1.0,15.0,,64,0",
        "b,1.0,0,main,0.0,m,130,20,2,-1,0,text,tool_use,5.0,0.0,,64,0",
    )
    return "\n".join((columns, *rows, "")).encode()


def mooncake() -> bytes:
    return lines(
        {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 500, "input_length": 1500, "output_length": 7, "hash_ids": [1, 3, 4]},
        {"timestamp": 900, "input_length": 512, "output_length": 9, "hash_ids": [1]},
    )


def bailian() -> bytes:
    def row(chat, parent, at, tokens, ids):
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": at,
            "input_length": tokens,
            "output_length": 8,
            "type": "text",
            "turn": 1,
            "hash_ids": ids,
        }

    return lines(
        row(10, -1, 0.0, 32, [1, 2]),
        row(11, -1, 1.0, 20, [3, 4]),
        row(12, 10, 2.5, 60, [1, 2, 5, 6]),
        row(13, 10, 3.0, 48, [1, 2, 7]),
    )


def tracelab() -> bytes:
    return (
        b"session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n"
        b"0,0,0,0,512,64,100\n0,0,1,576,128,64,100\n1,200,0,50,400,48,80\n0,0,2,700,128,64,0\n"
    )


def azure() -> bytes:
    return (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
        b"2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )


def aiperf() -> bytes:
    def record(session, turn, start, end, **more):
        return {
            "metadata": {
                "session_num": 0,
                "x_correlation_id": session,
                "turn_index": turn,
                "request_start_ns": start,
                "request_end_ns": end,
                "benchmark_phase": "profiling",
            }
            | more,
            "metrics": {
                "input_sequence_length": {"value": 550, "unit": "tokens"},
                "output_sequence_length": {"value": 9, "unit": "tokens"},
                "inter_chunk_latency": {"value": [4.8, 5.3], "unit": "ms"},
            },
            "error": None,
        }

    return lines(
        record("u1", 0, 1_000_000_000, 1_300_000_000),
        record("u2", 0, 1_100_000_000, 1_200_000_000),
        record("u1", 1, 2_000_000_000, 2_300_000_000),
        record("u3", 0, 500, 600, benchmark_phase="warmup"),
    )


def chat() -> bytes:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": [{"type": "text", "text": "And of Spain?"}]},
        {"role": "assistant", "content": "Madrid."},
        {"role": "user", "content": "Thanks"},
    ]
    return lines({"id": "c1", "messages": talk}, {"messages": talk[:3]})


def sharegpt() -> bytes:
    talk = [{"from": "human", "value": "Hello there"}, {"from": "gpt", "value": "Hi! How can I help?"}]
    return json.dumps(
        [{"id": "x_0", "conversations": talk}, {"id": "x_1", "conversations": talk * 2}]
    ).encode()


def otel() -> bytes:
    def span(name, start, end, messages, answer):
        return {
            "trace_id": "t",
            "span_id": name,
            "start_time": f"2026-02-25T10:00:0{start}",
            "end_time": f"2026-02-25T10:00:0{end}",
            "attributes": {
                "session.id": "s",
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json.dumps(messages),
                "gen_ai.output.text": answer,
            },
        }

    ask = [{"role": "user", "content": "List three."}]
    both = [*ask, {"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}, *ask]
    return json.dumps(
        {
            "spans": [
                span("a", "0.0", "2.0", ask, "one"),
                span("b", "1.0", "3.0", ask, "two"),
                span("c", "4.0", "5.0", both, "three"),
            ]
        }
    ).encode()


def otlp() -> bytes:
    def span(name, start, end):
        values = {"gen_ai.operation.name": "chat", "session.id": "s"}
        attributes = [{"key": k, "value": {"stringValue": v}} for k, v in values.items()]
        for key, count in (("input", "120"), ("output", "12")):
            attributes.append({"key": f"gen_ai.usage.{key}_tokens", "value": {"intValue": count}})
        return {
            "traceId": "t",
            "spanId": name,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(end),
            "attributes": attributes,
        }

    spans = [span("a", 10**9, 2 * 10**9), span("b", 10**9, 3 * 10**9), span("c", 4 * 10**9, 5 * 10**9)]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def baseten(**changes: pa.Array) -> bytes:
    columns = {
        "timestamp_start_unix_ms": pa.array(
            [1_700_000_000_000, 1_700_000_000_500, 1_700_000_001_000], pa.int64()
        ),
        "input_tokens": pa.array([32, 40, 64], pa.int64()),
        "output_tokens": pa.array([5, 6, 7], pa.int64()),
        "total_hashes": pa.array([[1, 2], [1, 2**64 - 1, 3], [1, 2, 5, 6]], pa.list_(pa.uint64())),
        "provided_session_id": pa.array(["s", None, "s"], pa.string()),
        "block_size": pa.array([16, 16, 16], pa.int64()),
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns | changes), out)
    return out.getvalue()


def native_file(path: Path) -> bytes:
    native.write(open_trace("preset:small-engine", seed=1, sessions=3), path)
    return path.read_bytes()


# Format → file name and content. The native format's is made by its writer.
SAMPLES = {
    "weka": ("trace_a.json", weka),
    "weka-tree": ("tree.csv", weka_tree),
    "mooncake": ("m.jsonl", mooncake),
    "bailian": ("b.jsonl", bailian),
    "tracelab": ("t.csv", tracelab),
    "baseten": ("p.parquet", baseten),
    "otel": ("o.json", otel),
    "chat": ("c.jsonl", chat),
    "azure": ("a.csv", azure),
    "aiperf": ("profile_export.jsonl", aiperf),
}
