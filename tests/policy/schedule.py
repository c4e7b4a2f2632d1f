"""Random schedules: everything that can happen, in any order, from one seed."""

from __future__ import annotations

import random

import msgspec

from harness.policy.config import HandoffConfig, PolicyConfig, RoutingConfig
from harness.policy.core import Policy
from harness.policy.roles import HandoffMode, HandoffPayload, Role, TransferStart
from tests.policy.world import World


def random_config(rng: random.Random) -> PolicyConfig:
    """Any combination of switches, with small thresholds so that every branch is taken often."""
    return PolicyConfig(
        colocated=rng.random() < 0.05,
        relay=rng.random() < 0.8,
        append=rng.random() < 0.2,
        local=rng.random() < 0.15,
        decode_radix_cache=rng.random() < 0.8,
        odd_traffic_filter=rng.random() < 0.5,
        back_fill=rng.random() < 0.5,
        transfer=rng.choice(list(TransferStart)),
        handoff=HandoffConfig(
            payload=rng.choice(list(HandoffPayload)),
            mode=rng.choice(list(HandoffMode)),
            catch_up_threshold_tokens=rng.choice([1, 4]),
            catch_up_batch_tokens=rng.choice([2, 5]),
            switch_tokens=rng.choice([0, 2]),
            catch_up_batches=rng.choice([1, 4]),
        ),
        routing=RoutingConfig(relay_bound_ms=rng.choice([0.0, 30.0]), relay_slots=rng.choice([None, 2])),
        max_retries=rng.choice([0, 2]),
    )


def run_schedule(seed: int, policy: type[Policy] = Policy) -> World:
    """One random schedule to its end; returns the world at rest, checked."""
    rng = random.Random(seed)
    config = random_config(rng)
    world = World(
        config,
        rng,
        p=rng.choice([1, 2]),
        rld=rng.choice([0, 1, 2]),
        md=rng.choice([1, 2]),
        solo=int(config.colocated),
        policy=policy,
    )
    prompts: dict[str, int] = {}
    for _ in range(rng.randrange(20, 120)):
        _one_step(world, rng, prompts)
    to_rest(world)
    return world


def to_rest(world: World) -> None:
    """Let everything end, and check that it has."""
    world.run_dry()
    for _ in range(3):
        for request in list(world.policy.requests):  # a request left waiting ends by its deadline
            if request in world.deadlines:
                world.expire(request)
                world.run_dry()
    world.check_rest()


def _one_step(world: World, rng: random.Random, prompts: dict[str, int]) -> None:
    roll = rng.random()
    if roll < 0.12:
        session = f"s{rng.randrange(3)}"
        prompts[session] = prompts.get(session, 0) + rng.randrange(1, 40)
        world.arrive(session, prompts[session], rng.randrange(1, 30))
    elif roll < 0.15 and len(world.workers) > 1:
        world.kill(rng.choice(sorted(world.workers)))
    elif roll < 0.18:
        world.join(rng.choice([Role.PREFILL, Role.RELAY_DECODE, Role.MAIN_DECODE]))
    elif roll < 0.20 and world.policy.requests:
        world.leave(rng.choice(sorted(world.policy.requests)))
    elif roll < 0.22 and world.live_work:
        works = [
            w for w in sorted(world.live_work) if any(w in r.works for r in world.policy.requests.values())
        ]
        if works:
            world.fail(rng.choice(works))
    elif roll < 0.23 and world.deadlines:
        world.expire(rng.choice(sorted(world.deadlines)))
    elif world.workers:
        world.deliver(rng.choice(sorted(world.workers)))


def describe(world: World) -> str:
    return msgspec.json.encode(world.policy.config).decode()
