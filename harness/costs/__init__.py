"""What a step of an accelerator costs: pure functions over published, derived and fitted figures.

The emulated engine sleeps by them and the simulator advances its clock by them, so both mean the same.
"""
