"""Cost profiles and pure cost functions: what a step, a range of KV and an hour cost.

The emulated engine sleeps by them and the simulator advances its clock by them, so both mean the same.

    deploy("v4-class", "h100x16")                   -> Deployment: step_s, kv_bytes, capacity_tokens, ...
    load_model(name), load_accelerator(name)        -> profiles, every value a Quantity with its source
    load_line(name)                                 -> Line, what a pool of TCP connections gets out of a WAN

Names are those of profiles/*/*.toml, or a path ending in .toml. ProfileError is one line.
"""
