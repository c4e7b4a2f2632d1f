"""Rows of the journal say what happened in a hand-made history."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.config import MODES, HandoffConfig
from harness.policy.core import Policy
from harness.policy.journal import HandoffJournal, Row, decision_row
from harness.policy.roles import Role
from reports.schema import DECISIONS, HANDOFFS
from reports.writer import TableWriter
from tests.policy.schedule import run_schedule

MS = 1_000_000


def history(mode: str) -> Row:
    """A relayed request: 3 tokens from RLD, the rest from MD."""
    config = msgspec.structs.replace(
        MODES[mode].policy, handoff=HandoffConfig(payload=MODES[mode].policy.handoff.payload)
    )
    policy, journal, settled = Policy(config), HandoffJournal(), []

    def tell(now_ms: int, event: ev.Event) -> tuple[act.Action, ...]:
        actions = policy.handle(now_ms * MS, event)
        row = journal.observe(now_ms * MS, event, actions)
        if row is not None:
            settled.append(row)
        return actions

    def one(actions: tuple[act.Action, ...], kind: type, worker: str | None = None) -> int:
        (work,) = [
            a.work  # type: ignore[union-attr]
            for a in actions
            if isinstance(a, kind)
            and worker in (None, getattr(a, "worker", None), getattr(a, "target", None))
        ]
        return int(work)

    tell(0, ev.LinkMeasured(1e6, 20 * MS))
    for name, role, cluster in (
        ("p", Role.PREFILL, "A"),
        ("rld", Role.RELAY_DECODE, "A"),
        ("md", Role.MAIN_DECODE, "B"),
    ):
        tell(0, ev.WorkerJoined(name, role, cluster, 8, 1000.0))
    start = tell(10, ev.RequestArrived("r", "s", 1001, 10))
    tell(11, ev.Opened("r", one(start, act.Open, "rld"), 0))
    tell(12, ev.Opened("r", one(start, act.Open, "md"), 400))
    moves = tell(50, ev.PrefillDone("r", one(start, act.Prefill), 300, 700))
    relay = tell(60, ev.TransferDone("r", one(moves, act.Transfer, "rld"), 1_000_000))
    tokens = one(relay, act.Decode)
    tell(70, ev.TokensDecoded("r", tokens, 0, 1))
    tell(80, ev.TokensDecoded("r", tokens, 1, 2))
    closes = [a for a in moves + relay if isinstance(a, act.Close)]
    landed = tell(600, ev.TransferDone("r", one(moves, act.Transfer, "md"), 600_000))
    closes += [a for a in landed if isinstance(a, act.Close)]
    if mode == "pdd-kv":
        tell(601, ev.Cancelled("r", tokens))
        landed = tell(640, ev.TransferDone("r", one(landed, act.Transfer, "md"), 3000, 5 * MS))
        closes += [a for a in landed if isinstance(a, act.Close)]
    else:
        tell(601, ev.Cancelled("r", tokens))
    main = one(landed, act.Decode, "md")
    tell(650, ev.TokensDecoded("r", main, 3, 1))
    last = tell(700, ev.TokensDecoded("r", main, 4, 6, "length"))
    for close in [*closes, *(a for a in last if isinstance(a, act.Close))]:
        tell(710, ev.Closed("r", close.work, 1010))
    (row,) = settled
    return row


def test_a_relayed_request_with_an_extend_decode_handoff() -> None:
    row = history("pdd")
    assert row["pipeline"] == "relayed"
    assert (row["handoff_mode"], row["handoff_payload"]) == ("one_shot", "extend_decode")
    assert (row["prefill_cached_tokens"], row["prefill_computed_tokens"]) == (300, 700)
    assert (row["relay_hit_tokens"], row["main_hit_tokens"]) == (0, 400)
    assert (row["relay_kv_bytes"], row["main_kv_bytes"]) == (1_000_000, 600_000)
    assert (row["relay_tokens"], row["switch_index"], row["output_tokens"]) == (3, 3, 10)
    assert (row["extend_tokens"], row["extend_batches"], row["handoff_bytes"]) == (4, 1, 16)
    assert row["handoff_start_ns"] == row["main_transfer_done_ns"] == 600 * MS
    assert row["switch_ns"] == row["main_first_token_ns"] == 650 * MS
    assert row["relay_first_token_ns"] == 70 * MS
    assert (row["end_ns"], row["outcome"], row["cache_gap_tokens"]) == (700 * MS, "ok", 0)


def test_a_relayed_request_with_a_kv_handoff() -> None:
    row = history("pdd-kv")
    assert (row["handoff_mode"], row["handoff_payload"]) == ("one_shot", "kv_transfer")
    assert (row["handoff_bytes"], row["copy_ns"]) == (3000, 5 * MS)
    assert row["extend_tokens"] == 1  # the last id, whose logits KV does not carry


def test_rows_of_any_history_fit_the_tables(tmp_path: Path) -> None:
    journal = HandoffJournal()
    handoffs = TableWriter(tmp_path, HANDOFFS, cell="c", rep=0, shard="router")
    decisions = TableWriter(tmp_path, DECISIONS, cell="c", rep=0, shard="router")
    written = 0

    class Watched(Policy):
        def handle(self, now_ns: int, event: ev.Event) -> tuple[act.Action, ...]:
            nonlocal written
            actions = super().handle(now_ns, event)
            decisions.write(decision_row(written, now_ns, event, actions))
            if (row := journal.observe(now_ns, event, actions)) is not None:
                handoffs.write(row)
            written += 1
            return actions

    for seed in range(30):
        run_schedule(seed, policy=Watched)
        for known in (journal._rows, journal._opens, journal._transfers):
            assert known == {}, "of what has settled nothing is remembered"
    handoffs.close()
    decisions.close()
    assert written > 1000
