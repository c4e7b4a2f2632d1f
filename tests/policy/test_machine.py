"""The policy under hypothesis: it looks for the shortest history that breaks a promise."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.policy.roles import Role
from tests.policy.schedule import random_config, to_rest
from tests.policy.world import World

pick = st.integers(0, 1 << 16)


class PolicyMachine(RuleBasedStateMachine):
    """Every rule is something the outside world may do at any time; the world checks every action."""

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        rng = random.Random(seed)
        config = random_config(rng)
        self.world = World(config, rng, p=1, rld=1, md=2, solo=int(config.colocated))
        self.prompts: dict[str, int] = {}

    @rule(session=st.sampled_from(["a", "b"]), grows=st.integers(1, 30), tokens=st.integers(1, 20))
    def arrive(self, session: str, grows: int, tokens: int) -> None:
        self.prompts[session] = self.prompts.get(session, 0) + grows
        self.world.arrive(session, self.prompts[session], tokens)

    @precondition(lambda self: self.world.workers)
    @rule(which=pick, times=st.integers(1, 8))
    def deliver(self, which: int, times: int) -> None:
        names = sorted(self.world.workers)
        for _ in range(times):
            self.world.deliver(names[which % len(names)])

    @precondition(lambda self: self.world.workers)
    @rule(which=pick)
    def kill(self, which: int) -> None:
        names = sorted(self.world.workers)
        self.world.kill(names[which % len(names)])

    @rule(role=st.sampled_from([Role.PREFILL, Role.RELAY_DECODE, Role.MAIN_DECODE]))
    def join(self, role: Role) -> None:
        self.world.join(role)

    @precondition(lambda self: self.world.policy.requests)
    @rule(which=pick)
    def leave(self, which: int) -> None:
        names = sorted(self.world.policy.requests)
        self.world.leave(names[which % len(names)])

    @precondition(lambda self: self.world.deadlines)
    @rule(which=pick)
    def expire(self, which: int) -> None:
        names = sorted(self.world.deadlines)
        self.world.expire(names[which % len(names)])

    @invariant()
    def a_settled_request_is_forgotten(self) -> None:
        if hasattr(self, "world"):
            assert not any(self.world.clients[r].settled for r in self.world.policy.requests)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            to_rest(self.world)


PolicyMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_no_history_breaks_a_promise = PolicyMachine.TestCase
