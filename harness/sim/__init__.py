"""The virtual-time driver of the policy core: cost models for engines, one event queue for a clock.

`Simulation` turns every action of `harness.policy.Policy` into later events; it decides nothing itself.
Deterministic: the same inputs and seed give the same bits on the same machine class. See docs/simulation.md.
"""
