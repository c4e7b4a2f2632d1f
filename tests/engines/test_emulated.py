"""What only the emulated engine promises: modelled time, modelled bytes, ids that depend on everything."""

import numpy as np
import pytest

from adapters.engines import load_engine
from adapters.engines.emulated import backend as emulated_backend
from adapters.engines.emulated.chain import Chain
from harness.costs.deployment import deploy
from harness.engine import Decode, EngineOptions
from tests.engines.driving import drain, prefill, prompt

OPTIONS = {"model": "llama-3-70b", "devices": "h100x8", "max_sequences": 8, "max_context_tokens": 70_000}


class Clock:
    """Only sleeping takes time, and what a test lets pass."""

    def __init__(self):
        self.now_s = 1000.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(emulated_backend.time, "sleep", made.sleep)
    monkeypatch.setattr(emulated_backend.time, "perf_counter", lambda: made.now_s)
    return made


@pytest.fixture
def slept(clock):
    return clock.slept


@pytest.mark.parametrize(("host_s", "taken_out_s"), [(0.004, 0.004), (0.05, 0.0)], ids=["host", "idle"])
def test_what_the_host_takes_between_steps_does_not_add_up(clock, host_s, taken_out_s):
    engine = load_engine("emulated", EngineOptions(**OPTIONS, batch_tokens=4096))
    ids = prompt(engine, 100)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(3))
    engine.step()
    clock.now_s += host_s
    engine.step()
    assert clock.slept[1] == pytest.approx(deploy("llama-3-70b", "h100x8").decode_s(1, 101) - taken_out_s)


def test_steps_take_the_modelled_time(slept):
    engine = load_engine("emulated", EngineOptions(**OPTIONS, batch_tokens=16_384, time_scale=0.5))
    cost = deploy("llama-3-70b", "h100x8")
    ids = prompt(engine, 20_000)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(2))
    drain(engine)
    expected = [
        cost.prefill_s(16_384, 0),
        cost.prefill_s(20_000 - 16_384, 16_384),
        cost.decode_s(1, 20_001),
    ]
    assert slept == pytest.approx([0.5 * s for s in expected])


def test_a_mixed_step_pays_for_both(slept):
    engine = load_engine("emulated", EngineOptions(**OPTIONS, batch_tokens=4096))
    cost = deploy("llama-3-70b", "h100x8")
    ids = prompt(engine, 3000)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(5))
    engine.step()
    engine.open(2, prompt(engine, 2000, seed=1))
    engine.extend(2, prompt(engine, 2000, seed=1))
    engine.step()
    assert slept[1] == pytest.approx(cost.step_s(2001, 2000 * 2001 // 2, 3001))


def test_blobs_weigh_the_modelled_bytes():
    engine = load_engine("emulated", EngineOptions(**OPTIONS, time_scale=1e-6, byte_scale=0.01))
    ids = prompt(engine, 1001)
    prefill(engine, 1, ids)
    assert len(engine.export_kv(1, 0, 1000)) == pytest.approx(1000 * 327_680 * 0.01, abs=200)


def test_capacity_is_what_the_memory_leaves():
    engine = load_engine("emulated", EngineOptions(**OPTIONS))
    assert engine.usage().capacity_tokens == deploy("llama-3-70b", "h100x8").capacity_tokens(8)
    assert 1.2e6 < engine.usage().capacity_tokens < 1.6e6


def test_chunked_chains_equal_whole_ones():
    whole, parts, imported = Chain(), Chain(), Chain()
    ids = list(range(1000, 2000))
    whole.compute(ids)
    for start in (0, 1, 7, 300, 999):
        end = {0: 1, 1: 7, 7: 300, 300: 999, 999: 1000}[start]
        parts.compute(ids[start:end])
    imported.append(whole.states(0, 400))
    imported.append(whole.states(400, 900))
    imported.compute(ids[900:])
    for chain in (parts, imported):
        assert np.array_equal(chain.states(0, 1000), whole.states(0, 1000))
        assert chain.sample(Decode(1), 0, 10**6) == whole.sample(Decode(1), 0, 10**6)


def test_chains_tell_order_position_and_every_lost_range():
    ids = list(range(100))
    reference = Chain()
    reference.compute(ids)
    samples = {reference.sample(Decode(1), 0, 2**60)}
    for other in (ids[::-1], ids[1:], ids[:50] + ids[51:], [*ids, 0], [1, 0, *ids[2:]]):
        chain = Chain()
        chain.compute(other)
        samples.add(chain.sample(Decode(1), 0, 2**60))
    swapped = Chain()
    swapped.append(reference.states(50, 100))
    swapped.append(reference.states(0, 50))
    doubled = Chain()
    doubled.append(reference.states(0, 50))
    doubled.append(reference.states(0, 50))
    samples |= {chain.sample(Decode(1), 0, 2**60) for chain in (swapped, doubled)}
    assert len(samples) == 7


def test_truncating_and_going_on_equals_going_on():
    ids = list(range(500))
    straight, back = Chain(), Chain()
    straight.compute(ids)
    back.compute(ids[:300] + [7] * 100)
    back.length = 300
    back.compute(ids[300:])
    assert back.sample(Decode(1), 0, 2**60) == straight.sample(Decode(1), 0, 2**60)
