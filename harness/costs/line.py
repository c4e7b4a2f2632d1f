"""One line between the datacenters: what a pool of connections gets out of it, and what it costs."""

from __future__ import annotations

import msgspec

from harness.costs.figure import Figure


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wide-area line as the flow-level model sees it.

    A transfer i of the pool gets w_i * min(r_max, efficiency * rate / sum of w), w lognormal with
    `rate_sigma`; see harness.sim.wan."""

    name: str
    doc: str
    rate_bit_s: Figure
    rtt_s: Figure
    loss_share: Figure
    """Packet loss that TCP sees; 0: none."""
    efficiency: Figure
    """Payload ÷ line rate when the line is full."""
    connection_bit_s: Figure
    """Most that one connection carries (window, CPU, per-flow policing)."""
    connections: Figure
    """Size of the pool; further transfers wait in order."""
    rate_sigma: Figure
    """Spread of the connections' weights (sigma of the logarithm)."""
    price_per_hour: Figure

    @property
    def payload_bytes_s(self) -> float:
        """What a full line carries, in bytes of payload."""
        return self.efficiency.value * self.rate_bit_s.value / 8
