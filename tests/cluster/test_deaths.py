"""A worker of each role dies in each phase of a request: all tokens once, or one clear error."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from harness.link import Direction, LinkProfile
from harness.policy.phase import Phase
from harness.policy.roles import Role
from tests.cluster.cluster import Answer, Cluster, cluster

# A worker that dies leaves its sockets as a crash does: nobody closes them.
pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROMPT = [random.Random(7).randrange(300, 500) for _ in range(300)]
TOKENS = 900
SLOW = LinkProfile("slow", Direction(delay_ms=5, rate_mbit=25), Direction(delay_ms=5, rate_mbit=25))
POLICY: dict[str, Any] = {
    "routing": {"relay_bound_ms": 0.0},
    "handoff": {
        "catch_up_threshold_tokens": 1,
        "switch_tokens": 0,
        "catch_up_batch_tokens": 4,
        "catch_up_batches": 3,
    },
    "deadline_s": 30.0,
}
ROLES = (Role.PREFILL, Role.RELAY_DECODE, Role.MAIN_DECODE)
PHASES = (Phase.LOADING, Phase.RELAYING, Phase.CATCHING_UP, Phase.SWITCHING, Phase.STREAMING, Phase.SETTLING)
REQUEST = "victim"


def crash_when(running: Cluster, phase: Phase, role: Role) -> list[str]:
    """Crash the worker that serves REQUEST in `role` as soon as the request is in `phase`."""
    policy, crashed = running.router.policy, []
    handle = policy.handle

    def watched(now_ns: int, event: Any) -> Any:
        actions = handle(now_ns, event)
        req = policy.requests.get(REQUEST)
        if req is not None and req.phase is phase and not crashed:
            leg = {Role.PREFILL: req.prefill, Role.RELAY_DECODE: req.relay, Role.MAIN_DECODE: req.main}[role]
            name = leg.worker if leg is not None else f"{role.value}-0"
            crashed.append(name)
            asyncio.get_running_loop().call_soon(running.crash, name)
        return actions

    policy.handle = watched  # type: ignore[method-assign]
    return crashed


async def ask(
    tmp_path: Path, mode: str, counts: dict[Role, int], phase: Phase | None, role: Role
) -> tuple[Answer, bool]:
    async with cluster(tmp_path, mode, policy=POLICY, counts=counts, link=SLOW, rate_bytes_s=1e5) as running:
        crashed = crash_when(running, phase, role) if phase is not None else ["none"]
        async with asyncio.timeout(40):
            answer = await running.ask(
                PROMPT, TOKENS, request=REQUEST, seed=5, temperature=0.8, ignore_eos=True
            )
            await running.settled()
        return answer, bool(crashed)


def ask_until_reached(tmp_path: Path, counts: dict[Role, int], phase: Phase, role: Role) -> Answer:
    """A fast relay may end the answer before the phase comes: then nobody died, and it is tried again."""
    for attempt in range(5):
        answer, reached = asyncio.run(ask(tmp_path / str(attempt), "pdd-catch-up", counts, phase, role))
        if reached:
            return answer
    raise AssertionError(f"{phase} was never reached")


def test_any_role_may_die_in_any_phase(tmp_path: Path) -> None:
    whole, _ = asyncio.run(
        ask(tmp_path / "whole", "pdd-catch-up", dict.fromkeys(ROLES, 1), None, Role.PREFILL)
    )
    assert len(whole.ids) == TOKENS
    table = Table(
        "phase", *(f"{role} dies, one spare" for role in ROLES), *(f"{role} dies, no spare" for role in ROLES)
    )
    for phase in PHASES:
        cells = []
        for spare in (1, 0):
            for role in ROLES:
                counts = dict.fromkeys(ROLES, 1 + spare)
                path = tmp_path / f"{phase}-{role}-{spare}"
                answer = ask_until_reached(path, counts, phase, role)
                case = f"{role} dies while {phase}, {spare} spare"
                assert answer.ids == whole.ids[: len(answer.ids)], f"{case}: wrong, doubled or missing tokens"
                if answer.error is None:
                    assert len(answer.ids) == TOKENS, f"{case}: ended early without an error"
                    cells.append("all tokens")
                else:
                    assert not spare, f"{case}: {answer.error}"
                    cells.append(f"error after {len(answer.ids)}")
        table.add_row(phase, *cells)
    Console(width=180).print(table)


def test_a_client_that_goes_away_leaves_nothing_running(tmp_path: Path) -> None:
    async def leave() -> int:
        async with cluster(tmp_path, "pdd", policy=POLICY, link=SLOW, rate_bytes_s=1e5) as running:
            asking = asyncio.create_task(running.ask(PROMPT, 400, request=REQUEST))
            async with asyncio.timeout(20):
                while REQUEST not in running.router.policy.requests:
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                await running.settled()
            return sum(w._thread.engine.usage().running for w in running.workers.values())

    assert asyncio.run(leave()) == 0
