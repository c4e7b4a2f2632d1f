"""Requests of one repetition as rows, with the router's row beside each, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from reports.run import Run

pc: Final[Any] = pyarrow.compute

Row = dict[str, Any]


def joined(run: Run, cell: str, rep: int, *, warmup: bool = False) -> Iterator[tuple[Row, Row | None]]:
    """(requests row, handoffs row or None) in recorded order; warm-up only when asked for."""
    router = run.table("handoffs", cell, rep)
    keys = router["request_id"].combine_chunks()
    for batch in run.batches("requests", cell, rep, batch_rows=1 << 13):
        if not warmup:
            batch = batch.filter(pc.equal(batch.column("phase").cast(pa.string()), "measure"))  # noqa: PLW2901
        where = pc.index_in(batch.column("request_id"), value_set=keys)
        theirs = router.take(where).to_pylist()
        known = where.is_valid().to_pylist()
        for ours, other, there in zip(batch.to_pylist(), theirs, known, strict=True):
            yield ours, other if there else None
