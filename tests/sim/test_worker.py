"""A simulated worker takes the steps an engine would take, one by one or many at once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.policy import events as ev
from harness.policy.roles import Role
from harness.sim.decode_clock import Instants
from harness.sim.event_queue import EventQueue
from harness.sim.session import PlainSession
from harness.sim.worker import SimWorker
from tests.sim.cells import chain, deployment


class Bench:
    """One worker, and what it has told: (seconds, event)."""

    def __init__(
        self, *, capacity: int = 10_000, chunk: int = 64, fill: bool = True, slots: int = 100
    ) -> None:
        self.queue = EventQueue()
        self.told: list[tuple[float, ev.Event]] = []
        self.instants: dict[int, list[int]] = {}
        self.worker = SimWorker(
            "w",
            Role.MAIN_DECODE,
            "A",
            deployment(),
            self.queue,
            self._tell,
            max_sequences=slots,
            chunk_tokens=chunk,
            capacity_tokens=capacity,
            time_scale=1.0,
            fill_tail=fill,
            token_instants=True,
        )

    def _tell(self, _: SimWorker, event: ev.Event, instants: Instants | None) -> None:
        self.told.append((self.queue.now_ns / 1e9, event))
        if isinstance(event, ev.TokensDecoded):
            assert instants is not None
            assert len(instants) == event.count
            self.instants.setdefault(event.work, []).extend(instants.tolist())

    def decoding(self, at_s: float, work: int, context: int, tokens: int) -> None:
        """A sequence whose KV is there at `at_s`, and which decodes from then on."""
        session: PlainSession = chain(f"s{work}", 0, [(context, tokens)])

        def begin(_: None) -> None:
            self.worker.open(work, f"r{work}", session, 0, context - 1, prefill=False)
            self.worker.imported(work, context - 1)
            self.worker.decode(work + 1, work, context, 0, tokens)

        self.queue.at(round(at_s * 1e9), begin, None)

    def prefilling(self, at_s: float, work: int, positions: int) -> None:
        session = chain(f"s{work}", 0, [(positions + 1, 1)])
        self.queue.at(
            round(at_s * 1e9),
            lambda _: self.worker.open(work, f"r{work}", session, 0, positions, prefill=True),
            None,
        )

    def when(self, kind: type, work: int) -> float:
        return next(at for at, e in self.told if isinstance(e, kind) and getattr(e, "work", None) == work)


def step_s(tokens: int, context: int) -> float:
    return deployment().step_s(tokens, 0, context)


def test_one_sequence_steps_as_the_cost_model_says() -> None:
    bench = Bench()
    bench.decoding(0, 10, context=100, tokens=50)
    bench.queue.run()
    want = [step_s(1, 100)]
    for held in range(100, 149):
        want.append(want[-1] + step_s(1, held))
    got = [t / 1e9 for t in bench.instants[11]]
    assert got == pytest.approx(want, abs=1e-6)
    assert bench.told[-1][1] == ev.TokensDecoded("r10", 11, 1, 49, "length")


def test_a_sequence_joins_at_a_steps_end_and_all_slow_down_together() -> None:
    bench = Bench()
    bench.decoding(0, 10, context=100, tokens=200)
    bench.decoding(0.05003, 20, context=100, tokens=10)
    bench.queue.run()
    first, second = bench.instants[11], bench.instants[21]
    assert set(second) <= set(first), "both step together"
    assert second[0] / 1e9 > 0.05003
    gaps = [b - a for a, b in pairwise(first)]
    assert max(gaps) < 1.1e6
    assert len(first) == 200
    assert len(second) == 10


def test_prompts_share_a_step_when_the_tail_is_filled_and_not_otherwise() -> None:
    ends = {}
    for fill in (True, False):
        bench = Bench(chunk=2000, fill=fill)
        bench.prefilling(0, 10, 2000)  # keeps the worker busy while the others come
        bench.prefilling(0.1, 20, 600)
        bench.prefilling(0.1, 30, 600)
        bench.queue.run()
        ends[fill] = (bench.when(ev.PrefillDone, 20), bench.when(ev.PrefillDone, 30))
    assert ends[True] == (pytest.approx(3.2), pytest.approx(3.2))
    assert ends[False] == (pytest.approx(2.6), pytest.approx(3.2))


def test_a_long_prompt_stalls_the_sequences_that_share_the_worker() -> None:
    bench = Bench(chunk=64)
    bench.decoding(0, 10, context=100, tokens=100)
    bench.prefilling(0.02, 20, 256)
    bench.queue.run()
    gaps = [b - a for a, b in pairwise(bench.instants[11])]
    assert sum(1 for gap in gaps if gap > 50e6) == 4


def test_without_room_an_opening_waits_until_a_sequence_closes() -> None:
    bench = Bench(capacity=150)
    bench.decoding(0, 10, context=100, tokens=5)
    session = chain("late", 0, [(100, 5)])
    bench.queue.at(10**6, lambda _: bench.worker.open(20, "late", session, 0, 99, prefill=False), None)
    bench.queue.at(10**9, lambda _: bench.worker.close(15, 10, keep=False), None)
    bench.queue.run()
    assert bench.when(ev.Opened, 20) == 1.0


def test_kept_prefixes_are_evicted_for_new_sequences_and_the_policy_is_told() -> None:
    bench = Bench(capacity=150)
    bench.decoding(0, 10, context=100, tokens=5)
    bench.queue.at(10**9, lambda _: bench.worker.close(15, 10, keep=True), None)
    bench.decoding(2, 20, context=100, tokens=5)
    bench.queue.run()
    evicted = [e for _, e in bench.told if isinstance(e, ev.CacheEvicted)]
    assert evicted[0].session == "s10"
    assert bench.worker.evicted_tokens > 0
    assert bench.worker.held_tokens <= 150


def test_out_of_room_the_newest_sequence_is_preempted_and_finishes_later() -> None:
    bench = Bench(capacity=400)
    bench.decoding(0, 10, context=150, tokens=80)
    bench.decoding(0.001, 20, context=150, tokens=80)
    bench.queue.at(3 * 10**8, lambda _: bench.worker.close(15, 10, keep=False), None)
    bench.queue.run()
    assert bench.worker.preemptions == 1
    assert len(bench.instants[11]) == len(bench.instants[21]) == 80
    assert bench.instants[21] == sorted(bench.instants[21])
    assert bench.instants[21][-1] > 3 * 10**8
    firsts = [e.first for _, e in bench.told if isinstance(e, ev.TokensDecoded) and e.work == 21]
    counts = [e.count for _, e in bench.told if isinstance(e, ev.TokensDecoded) and e.work == 21]
    assert firsts[1:] == [first + count for first, count in zip(firsts, counts, strict=True)][:-1]


def test_a_sequence_that_can_never_fit_fails_instead_of_hanging() -> None:
    bench = Bench(capacity=120)
    bench.decoding(0, 10, context=100, tokens=80)
    bench.queue.run()
    assert isinstance(bench.told[-1][1], ev.WorkFailed)


def test_progress_tells_what_is_made_and_leaves_the_last_token_to_the_end() -> None:
    bench = Bench()
    bench.decoding(0, 10, context=100, tokens=50)
    told: list[ev.TokensDecoded] = []

    def ask(_: None) -> None:
        answer = bench.worker.progress(11, bench.queue.now_ns)
        if answer is not None:
            told.append(answer[0])

    for at_ms in (0, 20, 20, 45):
        bench.queue.at(at_ms * 10**6, ask, None)
    bench.queue.run()
    assert [e.first for e in told] == [1, told[0].first + told[0].count]
    assert (
        sum(e.count for _, e in bench.told if isinstance(e, ev.TokensDecoded)) + sum(e.count for e in told)
        == 50
    )


def test_a_cancelled_sequence_leaves_the_batch_at_once() -> None:
    bench = Bench()
    bench.decoding(0, 10, context=100, tokens=1000)
    bench.decoding(0, 20, context=100, tokens=100)
    bench.queue.at(50 * 10**6, lambda _: bench.worker.cancel(11), None)
    bench.queue.at(50 * 10**6, lambda _: bench.worker.close(15, 10, keep=True), None)
    bench.queue.run()
    assert len(bench.instants[21]) == 100
    assert bench.worker.running == 0
    assert bench.worker.cache.tokens == pytest.approx(148, abs=2)


def test_what_is_posted_runs_at_the_end_of_the_step_under_way_and_shares_the_next_one() -> None:
    bench = Bench()
    bench.decoding(0, 10, context=100, tokens=200)
    heard: list[float] = []
    session = chain("s20", 0, [(100, 5)])

    def arrive(_: None) -> None:
        bench.worker.between_steps(begin)

    def begin() -> None:
        heard.append(bench.queue.now_ns)
        bench.worker.open(20, "r20", session, 0, 99, prefill=False)
        bench.worker.imported(20, 99)
        bench.worker.decode(21, 20, 100, 0, 5)

    bench.queue.at(50_030_000, arrive, None)
    bench.queue.run()
    first, second = bench.instants[11], bench.instants[21]
    assert heard[0] in first, "at the end of a step"
    assert heard[0] > 50_030_000
    assert second[0] == first[first.index(heard[0]) + 1], "computed in the very next step"


def test_an_idle_worker_takes_what_is_posted_at_once() -> None:
    bench = Bench()
    heard: list[int] = []
    bench.queue.at(77, lambda _: bench.worker.between_steps(lambda: heard.append(bench.queue.now_ns)), None)
    bench.queue.run()
    assert heard == [77]
