"""The netem driver passes the conformance suite, on a kernel with sch_netem or in the guest."""

from __future__ import annotations

import pytest

from tests.links.packets import PacketConformance

pytestmark = [pytest.mark.netem, pytest.mark.timeout(300)]


class TestNetem(PacketConformance):
    driver = "netem"
    rtt_tolerance_ms = 1.0
    delays_ms = (1, 10, 75)
    rates_mbit = (50,)
    rate_seconds = 5.0
    byte_overhead = (1.0, 1.1)
