"""Joins what parts of a trace share: a head that an earlier part has sent is not new in a later one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workloads.native_format import LISTED_SCOPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.chains import Chains


class HeadLinks:
    """Knows which row of the file was first to send each shared scope from its beginning."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int]] = {}  # scope code → row, blocks

    def linked(
        self, chains: Chains, code: NDArray[np.int32], first_row: int
    ) -> tuple[Chains, NDArray[np.int32]]:
        """The part's chains, rows counted from the file's start, linked to what earlier parts sent."""
        parent = np.where(chains.parent_row >= 0, chains.parent_row + first_row, -1)
        shared = chains.shared.copy()
        kept = np.ones(len(code), bool)
        run_row = chains.run_row
        leading = chains.run_start[:-1][run_row] == np.arange(len(code))
        opens = leading & (code >= LISTED_SCOPES) & (shared[run_row] == 0)
        for run in np.flatnonzero(opens & (chains.run_first == 0) & (chains.run_at < 0)).tolist():
            row, blocks = int(run_row[run]), int(chains.run_blocks[run])
            known = self._first.setdefault(int(code[run]), (first_row + row, blocks))
            if known[0] < first_row and known[1] == blocks:
                kept[run] = False
                parent[(chains.parent_row == row) & (chains.shared <= blocks)] = known[0]
                parent[row], shared[row] = known[0], blocks
        counts = np.bincount(run_row[kept], minlength=len(shared))
        joined = replace(
            chains,
            parent_row=parent,
            shared=shared,
            run_start=np.concatenate(([0], np.cumsum(counts))),
            run_scope=chains.run_scope[kept],
            run_blocks=chains.run_blocks[kept],
            run_first=chains.run_first[kept],
            run_at=chains.run_at[kept],
        )
        return joined, code[kept]
