"""Examples of hypothesis run without a deadline here: the machine's other work is not the code's slowness."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("workloads", deadline=None, print_blob=True)
settings.load_profile("workloads")
