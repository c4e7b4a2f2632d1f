"""What a load generator replays: sessions of turns, each told as "keep this much, append these tokens".

A live replay sends the answers it really got, so a prompt is not the recorded one but
`kept part of the base's prompt + the base's live answer + new tokens`. The new tokens are spelled from
block ids by a keyed hash (workloads.spelling): equal blocks, equal tokens; `salt` makes every repetition's
tokens new while the structure stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from workloads.spelling import Spelling, word
from workloads.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A run of blocks under one key: ids counting up from `first_id`, or listed."""

    key: int
    first_id: int
    blocks: int
    ids: tuple[int, ...] | None = None

    def words(self) -> NDArray[np.uint64]:
        """64-bit word of each block."""
        if self.ids is not None:
            return word(self.key, np.array(self.ids, np.uint64))
        return word(self.key, np.uint64(self.first_id) + np.arange(self.blocks, dtype=np.uint64))


@dataclass(frozen=True, slots=True)
class ReplayTurn:
    """One request to send.

    turn                 index in the session
    after                turns of this session that must have ended; () for a root
    delay_ns             wait after the last of them ended; for roots: from the session's start
    arrival_ns           recorded instant from the trace's start, None if not told
    base                 turn whose prompt's first `kept_tokens` tokens begin this prompt; None: all is new
    keeps_answer         the base's live answer follows the kept prompt, which is then the whole of it
    base_output_tokens   planned length of that answer, 0 without it
    new_tokens           tokens appended after that
    expected_hit_tokens  prompt tokens that an earlier request of the run sent as the same prefix and that a
                         prefix cache of the plan's size still holds
    """

    turn: int
    after: tuple[int, ...]
    delay_ns: int
    arrival_ns: int | None
    base: int | None
    kept_tokens: int
    keeps_answer: bool
    base_output_tokens: int
    new_tokens: int
    output_tokens: int
    expected_hit_tokens: int
    tenant: str | None
    priority: int
    skip_tokens: int
    pieces: tuple[Piece, ...]
    spelling: Spelling

    @property
    def prompt_tokens(self) -> int:
        """Planned prompt length."""
        return self.kept_tokens + self.base_output_tokens + self.new_tokens

    def new_ids(self) -> NDArray[np.uint32]:
        """Token ids to append: uint32[new_tokens]. Compute ahead of the send."""
        if not self.new_tokens:
            return np.zeros(0, np.uint32)
        words = np.concatenate([piece.words() for piece in self.pieces])
        return self.spelling.tokens(words)[self.skip_tokens : self.skip_tokens + self.new_tokens]


@dataclass(frozen=True, slots=True)
class ReplaySession:
    """One session; shared_prefix names the head it has in common with others and the head's tokens."""

    session_id: str
    start_ns: int
    turns: tuple[ReplayTurn, ...]
    shared_prefix: tuple[str, int] | None


class PlanHeader(msgspec.Struct, frozen=True):
    """Where a plan comes from and what to expect of it."""

    trace: str
    trace_format: str
    digest: str
    block_size: int
    vocabulary: Vocabulary
    seed: int
    salt: str
    token_scale: float
    time_scale: float
    gap_cap_ns: int | None
    sessions: int
    turns: int
    dropped_sessions: int
    dropped_turns: int
    max_context_tokens: int | None
    prefix_known: bool
    expected_request_hit: float | None  # mean over requests of expected hit ÷ prompt
    expected_token_hit: float | None  # Σ expected hit ÷ Σ prompt
    warnings: tuple[str, ...]
    cache_tokens: int | None = None  # size of the cache that the expected hits are of; None: infinite


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A header and sessions in order of start."""

    header: PlanHeader
    sessions: tuple[ReplaySession, ...]

    @property
    def spelling(self) -> Spelling:
        return Spelling(self.header.vocabulary, self.header.block_size)
