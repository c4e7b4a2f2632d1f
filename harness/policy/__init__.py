"""The policy core of PDD: one pure state machine that decides for the live cluster and for the simulator.

`Policy.handle(now_ns, event) -> actions` is all there is. It has no clock, no I/O, no randomness and
no logging; a driver turns actions into work and reports what came of it as later events.
See `phase.py` for the theory of operation.
"""
