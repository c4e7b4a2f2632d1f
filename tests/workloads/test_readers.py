"""Every format is told apart and read for what it says."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from tests.workloads import samples
from tests.workloads.prompts import TRACES, needs_traces, paths
from workloads.caches import infinite_hits
from workloads.errors import TraceError
from workloads.formats import READERS, detect, open_trace
from workloads.readers.options import ReadOptions
from workloads.trace import Trigger


@pytest.fixture
def read(tmp_path):
    def reading(content: bytes, name: str, **given):
        path = tmp_path / name
        path.write_bytes(content)
        return open_trace(path, **given)

    return reading


def after(trace):
    t = trace.turns
    return [t.after[t.after_start[i] : t.after_start[i + 1]].tolist() for i in range(len(t))]


def seconds(column):
    return (np.asarray(column) / 1e9).tolist()


def test_every_reader_has_a_sample():
    assert {*samples.SAMPLES, "native"} == set(READERS)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_format_is_told_by_the_first_bytes(name, tmp_path):
    file, make = samples.SAMPLES[name]
    (tmp_path / file).write_bytes(make())
    assert detect(tmp_path / file) == name
    assert detect(tmp_path) == name


@pytest.mark.parametrize(
    "name", [n for n, (file, _) in samples.SAMPLES.items() if not file.endswith("parquet")]
)
@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda b: zstandard.ZstdCompressor().compress(b), lambda b: b"\xef\xbb\xbf" + b]
)
def test_compression_and_byte_order_marks_change_nothing(name, pack, read):
    file, make = samples.SAMPLES[name]
    plain, packed = read(make(), file), read(pack(make()), file)
    assert paths(plain) == paths(packed)
    np.testing.assert_array_equal(plain.turns.delay_ns, packed.turns.delay_ns)


@pytest.mark.parametrize("name", ["weka-tree", "tracelab", "azure", "mooncake", "bailian", "chat"])
def test_windows_line_ends_change_nothing(name, read):
    file, make = samples.SAMPLES[name]
    assert paths(read(make(), file)) == paths(read(make().replace(b"\n", b"\r\n"), file))


def test_weka_subagents_run_beside_each_other_and_the_parent_waits(read):
    trace = read(samples.weka(), "a.json")
    assert after(trace) == [[], [0], [1], [2], [1], [1, 3, 4]]
    assert [trace.agents[a] for a in trace.turns.agent] == [
        "main",
        "main",
        "agent_001",
        "agent_001",
        "agent_002",
        "main",
    ]
    # Relative times of nested requests count from their subagent; waits after several from the last end.
    assert seconds(trace.turns.arrival_ns) == [0, 10, 20, 24, 21, 30]
    assert seconds(trace.turns.delay_ns) == [0, 5, 5, 2, 6, 4]
    assert trace.turns.base.tolist() == [-1, 0, -1, 2, -1, 1]
    assert trace.turns.shared_tokens.tolist()[0] == 128


def test_weka_absolute_nested_times_are_the_same_trace(read):
    document = json.loads(samples.weka())
    for item in document["requests"]:
        for nested in item.get("requests", ()):
            nested["t"] += item["t"]
    absolute = read(json.dumps(document).encode(), "b.json")
    np.testing.assert_array_equal(absolute.turns.arrival_ns, read(samples.weka(), "a.json").turns.arrival_ns)


def test_sessions_and_turns_can_be_looked_at_one_by_one(read):
    trace = read(samples.weka(), "a.json")
    (session,) = trace.sessions()
    assert (session.session_id, session.start_ns, len(session.turns)) == ("trace_a", 0, 6)
    turn = session.turns[5]
    assert (turn.turn, turn.after, turn.base, turn.agent) == (5, (1, 3, 4), 1, "main")
    assert (turn.input_tokens, turn.new_tokens, turn.output_tokens) == (260, 260 - 192, 20)
    assert turn.block_ids.tolist() == [1, 2, 3, 4]
    assert set(turn.scopes) == {"trace_a"}
    assert (session.turns[0].base, session.turns[0].tenant, turn.trigger) == (None, None, Trigger.TOOL)


def test_a_subagent_still_running_is_waited_for_later(read):
    document = json.loads(samples.weka())
    document["requests"][3]["requests"][0]["api_time"] = 60.0
    document["requests"].append(
        {"t": 90.0, "type": "n", "in": 300, "out": 1, "hash_ids": [1, 2, 3, 4], "think_time": 1.0}
    )
    assert after(read(json.dumps(document).encode(), "a.json"))[-2:] == [[1, 3], [4, 5]]


def test_weka_ids_are_the_sessions_own(tmp_path):
    for name in ("trace_a", "trace_b"):
        document = json.loads(samples.weka()) | {"id": name}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    trace = open_trace(tmp_path)
    assert len(trace.session_ids) == 2
    first_of_b = int(trace.turn_start[1])
    assert infinite_hits(trace)[first_of_b] == 0


def test_weka_tree_leaves_marked_forks_out_and_says_so(read):
    trace = read(samples.weka_tree(), "t.csv")
    assert trace.session_ids == ("a",)
    assert infinite_hits(trace).tolist() == [0, 2, 0, 3]
    assert after(trace) == [[], [0], [1], [1, 2]]
    assert any("1 requests left out" in line for line in trace.header.warnings)
    kept = read(samples.weka_tree(), "t.csv", options=ReadOptions(keep_forks=True))
    assert kept.session_ids == ("a", "b")


def test_mooncake_rows_stand_alone_in_milliseconds(read):
    trace = read(samples.mooncake(), "m.jsonl")
    assert trace.header.block_size == 512
    assert not trace.header.sessions_known
    assert seconds(trace.turns.arrival_ns) == [0, 0.5, 0.9]
    # The whole prompt of 512 tokens is the first block of the others.
    assert trace.hit_tokens(infinite_hits(trace)).tolist() == [0, 512, 512]


def test_mooncake_delta_rows_grow_by_what_they_add(read):
    rows = samples.lines(
        {"timestamp": 0, "input_length": 100, "output_length": 10, "hash_ids": [], "session_id": "s"},
        {
            "timestamp": 9,
            "input_length": 30,
            "output_length": 10,
            "hash_ids": [],
            "session_id": "s",
            "delay": 5,
        },
    )
    trace = read(rows, "m.jsonl", options=ReadOptions(rows="delta"))
    assert trace.turns.input_tokens.tolist() == [100, 140]
    assert trace.hit_tokens(infinite_hits(trace)).tolist() == [0, 100]
    assert seconds(trace.turns.delay_ns) == [0, 0.005]


def test_bailian_chats_are_trees(read):
    trace = read(samples.bailian(), "b.jsonl")
    assert trace.session_ids == ("chat 10", "chat 11")
    assert after(trace) == [[], [0], [0], []]
    assert trace.turns.base.tolist() == [-1, 0, 0, -1]
    assert seconds(trace.turns.delay_ns) == [0, 2.5, 3.0, 0]
    assert trace.hit_tokens(infinite_hits(trace)).tolist() == [0, 32, 32, 0]


def test_a_bailian_chat_of_an_unknown_parent_is_a_root_and_counted(read):
    row = json.loads(samples.bailian().splitlines()[2]) | {"parent_chat_id": 999}
    trace = read(samples.lines(row), "b.jsonl")
    assert after(trace) == [[]]
    assert any("1 chats continue one that the trace does not hold" in line for line in trace.header.warnings)


def test_tracelab_prefixes_are_exact_to_the_token(read):
    trace = read(samples.tracelab(), "t.csv")
    assert trace.session_ids == ("0", "1")
    assert trace.turns.input_tokens.tolist() == [512, 704, 828, 450]
    # The answer before is in the prompt, and in no earlier prompt.
    assert infinite_hits(trace).tolist() == [0, 512, 700, 0]
    assert seconds(trace.turns.delay_ns) == [0, 0.1, 0.1, 0]
    assert seconds(trace.session_start_ns) == [0, 0.2]
    assert trace.turns.shared_tokens.tolist() == [0, 0, 0, 50]


def test_baseten_sessions_and_block_size_are_the_files(read):
    trace = read(samples.baseten(), "p.parquet")
    assert trace.header.block_size == 16
    assert trace.session_ids == ("s", "r1")
    assert seconds(trace.turns.arrival_ns) == [0, 1, 0.5]
    assert trace.hit_tokens(infinite_hits(trace)).tolist() == [0, 32, 16]


def test_baseten_hashes_may_be_hexadecimal_text(read):
    hashes = pa.array([["1", "2"], ["1", "f" * 16, "3"], ["1", "2", "5", "6"]], pa.list_(pa.string()))
    text, numbers = (
        read(samples.baseten(total_hashes=hashes), "q.parquet"),
        read(samples.baseten(), "p.parquet"),
    )
    assert paths(text) == paths(numbers)


def test_otel_calls_wait_for_the_answers_they_quote(read):
    trace = read(samples.otel(), "o.json")
    assert after(trace) == [[], [], [0, 1]]
    assert seconds(trace.turns.delay_ns) == [0, 1, 1]
    assert trace.turns.base.tolist() == [-1, -1, 1]


def test_otlp_without_messages_waits_by_time_and_knows_no_prefix(read):
    trace = read(samples.otlp(), "o.json")
    assert after(trace) == [[], [], [0, 1]]
    assert not trace.header.prefix_known
    assert trace.turns.input_tokens.tolist() == [120] * 3


@needs_traces
def test_the_real_spans_fan_in_and_chain():
    fan_in, chain = (
        open_trace(TRACES / "otel" / f"{n}.json") for n in ("fan_in_dependencies", "simple_chain")
    )
    assert after(fan_in) == [[], [], [], [0, 1, 2]]
    assert after(chain) == [[], [0], [1]]
    assert seconds(fan_in.turns.delay_ns) == [0, 2.5, 3.0, 1.0]


def test_every_answer_of_a_chat_is_a_turn(read):
    trace = read(samples.chat(), "c.jsonl")
    assert np.diff(trace.turn_start).tolist() == [2, 1]
    hits = trace.hit_tokens(infinite_hits(trace))
    # The second conversation begins like the first, and sends just the first one's first prompt.
    assert hits[2] == trace.turns.input_tokens[0] == trace.turns.input_tokens[2]
    assert hits[1] >= trace.turns.input_tokens[0]
    assert any("no answer" in line for line in trace.header.warnings)


def test_sharegpt_is_read_as_an_array_one_conversation_at_a_time(read):
    trace = read(samples.sharegpt(), "s.json")
    assert trace.session_ids == ("x_0", "x_1")
    assert np.diff(trace.turn_start).tolist() == [1, 2]
    assert (trace.turns.trigger == Trigger.USER).all()


def test_azure_tells_lengths_and_says_that_prefixes_are_unknown(read):
    trace = read(samples.azure(), "a.csv")
    assert not trace.header.prefix_known
    assert trace.turns.arrival_ns.tolist() == [0, 52_000_000]
    assert any("unknown" in line for line in trace.header.warnings)


def test_aiperf_keeps_sessions_and_leaves_warmup_out(read):
    trace = read(samples.aiperf(), "profile_export.jsonl")
    assert trace.session_ids == ("u1", "u2")
    assert seconds(trace.turns.delay_ns) == [0, 0.7, 0]
    assert seconds(trace.turns.service_ns) == [0.3, 0.3, 0.1]
    assert any("1 records left out" in line for line in trace.header.warnings)


def test_a_directory_of_several_formats_asks_for_one(tmp_path):
    for name in ("mooncake", "azure"):
        file, make = samples.SAMPLES[name]
        (tmp_path / file).write_bytes(make())
    with pytest.raises(TraceError, match=r"several formats \(azure, mooncake\)"):
        open_trace(tmp_path)
    assert len(open_trace(tmp_path, format="azure")) == 2


def test_an_unknown_format_names_the_known_ones(tmp_path):
    (tmp_path / "x").write_text("nonsense")
    with pytest.raises(TraceError, match=r"not recognised as any of native, weka-tree"):
        open_trace(tmp_path / "x")
    with pytest.raises(TraceError, match="known formats: native"):
        open_trace(tmp_path / "x", format="vllm")
