"""Bad input: never a traceback, never silently taken.

Every change to a good file must either be refused with a TraceError of one line, or give a trace that keeps
the model's rules. Changes that are wrong by any reading must be refused.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import re
import tomllib
from contextlib import suppress
from importlib import resources

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
import zstandard

from tests.workloads import samples
from workloads.errors import TraceError
from workloads.formats import open_trace
from workloads.generator.parameters import Skew
from workloads.native_format import METADATA_KEY
from workloads.statistics.trace_statistics import Questions, trace_statistics
from workloads.trace import Tail
from workloads.transform.join import loop
from workloads.writers import native

TEXT = [n for n, (file, _) in samples.SAMPLES.items() if not file.endswith("parquet")]
ROUNDS = 150


def keeps_the_rules(trace) -> None:
    t, tree = trace.turns, trace.tree
    assert (t.input_tokens >= 1).all()
    assert (t.output_tokens >= 0).all()
    assert (t.delay_ns >= 0).all()
    assert (t.arrival_ns >= -1).all()
    assert (trace.session_start_ns >= 0).all()
    within = np.arange(len(t)) - np.repeat(trace.turn_start[:-1], np.diff(trace.turn_start))
    assert (t.base < within).all()
    assert (t.after < np.repeat(within, np.diff(t.after_start))).all()
    if trace.header.prefix_known:
        size = trace.header.block_size
        whole = t.input_tokens // size if trace.header.tail is Tail.WHOLE else -(-t.input_tokens // size)
        np.testing.assert_array_equal(tree.depth_of(t.node), whole)
    assert (tree.parent < np.arange(tree.nodes)).all()
    trace_statistics(trace)


def refused_or_sound(path, name) -> bool:
    """Whether the file was refused; fails on anything else than a one-line error or a sound trace."""
    try:
        trace = open_trace(path, format=name)
    except TraceError as e:
        said = str(e)
    else:
        keeps_the_rules(trace)
        return False
    assert "\n" not in said
    assert path.name in said, said
    return True


def mangled(content: bytes, rng: random.Random) -> bytes:
    """One change of the kinds that transfers, editors and exporters make."""
    text = bytearray(content)
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", content))
    match rng.randrange(9):
        case 0:
            return content[: rng.randrange(len(content))]
        case 1:
            at = rng.randrange(len(text))
            text[at] = rng.randrange(256)
            return bytes(text)
        case 2 | 3:
            found = rng.choice(numbers)
            new = rng.choice(
                [
                    b"-1",
                    b"NaN",
                    b"Infinity",
                    b"1e400",
                    b"1.5",
                    b'"x"',
                    b"null",
                    b"true",
                    b"[]",
                    b"{}",
                    b"",
                    b"9" * 30,
                    b"18446744073709551616",
                    b"18446744073709551615",
                    b"0",
                    b"-0.0",
                    b"1e3",
                    b"\xff",
                    b"\xe0\xa4",
                ]
            )
            return content[: found.start()] + new + content[found.end() :]
        case 4:
            rows = content.split(b"\n")
            rng.shuffle(rows)
            return b"\n".join(rows)
        case 5:
            rows = content.split(b"\n")
            rows.insert(rng.randrange(len(rows) + 1), rng.choice(rows))
            return b"\n".join(rows)
        case 6:
            a, b = sorted(rng.randrange(len(content)) for _ in range(2))
            return content[:a] + content[b:]
        case 7:
            keys = list(re.finditer(rb'"(\w+)": ', content)) or numbers
            found = rng.choice(keys)
            return content[: found.start()] + content[found.end() :]
        case _:
            at = rng.randrange(len(content))
            return (
                content[:at]
                + rng.choice([b"\x00", b"\r", b"\xef\xbb\xbf", b'"', b",", b"\n\n"])
                + content[at:]
            )


@pytest.mark.parametrize("name", TEXT)
def test_mangled_files_are_refused_or_sound(name, tmp_path):
    file, make = samples.SAMPLES[name]
    content = make()
    refused = 0
    for seed in range(ROUNDS):
        print(f"replay: random.Random({seed}), format {name}")
        path = tmp_path / file
        path.write_bytes(mangled(content, random.Random(seed)))
        refused += refused_or_sound(path, name)
    assert refused > ROUNDS / 4, "the changes hardly ever mattered"


@pytest.mark.parametrize("name", ["baseten", "native"])
def test_mangled_parquet_is_refused_or_sound(name, tmp_path):
    content = samples.native_file(tmp_path / "n.parquet") if name == "native" else samples.baseten()
    refused = 0
    for seed in range(ROUNDS):
        print(f"replay: random.Random({seed}), format {name}")
        rng = random.Random(seed)
        text = bytearray(content)
        for _ in range(rng.choice([1, 4, 64])):
            text[rng.randrange(len(text))] = rng.randrange(256)
        path = tmp_path / "x.parquet"
        path.write_bytes(bytes(text[: rng.randrange(len(text))]) if rng.random() < 0.3 else bytes(text))
        refused += refused_or_sound(path, name)
    assert refused > ROUNDS / 4


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda b: zstandard.ZstdCompressor().compress(b)], ids=["gzip", "zstd"]
)
def test_a_cut_off_archive_is_refused(pack, tmp_path):
    packed = pack(samples.mooncake() * 50)
    path = tmp_path / "m.jsonl"
    for cut in range(5, len(packed) - 1, max(1, len(packed) // 40)):
        path.write_bytes(packed[:cut])
        with pytest.raises(TraceError):
            open_trace(path, format="mooncake")


def test_a_zstd_archive_cut_between_two_lines_is_refused(tmp_path):
    """Blocks of 128 KiB that end with a line: what is left reads well, and is not the whole."""
    row = samples.mooncake().split(b"\n")[0]
    line = row + b" " * (255 - len(row)) + b"\n"
    packed = zstandard.ZstdCompressor(level=-5).compress(line * (1 << 12))
    path = tmp_path / "m.jsonl"
    path.write_bytes(packed)
    assert len(open_trace(path)) == 1 << 12
    for cut in range(len(packed) - 40, len(packed)):
        path.write_bytes(packed[:cut])
        with pytest.raises(TraceError, match="damaged or cut-off compression"):
            open_trace(path)


def test_archives_of_several_frames_are_one_file(tmp_path):
    first, second = (zstandard.ZstdCompressor().compress(part) for part in halves(samples.mooncake()))
    path = tmp_path / "m.jsonl"
    path.write_bytes(first + second)
    (tmp_path / "whole.jsonl").write_bytes(samples.mooncake())
    assert len(open_trace(path)) == len(open_trace(tmp_path / "whole.jsonl"))


def halves(text: bytes) -> tuple[bytes, bytes]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def changed(name: str, **fields) -> bytes:
    """The sample's first row with other fields."""
    row = json.loads(samples.SAMPLES[name][1]().split(b"\n")[0])
    return samples.lines(row | fields)


WRONG_ROWS = [
    ("mooncake", {"timestamp": -1}, "timestamp"),
    ("mooncake", {"timestamp": float("nan")}, "not a Mooncake row"),
    ("mooncake", {"timestamp": "0"}, "timestamp"),
    ("mooncake", {"input_length": -5}, "input tokens"),
    ("mooncake", {"input_length": 0, "hash_ids": []}, "input tokens"),
    ("mooncake", {"input_length": 1.5}, "input_length"),
    ("mooncake", {"input_length": 2**40, "hash_ids": [1, 2]}, "input tokens"),
    ("mooncake", {"output_length": -1}, "output tokens"),
    ("mooncake", {"output_length": True}, "output_length"),
    ("mooncake", {"hash_ids": [1, -2]}, "block ids must be non-negative"),
    ("mooncake", {"hash_ids": [1, 2**64]}, "block ids must be non-negative"),
    ("mooncake", {"hash_ids": [1, 2.0]}, "hash_ids"),
    ("mooncake", {"hash_ids": [1, True]}, "hash_ids"),
    ("mooncake", {"hash_ids": [1, None]}, "hash_ids"),
    ("mooncake", {"hash_ids": "12"}, "hash_ids"),
    ("mooncake", {"hash_ids": []}, "block ids"),
    ("bailian", {"chat_id": 1.5}, "chat_id"),
    ("bailian", {"timestamp": 1e300}, "timestamp"),
    ("aiperf", {"metrics": {}}, "input_sequence_length"),
    ("aiperf", {"metrics": {"input_sequence_length": {"value": [1]}}}, "whole number"),
    ("aiperf", {"metadata": {"request_start_ns": 5, "request_end_ns": 4}}, "ends before it starts"),
    ("chat", {"messages": []}, "list of messages"),
    ("chat", {"messages": [{"role": "martian", "content": "x"}]}, "must be one of"),
    ("chat", {"messages": [{"role": "user", "content": 3}]}, "must be text"),
]


@pytest.mark.parametrize(("name", "fields", "said"), WRONG_ROWS, ids=lambda v: str(v)[:40])
def test_wrong_values_are_refused_by_name_with_file_and_line(name, fields, said, tmp_path):
    path = tmp_path / samples.SAMPLES[name][0]
    path.write_bytes(changed(name, **fields))
    with pytest.raises(TraceError, match=said) as caught:
        open_trace(path, format=name)
    assert str(path) in str(caught.value)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("tracelab", b"576,128", b"577,128", "exceeds the 576 tokens"),
        ("tracelab", b"576,128", b"-1,128", "0 or more"),
        ("tracelab", b"576,128", b"576,1_28", "whole number"),
        ("tracelab", b"64,100", b"64,nan", "milliseconds"),
        ("tracelab", b"0,0,1,576", b"0,0,2,576", "round 1 of this session comes next"),
        ("tracelab", b",64,100\n", b",64\n", "cells where the header has"),
        ("tracelab", b"round_idx", b"session_id", "twice"),
        ("azure", b"4808,10", b"4808,-10", "output tokens"),
        ("azure", b"18:17:04.0", b"18:17:01.0", "backwards"),
        ("azure", b"2023-11-16 18:17:03", b"yesterday", "ISO 8601"),
        ("azure", b"ContextTokens", b"Context", "lacks the columns ContextTokens"),
        ("weka-tree", b"200,20,3,0,2", b"200,20,3,0,3", "must not exceed the parent's"),
        ("weka-tree", b"200,20,3,0,2", b"200,20,3,7,2", "no earlier row"),
        ("weka-tree", b"200,20,3,0,2", b"200,20,4,0,2", "block ids"),
        ("weka", b'"in": 200', b'"in": 500', "block ids"),
        ("weka", b'"t": 10.0', b'"t": -10.0', "backwards"),
        ("weka", b'"hash_id_scope": "local"', b'"hash_id_scope": "here"', "'local' or 'global'"),
        ("weka", b'"block_size": 64', b'"block_size": 0', "block_size"),
        ("otel", b"10:00:05.0", b"10:00:01.0", "ends before it starts"),
        ("otel", b"gen_ai.output.text", b"gen_ai.output.text2", "needs gen_ai.output.text"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(name, old, new, said, tmp_path):
    file, make = samples.SAMPLES[name]
    content = make()
    assert old in content
    path = tmp_path / file
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(TraceError, match=said):
        open_trace(path, format=name)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("total_hashes", pa.array([[1, 2], [1, -2, 3], [1, 2, 5, 6]], pa.list_(pa.int64())), "non-negative"),
        ("total_hashes", pa.array([[1, 2], None, [1, 2, 5, 6]], pa.list_(pa.int64())), "nulls"),
        ("total_hashes", pa.array([1, 2, 3]), "lists of block hashes"),
        ("input_tokens", pa.array(["a", "b", "c"]), "must be numbers"),
        ("input_tokens", pa.array([32, 40, 65]), "block ids"),
        ("block_size", pa.array([16, 16, 32]), "one value"),
        ("timestamp_start_unix_ms", pa.array([2, 1, 3]), "backwards"),
        ("timestamp_start_unix_ms", pa.array([1.0, float("nan"), 3.0]), "backwards"),
    ],
)
def test_wrong_baseten_columns_are_refused(column, values, said, tmp_path):
    path = tmp_path / "p.parquet"
    path.write_bytes(samples.baseten(**{column: values}))
    with pytest.raises(TraceError, match=said):
        open_trace(path, format="baseten")


def _set(name, values):
    def change(table):
        return table.set_column(
            table.column_names.index(name), table.schema.field(name), values(table.column(name))
        )

    return change


def _rows(change):
    def changing(column):
        return pa.chunked_array([pa.array(change(column.to_pylist()), column.type)])

    return changing


NATIVE = [
    ("parent_row", _rows(lambda v: [None, 5, *v[2:]]), "earlier row"),
    (
        "shared_blocks",
        _rows(lambda v: [*v[:3], v[3] - 1, *v[4:]]),
        "first_id|run_blocks|first to send|blocks",
    ),
    ("shared_blocks", _rows(lambda v: [v[0] + 1, *v[1:]]), "exactly where|exceeds"),
    ("input_tokens", _rows(lambda v: [-1, *v[1:]]), "1 or more"),
    ("input_tokens", _rows(lambda v: [v[0] + 64, *v[1:]]), "does not fit"),
    ("delay_ns", _rows(lambda v: [-7, *v[1:]]), "0 or more"),
    ("base", _rows(lambda v: [0, *v[1:]]), "earlier turn"),
    ("after", _rows(lambda v: [[3], *v[1:]]), "earlier turns"),
    (
        "trigger",
        lambda c: pa.chunked_array([pa.array(["martian"] * len(c)).dictionary_encode()]),
        "'user', 'tool'",
    ),
    (
        "session_id",
        lambda c: pa.chunked_array([pa.array(["a", "b", *["a"] * (len(c) - 2)]).dictionary_encode()]),
        "together",
    ),
    ("run_scope", _rows(lambda v: [[99] * len(x) if x else x for x in v]), "no scope"),
]


@pytest.mark.parametrize(("name", "values", "said"), NATIVE, ids=lambda v: v if isinstance(v, str) else "")
def test_native_columns_that_contradict_each_other_are_refused(name, values, said, tmp_path):
    path = tmp_path / "n.parquet"
    samples.native_file(path)
    told = pq.read_metadata(path).metadata
    table = _set(name, values)(pq.read_table(path))
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: told[METADATA_KEY]}), path)
    with pytest.raises(TraceError, match=said):
        open_trace(path)


def test_a_native_file_of_another_version_is_refused(tmp_path):
    path = tmp_path / "n.parquet"
    samples.native_file(path)
    table = pq.read_table(path)
    told = json.loads(pq.read_metadata(path).metadata[METADATA_KEY]) | {"version": 99}
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(told)}), path)
    with pytest.raises(TraceError, match=r"another version .*99"):
        open_trace(path)


@pytest.mark.parametrize("name", [*samples.SAMPLES, "native"])
@pytest.mark.parametrize("content", [b"", b"\n", b"{}", b"[]", b"null", b"\x00" * 100, b"a,b\n1,2\n"])
def test_files_of_nothing_are_refused(name, content, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        open_trace(path, format=name)


def test_a_missing_file_and_a_directory_without_traces_are_said(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        open_trace(tmp_path / "nowhere.jsonl")
    with pytest.raises(TraceError, match="holds no trace file"):
        open_trace(tmp_path)


def test_deep_nesting_is_refused_not_a_stack_overflow(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b"[" * 200_000)
    for name in ("chat", "otel", "weka"):
        with pytest.raises(TraceError):
            open_trace(path, format=name)


def test_two_equal_keys_in_one_object_are_refused(tmp_path):
    row = (
        samples.mooncake()
        .split(b"\n")[0]
        .replace(b'"output_length"', b'"input_length": 1000, "output_length"')
    )
    path = tmp_path / "m.jsonl"
    path.write_bytes(row)
    with pytest.raises(TraceError, match="twice"):
        open_trace(path, format="mooncake")


def test_zeroed_pages_of_a_native_file_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    native.write(open_trace("preset:report", seed=1, sessions=200), path)
    whole = path.read_bytes()
    refused = 0
    places = range(1000, len(whole) // 2, len(whole) // 20)
    for at in places:
        path.write_bytes(whole[:at] + bytes(500) + whole[at + 500 :])
        with suppress(TraceError):
            open_trace(path)
            continue
        refused += 1
    assert refused == len(places)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_times_that_are_none_are_refused(value):
    trace = open_trace("preset:report", seed=1, sessions=5)
    with pytest.raises(TraceError, match="ttl"):
        trace_statistics(trace, Questions(ttl_s=(value,)))
    with pytest.raises(TraceError, match="loop"):
        loop(trace, value)


def test_shares_of_bands_must_be_numbers():
    with pytest.raises(TraceError, match="must be 7 shares"):
        Skew(band_shares=(math.nan, 0, 0, 0, 0, 0, 1))


def numbers(raw, path=()):
    """Place of every number in a table."""
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw):
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int | float):
            yield (*path, key)


PARAMETERS = tomllib.loads(
    (resources.files("workloads.generator") / "presets" / "report.toml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("place", list(numbers(PARAMETERS)), ids=lambda place: ".".join(map(str, place)))
@pytest.mark.parametrize("value", [math.nan, math.inf, -2, 1e300])
def test_parameters_that_are_no_numbers_are_refused(place, value, tmp_path):
    raw = copy.deepcopy(PARAMETERS)
    *above, key = place
    table = raw
    for step in above:
        table = table[step]
    table[key] = value
    path = tmp_path / "p.toml"
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    with pytest.raises(TraceError, match="not generator parameters"):
        open_trace(path)
