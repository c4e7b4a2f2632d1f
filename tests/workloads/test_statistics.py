"""The figures are those of their formulas."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from tests.workloads import samples
from tests.workloads.prompts import BLOCK, trace_of
from workloads.formats import open_trace
from workloads.repair import repair
from workloads.statistics.distribution import distribution
from workloads.statistics.hits import BAND_NAMES, bands, hit_statistics
from workloads.statistics.page import page
from workloads.statistics.summary import sections
from workloads.statistics.trace_statistics import Questions, trace_statistics
from workloads.targets import Targets, aims


def test_a_band_holds_its_lower_edge():
    rates = np.array([0, 0.8999, 0.90, 0.9499, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0])
    assert bands(rates).tolist() == [0, 0, 1, 1, 2, 3, 4, 5, 6, 6]
    assert len(BAND_NAMES) == 7


def test_mean_weighs_requests_and_the_weighted_rate_tokens():
    s = hit_statistics("x", np.array([90, 0]), np.array([100, 900]))
    assert s.request_mean == pytest.approx(0.45)
    assert s.token_weighted == pytest.approx(0.09)
    assert (s.above_95_share, s.below_50_share, s.missed_tokens) == (0, 0.5, 910)


def test_concentration_is_the_share_of_misses_that_the_worst_carry():
    missed = np.array([1000] + [10] * 99)
    s = hit_statistics("x", np.zeros(100, int), missed)
    assert s.missed_by_top_1pct == pytest.approx(1000 / 1990)
    assert s.missed_by_top_10pct == pytest.approx((1000 + 90) / 1990)
    none = hit_statistics("x", np.array([5, 5]), np.array([5, 5]))
    assert none.missed_by_top_1pct == 0


def test_a_fraction_of_a_request_counts_in_part():
    s = hit_statistics("x", np.zeros(50, int), np.full(50, 7))
    assert s.missed_by_top_1pct == pytest.approx(0.01)


def test_distributions_are_quantiles_and_none_of_nothing():
    d = distribution(np.arange(101))
    assert (d.count, d.mean, d.min, d.p10, d.p50, d.p99, d.max) == (101, 50, 0, 10, 50, 99, 100)
    assert distribution(np.zeros(0)) is None


def test_caches_asked_for_stand_beside_the_infinite_one():
    trace = trace_of([[1, 2], [3, 4], [1, 2], [1, 2, 5]])
    s = trace_statistics(trace, Questions(lru_tokens=(2 * BLOCK,), ttl_s=(1e-8,)))
    assert [h.cache for h in s.hits] == ["infinite", "LRU 8 tokens", "TTL 1e-08 s"]
    assert [h.request_mean for h in s.hits] == pytest.approx([(1 + 2 / 3) / 4, (2 / 3) / 4, (2 / 3) / 4])


def test_the_ultra_short_class_states_its_definition():
    trace = trace_of([[1] * 8, [2]])
    s = trace_statistics(trace, Questions(long_input_tokens=32, ultra_short_tokens=1))
    assert s.long_input_ultra_short_share == 0.5
    assert s.long_input_ultra_short == "input >= 32 and output <= 1 tokens"


def test_warm_heads_are_hits_from_the_first_turn(tmp_path):
    (tmp_path / "a.json").write_bytes(samples.weka())
    trace = open_trace(tmp_path / "a.json")
    cold, warm = (trace_statistics(trace, Questions(warm_prefix=w)).hits[0] for w in (False, True))
    first = 128 / 130
    assert warm.request_mean - cold.request_mean == pytest.approx(first / len(trace))


def test_lengths_alone_state_no_hit_rate(tmp_path):
    (tmp_path / "a.csv").write_bytes(samples.azure())
    trace = open_trace(tmp_path / "a.csv")
    s = trace_statistics(trace)
    assert s.hits == ()
    assert any("no hit rate can be stated" in note for section in sections(s) for note in section.notes)
    assert "no hit rate can be stated" in page(trace, s)


def test_defects_are_named_counted_and_mended(tmp_path):
    document = json.loads(samples.weka())
    document["requests"][1]["out"] = 0
    for name in ("trace_a", "trace_b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(document | {"id": name}))
    trace = open_trace(tmp_path)
    found = {d.kind.value: (d.count, d.of) for d in trace_statistics(trace).defects}
    assert found == {"fork_duplicate": (1, "sessions"), "zero_output": (2, "turns")}
    mended = repair(trace)
    assert trace_statistics(mended).defects == ()
    assert mended.session_ids == ("trace_a",)
    assert mended.turns.output_tokens.tolist()[1] == 1
    said = " ".join(mended.header.warnings)
    assert "1 sessions (6 turns) left out" in said
    assert "1 outputs of 0 tokens became 1" in said
    assert repair(mended) is mended or repair(mended).header == mended.header


def test_ids_that_do_not_hash_their_prefix_are_a_defect():
    (defect,) = trace_statistics(trace_of([[1, 2, 3], [4, 2]])).defects
    assert (defect.kind.value, defect.count) == ("reused_id", 1)
    assert trace_statistics(trace_of([[1, 2, 3], [1, 2, 4]])).defects == ()


def test_targets_stand_beside_what_was_achieved():
    trace = open_trace("preset:small-engine", seed=1)
    s = trace_statistics(trace)
    names = [aim.name for aim in aims(trace.header.targets, s.hits[0], s.output_below_500_share)]
    assert names == ["request mean hit", "requests above 95 %", "requests below 50 %"]
    titles = [section.title for section in sections(s)]
    assert "Target against achieved" in titles
    assert aims(Targets(), s.hits[0], 1.0) == ()


def test_statistics_are_json_and_back():
    s = trace_statistics(open_trace("preset:small-engine", seed=1))
    assert msgspec.json.decode(msgspec.json.encode(s), type=type(s)) == s


def test_the_page_needs_no_network_and_escapes_names(tmp_path):
    (tmp_path / "<b>.jsonl").write_bytes(samples.mooncake())
    trace = open_trace(tmp_path / "<b>.jsonl")
    text = page(trace, trace_statistics(trace))
    assert "<h1>Trace &lt;b&gt;.jsonl</h1>" in text
    assert "<script src=" not in text
    for plot in ("the seven bands", "Bands over trace time", "Where the missed tokens lie", "Lengths"):
        assert plot in text
