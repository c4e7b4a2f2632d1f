"""The tree columns of the native format, checked and put together as chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.builder import MAX_TOKENS
from workloads.chains import Chains
from workloads.errors import TraceError
from workloads.native_format import LISTED_SCOPES, OWN_SESSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.readers.native import NativeColumns


class ChainColumns:
    """The columns of the tree, checked."""

    def __init__(self, reader: NativeColumns, blocks: NDArray[np.int64]) -> None:
        self.reader = reader
        self.blocks = blocks
        self.rows = len(blocks)

    def chains(self, turn_start: NDArray[np.int64]) -> Chains:
        reader = self.reader
        parent_row = reader.numbers("parent_row", least=0)
        shared = reader.numbers("shared_blocks", least=0)
        self._check_links(parent_row, shared)
        odd, run_start, code = reader.integers("run_scope")
        same_rows, same, length = reader.integers("run_blocks")
        first_rows, first_start, first_column = reader.lists("run_first_id")
        if not all(
            np.array_equal(a, odd) and np.array_equal(b, run_start)
            for a, b in ((same_rows, same), (first_rows, first_start))
        ):
            raise TraceError(
                "run_scope, run_blocks and run_first_id must be of one length in every row", file=reader.path
            )
        self._check_lengths(run_start, length, (self.blocks - shared)[odd])
        listed = np.asarray(first_column.is_null().to_numpy(zero_copy_only=False), bool)
        first = first_column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        ids_rows, ids_start, ids_column = reader.lists("ids")
        sizes = np.where(listed, length, 0)
        told = np.concatenate(([0], np.cumsum(sizes)))[run_start]
        if not (np.array_equal(ids_rows, odd) and np.array_equal(told, ids_start)) or ids_column.null_count:
            raise TraceError(
                "must list the ids of the runs without run_first_id", file=reader.path, field="ids"
            )
        one = ~odd & (self.blocks > shared)
        counts = one.astype(np.int64)
        counts[odd] = np.diff(run_start)
        in_list = np.repeat(odd, counts)

        def merged(simple: NDArray[Any], runs: NDArray[Any]) -> NDArray[Any]:
            out = np.empty(len(in_list), runs.dtype)
            out[~in_list] = simple
            out[in_list] = runs
            return out

        session = np.repeat(np.arange(len(turn_start) - 1), np.diff(turn_start))
        return Chains(
            parent_row=parent_row,
            shared=shared,
            blocks=self.blocks,
            run_start=np.concatenate(([0], np.cumsum(counts))),
            run_scope=merged(
                1 + session[one],
                self._scopes(code, np.repeat(session[odd], np.diff(run_start)), len(turn_start) - 1),
            ),
            run_blocks=merged((self.blocks - shared)[one], length),
            run_first=merged(self._first_ids(one), first),
            run_at=merged(np.full(int(one.sum()), -1), np.where(listed, np.cumsum(sizes) - sizes, -1)),
            ids=ids_column.to_numpy(zero_copy_only=False).astype(np.uint64),
        )

    def _first_ids(self, one: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """First id of the rows whose own blocks are one run."""
        column: Any = self.reader.column("first_id").combine_chunks()
        told = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        if not np.array_equal(told, one):
            row = int(np.flatnonzero(told != one)[0])
            raise TraceError(
                "must be told exactly where a row has blocks of its own and no runs",
                file=self.reader.path,
                line=row,
                field="first_id",
            )
        ids: NDArray[np.uint64] = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)[one]
        return ids

    def _check_links(self, parent_row: NDArray[np.int64], shared: NDArray[np.int64]) -> None:
        check = self.reader.check
        has = parent_row >= 0
        check(parent_row < np.arange(self.rows), "parent_row", "must name an earlier row", parent_row)
        check(shared <= self.blocks, "shared_blocks", "exceeds the row's own blocks", shared)
        check(
            has == (shared > 0),
            "shared_blocks",
            "must be above 0 exactly where there is a parent_row",
            shared,
        )
        safe = np.where(has, parent_row, 0)
        reached = ~has | ((shared > shared[safe]) & (shared <= self.blocks[safe]))
        check(
            reached,
            "shared_blocks",
            "must lie on the blocks that the parent row is the first to send",
            shared,
        )

    def _check_lengths(
        self, run_start: NDArray[np.int64], length: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> None:
        if (length <= 0).any() or (length > MAX_TOKENS).any():
            raise TraceError(
                "must be above 0", file=self.reader.path, field="run_blocks", value=int(length.min())
            )
        total = np.concatenate(([0], np.cumsum(length)))
        own = total[run_start[1:]] - total[run_start[:-1]]
        self.reader.check(own == wanted, "run_blocks", "must add up to blocks - shared_blocks", own)

    def _scopes(
        self, code: NDArray[np.int64], session: NDArray[np.int64], sessions: int
    ) -> NDArray[np.int32]:
        """Index of each run's scope in ('', sessions..., listed...)."""
        bad = (code < 0) | (code >= LISTED_SCOPES + len(self.reader.metadata.scopes))
        if bad.any():
            raise TraceError(
                "names no scope of the file",
                file=self.reader.path,
                field="run_scope",
                value=int(code[bad][0]),
            )
        above = np.where(code >= LISTED_SCOPES, code - LISTED_SCOPES + 1 + sessions, 0)
        return np.where(code == OWN_SESSION, 1 + session, above).astype(np.int32)
