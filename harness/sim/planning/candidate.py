"""One cluster that could be bought, and what it costs an hour."""

from __future__ import annotations

import msgspec


class Slo(msgspec.Struct, frozen=True):
    """A request counts when it meets both; `share` of the requests must."""

    ttft_s: float
    tpot_ms: float
    share: float = 0.99


class Prices(msgspec.Struct, frozen=True):
    """Per device and hour, and per Gbit/s of line and hour; any currency."""

    a: float
    b: float
    line_gbit: float

    def with_premium(self, premium: float) -> Prices:
        """B's price as A's and a premium."""
        return Prices(self.a, self.a * (1 + premium), self.line_gbit)


class Candidate(msgspec.Struct, frozen=True, order=True):
    """Numbers of workers with their devices, in A (prefill, relay) and B (main), and how they are used."""

    prefill_workers: int
    prefill_devices: int
    relay_workers: int
    relay_devices: int
    main_workers: int
    main_devices: int
    mode: str
    relay_bound_ms: float
    line_gbit: float

    @property
    def a_devices(self) -> int:
        return self.prefill_workers * self.prefill_devices + self.relay_workers * self.relay_devices

    @property
    def b_devices(self) -> int:
        return self.main_workers * self.main_devices

    def cost(self, prices: Prices) -> float:
        return self.a_devices * prices.a + self.b_devices * prices.b + self.line_gbit * prices.line_gbit

    def __str__(self) -> str:
        relay = f" + {self.relay_workers}x{self.relay_devices} RLD" if self.relay_workers else ""
        bound = f", bound {self.relay_bound_ms:g} ms" if self.relay_workers else ""
        in_a = f"{self.prefill_workers}x{self.prefill_devices} P{relay}"
        in_b = f"{self.main_workers}x{self.main_devices} MD"
        return f"{in_a} | {in_b}, {self.mode}{bound}, {self.line_gbit:g} Gbit/s"


class Evaluation(msgspec.Struct, frozen=True):
    """A candidate and the requests a second that it serves within the SLO."""

    candidate: Candidate
    rate: float
    cost: float

    @property
    def bcr(self) -> float:
        """Benefit-cost ratio: requests a second within the SLO per unit of cost and hour."""
        return self.rate / self.cost


def pareto(evaluations: list[Evaluation]) -> list[Evaluation]:
    """Those that no other beats in both cost and rate, cheapest first."""
    front: list[Evaluation] = []
    for evaluation in sorted(evaluations, key=lambda e: (e.cost, -e.rate)):
        if evaluation.rate > (front[-1].rate if front else 0.0):
            front.append(evaluation)
    return front
