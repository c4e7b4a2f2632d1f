"""What the person knows about a trace that its file does not say."""

from __future__ import annotations

import enum

import msgspec


class Rows(enum.StrEnum):
    """What a row's input length counts in formats that leave it open."""

    CUMULATIVE = "cumulative"  # the whole prompt, history included
    DELTA = "delta"  # only what this turn adds


class ReadOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options that readers share; each reader uses those its format needs.

    block_size   tokens a block id stands for; None: told by the file, inferred, or the format's usual
    rows         cumulative or delta rows; None: the format's usual
    keep_forks   keep the sessions that the file itself marks as duplicates of a fork
    seed         for spreading quantised timestamps inside their tick
    """

    block_size: int | None = None
    rows: Rows | None = None
    keep_forks: bool = False
    seed: int = 0
