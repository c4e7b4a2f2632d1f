"""Whatever happens in whatever order: one gapless stream, nothing left owned, the books true."""

from __future__ import annotations

import os

import pytest

from tests.policy.schedule import describe, run_schedule

_SCHEDULES = 10_000
_BATCHES = 10
_FIRST_SEED = int(os.environ.get("PDDBENCH_SEED", "0"))


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_random_schedules_keep_every_promise(batch: int) -> None:
    per_batch = _SCHEDULES // _BATCHES
    for seed in range(_FIRST_SEED + batch * per_batch, _FIRST_SEED + (batch + 1) * per_batch):
        try:
            run_schedule(seed)
        except Exception as error:
            error.add_note(
                f"replay: PDDBENCH_SEED={seed} pytest 'tests/policy/test_schedules.py' -k '[0]' (first seed)"
            )
            raise


def test_a_seed_replays_to_the_same_end() -> None:
    first, second = run_schedule(4711), run_schedule(4711)
    assert describe(first) == describe(second)
    assert first.now_ns == second.now_ns
    assert [(c.got, c.ended) for c in first.clients.values()] == [
        (c.got, c.ended) for c in second.clients.values()
    ]
