"""Transports of KV behind the port `harness.kv_transport`."""

from __future__ import annotations

import importlib
from typing import Final

from harness.kv_transport import KvTransport, TransportError

OWN: Final = "tcp"
"""The workers' own connections: no transport is needed."""
_TRANSPORTS: Final = {"nixl": "adapters.transports.nixl"}
KNOWN: Final = (OWN, *_TRANSPORTS)


def load_transport(name: str, worker: str) -> KvTransport | None:
    """The transport called `name` for this worker; None for the workers' own connections. Raises
    TransportError with the known names, or with what is missing for it."""
    if name == OWN:
        return None
    module = _TRANSPORTS.get(name)
    if module is None:
        raise TransportError(f"transport {name!r} is not known; known: {', '.join(KNOWN)}")
    transport: KvTransport = importlib.import_module(module).load(worker)
    return transport
