"""Small cells and workloads for the simulator's tests."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from harness.costs.deployment import Deployment
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.config import MODES, PolicyConfig
from harness.policy.roles import Role
from harness.sim.cell import SimCell, SimWorkerSpec
from harness.sim.request import SimRequest
from harness.sim.session import PlainSession, PlainTurn
from harness.sim.simulation import Simulation
from harness.sim.wan import LineModel

LINE = LineModel(rate_bytes_s=1e6, rtt_s=0.02, efficiency=1.0, connections=4, slow_start=False)


def deployment(**changes: float) -> Deployment:
    """A toy device: 1 ms a decoding step, 1,000 prompt tokens a second, 100 bytes a token."""
    values: dict[str, object] = {
        "name": "toy",
        "vocab_size": 1000,
        "linear_s_per_token": 1e-3,
        "floor_s": 0.01,
        "attention_s_per_pair": 0.0,
        "weights_s": 1e-3,
        "kv_read_s_per_token": 1e-8,
        "decode_s_per_token": 1e-5,
        "overhead_s": 0.0,
        "decode_kernel_tokens": 16,
        "kv_bytes_per_token": 100.0,
        "recent_tokens": 0,
        "recent_extra_bytes_per_token": 0.0,
        "kv_room_bytes": 100.0 * 100_000,
        "fabric_bytes_s": 1e9,
        "price_usd_h": 1.0,
    }
    return Deployment(**(values | changes))  # type: ignore[arg-type]


def cell(
    policy: PolicyConfig | str = "pdd",
    *,
    p: int = 1,
    rld: int = 1,
    md: int = 1,
    line: LineModel = LINE,
    capacity_tokens: int | None = None,
    max_sequences: int = 50,
    chunk_tokens: int = 64,
    **changes: object,
) -> SimCell:
    main_cluster = "B"
    if isinstance(policy, str):
        main_cluster, policy = MODES[policy].main_cluster, MODES[policy].policy
    roles = (
        [("solo", Role.COLOCATED, "A")] * md
        if policy.colocated
        else [("p", Role.PREFILL, "A")] * p
        + [("rld", Role.RELAY_DECODE, "A")] * rld
        + [("md", Role.MAIN_DECODE, main_cluster)] * md
    )
    workers = tuple(
        SimWorkerSpec(f"{name}{i}", role, cluster, deployment(), max_sequences, chunk_tokens, capacity_tokens)
        for i, (name, role, cluster) in enumerate(roles)
    )
    base = SimCell(policy, workers, line, token_instants=True, sample_s=None)
    return msgspec.structs.replace(base, **changes)


def chain(
    name: str,
    start_ns: int,
    turns: list[tuple[int, int]],
    *,
    think_ns: int = 0,
    prefix: tuple[str, int] | None = None,
) -> PlainSession:
    """A plain conversation of (new tokens, answer tokens)."""
    out: list[PlainTurn] = []
    for k, (new, answer) in enumerate(turns):
        if not out:
            out.append(PlainTurn(0, new, answer))
        else:
            before = out[-1]
            prompt = before.prompt_tokens + before.output_tokens + new
            out.append(
                PlainTurn(
                    k,
                    prompt,
                    answer,
                    k - 1,
                    before.prompt_tokens,
                    True,
                    before.output_tokens,
                    think_ns,
                    (k - 1,),
                )
            )
    return PlainSession(name, start_ns, tuple(out), prefix)


def random_sessions(rng: random.Random, n: int) -> Iterator[PlainSession]:
    """Conversations with context breaks and branches."""
    start_ns = 0
    for i in range(n):
        start_ns += rng.randrange(0, 200_000_000)
        turns: list[PlainTurn] = []
        for k in range(rng.randrange(1, 6)):
            answer = rng.randrange(1, 40)
            if not turns:
                turns.append(PlainTurn(0, rng.randrange(2, 400), answer))
                continue
            base = turns[rng.randrange(max(0, k - 2), k)]
            keeps = rng.random() < 0.7
            kept = base.prompt_tokens if keeps else rng.randrange(0, base.prompt_tokens + 1)
            said = base.output_tokens if keeps else 0
            new = rng.randrange(1, 200)
            after = (base.turn,) if keeps or rng.random() < 0.5 else ()
            turns.append(
                PlainTurn(
                    k, kept + said + new, answer, base.turn, kept, keeps, said, rng.randrange(0, 10**8), after
                )
            )
        yield PlainSession(f"s{i}", start_ns, tuple(turns), ("head", 50) if rng.random() < 0.3 else None)


class Witness:
    """Checks every token on its way to the client and keeps what happened."""

    wants_decisions = True

    def __init__(self) -> None:
        self.log: list[tuple[int, ev.Event, tuple[act.Action, ...]]] = []
        self.ended_requests: list[SimRequest] = []
        self.emitted: dict[str, int] = {}
        self.abandoned = 0

    def decided(self, now_ns: int, event: ev.Event, actions: tuple[act.Action, ...]) -> None:
        self.log.append((now_ns, event, actions))
        for action in actions:
            if isinstance(action, act.Emit):
                assert action.first == self.emitted.get(action.request, 0), "a token index twice or skipped"
                self.emitted[action.request] = action.first + action.count

    def ended(self, request: SimRequest) -> None:
        self.ended_requests.append(request)

    def unsent(self, *_: object, **__: object) -> None:
        self.abandoned += 1

    def sample(self, *_: object) -> None:
        pass


def check_rest(sim: Simulation, *, deaths: bool) -> None:
    """Nothing is owned any more, and the policy's books are the workers' truth."""
    assert not sim.requests, list(sim.requests)
    assert not sim.policy.requests
    assert len(sim.queue) == 0
    for worker in sim.workers.values():
        if not worker.alive:
            continue
        assert worker.running == 0
        assert worker.waiting == 0
        if deaths:
            continue  # a request given up by its deadline may leave a sequence open
        assert list(worker.sequences) == [], worker.name
        assert worker.open_tokens == 0
        assert sim.policy.dispatch.roster[worker.name].sequences == 0
