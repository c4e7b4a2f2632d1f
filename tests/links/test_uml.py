"""The uml driver passes the conformance suite on this machine, whatever its own kernel has."""

from __future__ import annotations

import pytest

from tests.links.packets import PacketConformance

pytestmark = [pytest.mark.netem, pytest.mark.timeout(300)]


class TestUml(PacketConformance):
    driver = "uml"
    rtt_tolerance_ms = 1.0
    delays_ms = (1, 10, 75)
    rates_mbit = (50, 200, 500)
    rate_seconds = 5.0
    byte_overhead = (1.0, 1.1)
