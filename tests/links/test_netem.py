"""The netem driver passes the conformance suite, on a kernel with sch_netem or in the guest."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapters.links import probe
from tests.links.packets import PacketConformance

GUEST = "User Mode Linux" in Path("/proc/cpuinfo").read_text()
"""Both ends and the middle on one slow CPU: the shaping is exact there, the traffic must be light."""

pytestmark = [pytest.mark.netem, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def _kernel_with_netem():
    """A true skip: test_in_guest runs this file in a guest, and fails where it cannot."""
    finding = asyncio.run(probe("netem"))
    if not finding.usable and not GUEST:
        pytest.skip(f"runs in the guest: {finding.reason}")


class TestNetem(PacketConformance):
    driver = "netem"
    rtt_tolerance_ms = 1.0
    delays_ms = (1, 10, 75)
    rates_mbit = (10, 20) if GUEST else (50, 200, 500)
    rate_seconds = 5.0
    payload_rate_mbit = 20 if GUEST else 50
    shared_rate_mbit = 5 if GUEST else 20
    interval_ms = 4.0 if GUEST else 1.0
    byte_overhead = (1.0, 1.1)
