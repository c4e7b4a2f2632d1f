"""The generator hits the skew it is asked for and the laws it is given."""

from __future__ import annotations

from importlib import resources

import msgspec
import numpy as np
import pytest
from scipy.stats import expon, ks_1samp

from tests.workloads.prompts import assert_same
from workloads.caches import infinite_hits
from workloads.errors import TraceError
from workloads.formats import open_trace
from workloads.generator.assemble import generate, generate_parts
from workloads.generator.mixture import cdf
from workloads.generator.parameters import Lognormal, Overflow, Parameters, Skew, UltraShort, checked
from workloads.generator.presets import PRESETS, parameters_from, preset
from workloads.generator.request import asked, synthesise
from workloads.statistics.trace_statistics import infinite_hit_tokens, trace_statistics
from workloads.targets import aims
from workloads.trace import Trigger
from workloads.validation import defects
from workloads.writers import native

REQUESTS = 50_000
POINT = 0.01
AIMED = [name for name in PRESETS if preset(name).targets is not None]


def change(p: Parameters, **fields) -> Parameters:
    return msgspec.structs.replace(p, **fields)


def misses(name: str, seed: int) -> list:
    trace = synthesise(preset(name), name=name, seed=seed, requests=REQUESTS)
    assert len(trace) == REQUESTS
    s = trace_statistics(trace)
    assert not s.defects
    found = aims(trace.header.targets, s.hits[0], s.output_below_500_share)
    assert found
    return [aim for aim in found if abs(aim.achieved - aim.target) > POINT]


@pytest.mark.parametrize("name", AIMED)
def test_presets_hit_their_targets(name):
    assert misses(name, seed=1) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("name", AIMED)
def test_presets_hit_their_targets_for_other_seeds(name, seed):
    assert misses(name, seed) == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_sound_small_trace(name):
    trace = synthesise(preset(name), name=name, seed=4, requests=500)
    assert len(trace) == 500
    t = trace.turns
    limit = preset(name).context_tokens
    assert (t.input_tokens + t.output_tokens <= limit).all()
    assert (t.input_tokens >= 1).all()
    assert (t.output_tokens >= 1).all()
    assert (np.diff(trace.session_start_ns) >= 0).all()
    assert not [d for d in defects(trace) if d.kind.value == "reused_id"]


def ks(values, parts) -> float:
    return float(ks_1samp(np.asarray(values, float), lambda x: cdf(tuple(parts), x)).statistic)


@pytest.fixture(scope="module", params=[1, 2, 3])
def weka_like(request):
    return preset("weka-like"), synthesise(
        preset("weka-like"), name="w", seed=request.param, requests=REQUESTS
    )


def test_lengths_and_waits_follow_the_weka_fits(weka_like):
    """Against the fits themselves, as published: Kolmogorov-Smirnov distance of .06 at most."""
    p, trace = weka_like
    t = trace.turns
    main = t.agent == 0
    first = np.zeros(len(t), bool)
    first[trace.turn_start[:-1]] = True
    previous = np.concatenate(([0], t.input_tokens[:-1]))
    grew = ~first & main & (t.input_tokens > previous)
    growth = (t.input_tokens - previous)[grew]
    assert ks(growth, p.growth.mixture) <= 0.06
    outputs = t.output_tokens[main]
    fitted = (Lognormal(161, 0.40, 0.475), Lognormal(399, 1.01, 0.525))
    assert ks(outputs, fitted) <= 0.06
    opening = (change(p.first.fresh, share=0.56), change(p.first.resumed, share=0.44))
    assert ks(t.input_tokens[first & main], opening) <= 0.06
    waits = t.delay_ns / 1e9
    assert ks(waits[~first & (t.trigger == Trigger.TOOL)], p.gaps.tool_s) <= 0.06
    assert ks(waits[~first & (t.trigger == Trigger.USER)], p.gaps.user_s) <= 0.06


def test_turns_are_exponential_with_the_mean_asked_for(weka_like):
    p, _ = weka_like
    trace = generate(change(p, sessions=3000, skew=None, overflow=Overflow.COMPACT), name="t", seed=1)
    turns = np.diff(trace.turn_start)
    assert turns.mean() == pytest.approx(65, rel=0.05)
    assert float(ks_1samp(turns - 0.5, expon(scale=65).cdf).statistic) <= 0.06


def test_log_growth_varies_between_sessions_and_runs_on_within_them():
    p = change(
        preset("weka-like"),
        skew=None,
        breaks=change(preset("weka-like").breaks, head_share=0.0, compaction_share=0.0),
    )
    p = change(p, growth=change(p.growth, session_share=0.3, rho=0.6), sessions=400)
    trace = generate(p, name="t", seed=1)
    growth = np.diff(trace.turns.input_tokens)
    same = np.diff(trace.session_of) == 0
    both = same[1:] & same[:-1] & (growth[1:] > 0) & (growth[:-1] > 0)
    rho = np.corrcoef(np.log(growth[:-1][both]), np.log(growth[1:][both]))[0, 1]
    assert rho == pytest.approx(0.6, abs=0.06)


def test_equal_seeds_are_equal_traces_and_others_are_not():
    one, two, other = (synthesise(preset("small-engine"), name="x", seed=s) for s in (5, 5, 6))
    assert_same(one, two)
    assert other.turns.input_tokens.tolist() != one.turns.input_tokens.tolist()


@pytest.mark.parametrize(
    "bands",
    [
        (0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2),
        (0.05, 0.05, 0.1, 0.1, 0.2, 0.3, 0.2),
        (0.6, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05),
    ],
)
def test_any_band_histogram_can_be_asked_for(bands):
    trace = synthesise(asked(preset("report"), bands=bands), name="x", seed=2, requests=20_000)
    (hits,) = trace_statistics(trace).hits
    np.testing.assert_allclose(hits.band_shares, bands, atol=POINT)


@pytest.mark.parametrize(
    ("mean", "above", "below"), [(0.88, 0.6, 0.05), (0.93, 0.85, 0.04), (0.75, 0.4, 0.2)]
)
def test_mean_and_tails_can_be_asked_for(mean, above, below):
    p = asked(preset("report"), mean=mean, above_95=above, below_50=below)
    (hits,) = trace_statistics(synthesise(p, name="x", seed=2, requests=20_000)).hits
    assert hits.request_mean == pytest.approx(mean, abs=POINT)
    assert hits.above_95_share == pytest.approx(above, abs=POINT)
    assert hits.below_50_share == pytest.approx(below, abs=POINT)


def test_a_mean_that_the_tails_exclude_is_refused_with_its_range():
    p = asked(preset("report"), mean=0.99, above_95=0.75, below_50=0.066)
    with pytest.raises(TraceError, match=r"the mean can be 0\.\d+\.\.0\.9"):
        synthesise(p, name="x", seed=1, requests=5000)


@pytest.mark.parametrize(
    "skew",
    [
        {},
        {"request_mean": 0.9},
        {"band_shares": (0.5, 0.5)},
        {"band_shares": (1.0, -0.1, 0.1, 0, 0, 0, 0)},
        {"quantiles": ((0.0, 0.5), (1.0, 0.2))},
        {"quantiles": ((0.1, 0.5), (1.0, 0.9))},
        {"band_shares": (1, 0, 0, 0, 0, 0, 0), "request_mean": 0.5},
    ],
)
def test_a_skew_that_says_too_little_or_too_much_is_refused(skew):
    with pytest.raises(TraceError):
        Skew(**skew)


def test_ultra_short_requests_have_their_share_lengths_and_hits():
    u = UltraShort(share=0.2, input=Lognormal(60_000, 0.1), output_min=2, output_max=5, hit=0.75, documents=2)
    trace = generate(change(preset("report"), ultra_short=u, skew=None), name="x", seed=1, requests=10_000)
    s = trace_statistics(trace)
    short = trace.turns.agent == 1
    assert short.mean() == pytest.approx(0.2, abs=0.001)
    outputs = trace.turns.output_tokens[short]
    assert (outputs.min(), outputs.max()) == (2, 5)
    assert np.median(trace.turns.input_tokens[short]) == pytest.approx(60_000, rel=0.02)
    rates = (infinite_hit_tokens(trace) / trace.turns.input_tokens)[short]
    assert np.median(rates) == pytest.approx(0.75, abs=0.01)
    assert s.long_input_ultra_short_share >= 0.2


def test_cold_heads_are_shared_by_nobody_and_popular_ones_by_zipf():
    p = change(preset("report"), skew=None, ultra_short=None, sessions=600)
    cold = generate(change(p, shared=change(p.shared, groups=0)), name="x", seed=1)
    first = cold.turn_start[:-1]
    assert (infinite_hits(cold)[first] == 0).all()
    warm = generate(change(p, shared=change(p.shared, groups=4, zipf=2.0)), name="x", seed=1)
    heads = [warm.tree.path(int(warm.turns.node[f]))[0] for f in warm.turn_start[:-1]]
    _, counts = np.unique(heads, return_counts=True)
    ordered = np.sort(counts)[::-1] / counts.sum()
    np.testing.assert_allclose(
        ordered, np.array([1, 1 / 4, 1 / 9, 1 / 16]) / (1 + 1 / 4 + 1 / 9 + 1 / 16), atol=0.05
    )


def test_answers_stay_in_the_context_where_that_is_asked():
    trace = synthesise(preset("small-engine"), name="x", seed=1, requests=5000)
    t = trace.turns
    plain = np.flatnonzero(t.base >= 0)
    base = trace.base_turn[plain]
    whole = trace.tree.depth_of(t.node[base]) == trace.tree.common_depth(t.node[base], t.node[plain])
    grew = whole & (t.input_tokens[plain] > t.input_tokens[base])
    room = (t.input_tokens[plain] - t.input_tokens[base] - t.output_tokens[base])[grew]
    assert (room >= 1).mean() > 0.99


def test_parts_are_one_trace_with_common_heads(tmp_path):
    p = preset("report")
    parts = list(generate_parts(p, name="x", seed=3, requests=6000, part_requests=2500))
    assert [len(part) for part in parts] == [2500, 2500, 1000]
    starts = np.concatenate([part.session_start_ns for part in parts])
    assert (np.diff(starts) >= 0).all()
    assert native.write_parts(parts, tmp_path / "t.parquet") == 6000
    whole = open_trace(tmp_path / "t.parquet")
    inputs = [part.turns.input_tokens for part in parts]
    np.testing.assert_array_equal(whole.turns.input_tokens, np.concatenate(inputs))
    (hits,) = trace_statistics(whole).hits
    assert hits.above_95_share == pytest.approx(0.75, abs=POINT)
    # A head is cold once in the file, not once a part.
    tree = whole.tree
    roots = [tree.scopes[tree.scope[n]] for n in np.flatnonzero(tree.parent < 0)]
    heads = [name for name in roots if name.startswith("head ")]
    assert len(heads) == len(set(heads))
    later = whole.turn_start[len(parts[0].session_ids) : -1]
    warm = whole.turns.shared_tokens[later] > 0
    assert (infinite_hits(whole)[later][warm] > 0).all()
    assert not trace_statistics(whole).defects


def test_own_parameters_come_from_a_file_and_strangers_are_refused(tmp_path):
    text = (resources.files("workloads.generator") / "presets" / "cold.toml").read_bytes()
    good = tmp_path / "mine.toml"
    good.write_bytes(text)
    assert parameters_from(good) == preset("cold")
    assert len(open_trace(good, sessions=7).session_ids) == 7
    bad = tmp_path / "bad.toml"
    bad.write_bytes(text + b"\n[nonsense]\nx = 1\n")
    with pytest.raises(TraceError, match=r"bad.toml: not generator parameters: .*nonsense"):
        parameters_from(bad)
    with pytest.raises(TraceError, match="known presets: report"):
        preset("none")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"turns_mean": 0.5}, "turns_mean"),
        ({"sessions": 0}, "sessions"),
        ({"context_tokens": 100}, "context_tokens"),
        ({"ultra_short": UltraShort(share=1.0, input=Lognormal(1, 1))}, "ultra_short.share"),
    ],
)
def test_impossible_parameters_are_refused(fields, said):
    with pytest.raises(TraceError, match=said):
        checked(change(preset("report"), **fields))
