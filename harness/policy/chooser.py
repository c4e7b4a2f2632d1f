"""One-shot or catch-up: the choice at the moment MD's KV has landed."""

from __future__ import annotations

from typing import assert_never

from harness.policy.config import HandoffConfig
from harness.policy.roles import HandoffMode, HandoffPayload


class HandoffChooser:
    """Remembers the last dynamic choice, so that load near a threshold does not make it flap."""

    def __init__(self, config: HandoffConfig) -> None:
        self._config = config
        self._spare = True

    def choose(self, waiting_tokens: int, relay_load_share: float) -> HandoffMode:
        """Mode for a handoff of `waiting_tokens` ids while RLD's slots are used to `relay_load_share`."""
        if self._config.payload is HandoffPayload.KV_TRANSFER:
            return HandoffMode.ONE_SHOT
        if relay_load_share >= self._config.busy_share:
            self._spare = False
        elif relay_load_share < self._config.spare_share:
            self._spare = True
        match self._config.mode:
            case HandoffMode.ONE_SHOT:
                return HandoffMode.ONE_SHOT
            case HandoffMode.CATCH_UP:
                spare = True
            case HandoffMode.DYNAMIC:
                spare = self._spare
            case _:
                assert_never(self._config.mode)
        if spare and waiting_tokens > self._config.catch_up_threshold_tokens:
            return HandoffMode.CATCH_UP
        return HandoffMode.ONE_SHOT
