"""KV of one sequence on its way out while it is computed, cut at layers."""

from __future__ import annotations

import zlib

from adapters.engines import envelope
from harness.engine import KvPiece, KvSink, SeqId


class LayerStream:
    """Wraps a step's layers so that together they are the blob that `export_kv` would have given."""

    def __init__(self, seq: SeqId, layout_hash: str, n_layers: int) -> None:
        self._seq = seq
        self._layout_hash = layout_hash
        self._n_layers = n_layers
        self.sinks: list[KvSink] = []
        self._crc = 0

    def send(self, layer: int, p0: int, p1: int, data: bytes) -> None:
        """Layer `layer` of [p0, p1). Layers come in order."""
        payload_bytes = self._n_layers * len(data)
        blob_bytes = envelope.HEADER_BYTES + payload_bytes + envelope.TRAILER_BYTES
        self._crc = zlib.crc32(data, self._crc if layer else 0)
        if layer == 0:
            data = envelope.header(self._layout_hash, p0, p1, payload_bytes) + data
        if layer == self._n_layers - 1:
            data += envelope.trailer(self._crc)
        piece = KvPiece(self._seq, p0, p1, layer, self._n_layers, blob_bytes, data)
        for sink in self.sinks:
            sink(piece)
