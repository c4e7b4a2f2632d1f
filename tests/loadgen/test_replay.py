"""Semantics of a replay against a server that the test scripts: chaining, failure, limits, stamps."""

from __future__ import annotations

import itertools
import threading
import time

import gevent
import pytest

from harness.loadgen.job import Cancellation, ClosedLoop, EveryTurn, JobError, Limits, Target, Warmup
from tests.loadgen.plans import Session, Turn, chained, one_turn_sessions
from tests.loadgen.replays import job_for, run_replay
from tests.loadgen.scripted_server import STREAM_HEAD, chunked, event, serving, tokens_answer

MS = 1_000_000


def ids_for(request) -> list[int]:
    return [
        5000 + 100 * int(request.headers["x-request-id"].rsplit("/")[-1]) + i
        for i in range(request.body["max_tokens"])
    ]


def good(request) -> None:
    request.reply(tokens_answer(ids_for(request), cached=3, prompt_tokens=len(request.body["prompt"])))


@pytest.mark.parametrize("hub_reactor", [False, True])
def test_turns_are_chained_with_the_live_answer(hub_reactor):
    with serving(good) as server:
        outcome = run_replay(job_for(server.port), [chained("s", 3)], hub_reactor=hub_reactor)
    prompts = [request.body["prompt"] for request in server.requests]
    assert prompts[1] == [*prompts[0], 5000, 5001, 5002, 5003, 101, 102, 103]
    assert prompts[2] == [*prompts[1], 5100, 5101, 5102, 5103, 201, 202, 203]
    assert [row.status for row in outcome.rows] == ["ok"] * 3
    assert [row.prompt_tokens for row in outcome.rows] == [8, 15, 22]
    assert [row.cached_tokens for row in outcome.rows] == [3, 3, 3]
    assert [row.output_ids for row in outcome.rows][1] == [5100, 5101, 5102, 5103]


def test_the_request_says_what_the_router_needs():
    with serving(good) as server:
        run_replay(job_for(server.port), [chained("a b/ü", 1)])
    request = server.requests[0]
    assert request.path == "/v1/completions"
    assert request.headers["x-request-id"] == "c/0/a%20b%2F%C3%BC/0"
    body = request.body
    assert (body["stream"], body["ignore_eos"], body["return_token_ids"]) == (True, True, True)
    assert body["prompt_cache_key"] == "a b/ü"
    assert body["max_tokens"] == 4
    assert 0 <= body["seed"] < 1 << 31


def test_seeds_differ_between_turns_and_agree_between_repetitions():
    seeds = []
    for rep in (0, 1):
        with serving(good) as server:
            job = job_for(server.port)
            run_replay(
                job.__class__(**{**{f: getattr(job, f) for f in job.__struct_fields__}, "rep": rep}),
                [chained("s", 3)],
            )
        seeds.append([request.body["seed"] for request in server.requests])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


def test_every_row_has_its_instants_in_order():
    with serving(good) as server:
        outcome = run_replay(job_for(server.port), one_turn_sessions([0, 5 * MS]))
    for row in outcome.rows:
        instants = [
            row.intended_ns,
            row.sent_ns,
            row.first_byte_ns,
            row.first_token_ns,
            row.last_token_ns,
            row.end_ns,
        ]
        assert instants == sorted(instants)
        assert row.sent_ns + row.token_offsets_ns[0] == row.first_token_ns
        assert len(row.token_offsets_ns) == row.output_tokens == 4


def test_think_time_passes_between_turns_and_is_absolute():
    with serving(good) as server:
        outcome = run_replay(job_for(server.port), [chained("s", 3, delay_ns=20 * MS)])
    rows = sorted(outcome.rows, key=lambda row: row.turn)
    for earlier, later in itertools.pairwise(rows):
        assert later.intended_ns == earlier.end_ns + 20 * MS
        assert later.sent_ns >= later.intended_ns


def test_kernel_stamps_do_not_depend_on_when_we_read():
    """The server's bytes lie in the socket while the loop is stalled: the stamp is still the arrival's."""
    arrived = threading.Event()

    def answer(request):
        good(request)
        arrived.set()

    def stall(replay):
        while not replay._tally.sent:
            gevent.sleep(0)
        assert arrived.wait(5)  # blocks the whole loop, as a long computation would
        time.sleep(0.1)

    with serving(answer) as server:
        outcome = run_replay(job_for(server.port), one_turn_sessions([0]), during=stall)
    row = outcome.rows[0]
    if row.clock_source == "kernel":
        assert row.first_token_ns - row.sent_ns < 60 * MS
    with serving(answer) as server:
        arrived.clear()
        late = run_replay(job_for(server.port), one_turn_sessions([0]), during=stall, kernel=False).rows[0]
    assert late.clock_source == "user"
    assert late.first_token_ns - late.sent_ns > 90 * MS


def test_http_errors_are_rows_with_the_servers_words():
    def refuse(request):
        body = b'{"error":{"message":"queue full","type":"overloaded"}}'
        request.reply(
            b"HTTP/1.1 503 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    with serving(refuse) as server:
        outcome = run_replay(job_for(server.port), [chained("s", 3)])
    rows = outcome.by_turn()
    assert rows["s", 0].status == "error"
    assert rows["s", 0].http_status == 503
    assert rows["s", 0].error == "HTTP 503: overloaded: queue full"
    assert rows["s", 0].output_tokens is None
    assert [rows["s", turn].status for turn in (1, 2)] == ["unfinished", "unfinished"]
    assert rows["s", 2].sent_ns is None
    assert "earlier turn" in rows["s", 2].error
    assert outcome.tally.errors == {"HTTP 503": 1, "an earlier turn of the session failed": 2}


def partial(ids, tail=b""):
    return (
        STREAM_HEAD
        + chunked(*[event({"choices": [{"text": "x", "token_ids": [i]}]}) for i in ids], end=False)
        + tail
    )


CUTS = {
    "an error in the stream": (
        lambda r: r.reply(
            partial([1, 2], chunked(event({"error": {"message": "worker died", "type": "internal"}})))
        ),
        "in the stream: internal: worker died",
    ),
    "the connection closed in the middle": (
        lambda r: (r.reply(partial([1, 2])), r.close()),
        "closed the connection in the middle of the answer, after 2 tokens",
    ),
    "an early end": (lambda r: r.reply(partial([1, 2], b"0\r\n\r\n")), "stream ended early, after 2 tokens"),
    "bad JSON": (
        lambda r: r.reply(partial([1, 2], chunked(event("{oops")))),
        "in the stream: chunk b'{oops'",
    ),
    "no answer at all": (lambda r: r.close(), "closed the connection without an answer"),
    "not HTTP": (lambda r: r.reply(b"SSH-2.0-hello\r\n\r\n"), "bad HTTP"),
    "not a stream": (
        lambda r: r.reply(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        ),
        "expected text/event-stream, got application/json",
    ),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_broken_answer_is_an_error_row_that_says_how(cut):
    answer, words = CUTS[cut]
    with serving(answer) as server:
        outcome = run_replay(job_for(server.port), one_turn_sessions([0]))
    (row,) = outcome.rows
    assert row.status == "error"
    assert words in row.error
    if "2 tokens" in words:
        assert row.output_tokens == 2


def test_nobody_listening_is_an_error_row():
    with serving(good) as server:
        port = server.port
    outcome = run_replay(job_for(port), one_turn_sessions([0, MS]))
    assert [row.status for row in outcome.rows] == ["error", "error"]
    assert "connect" in outcome.rows[0].error
    assert outcome.rows[0].sent_ns is None


def test_a_deadline_ends_a_request_that_hangs():
    with serving(lambda r: r.reply(partial([1]))) as server:
        outcome = run_replay(
            job_for(server.port, limits=Limits(deadline_s=0.05)), one_turn_sessions([0, 0, 10 * MS])
        )
    assert [row.status for row in outcome.rows] == ["timeout"] * 3
    assert all(row.output_tokens == 1 for row in outcome.rows)
    assert all(row.end_ns - row.sent_ns >= 45 * MS for row in outcome.rows)


def test_cancellation_after_k_tokens_is_no_error_and_the_session_goes_on():
    def slow_then(request):
        request.reply(partial([7, 8, 9]) if request.number == 0 else tokens_answer([1]))

    plan = Cancellation(share=1.0, after_tokens=2)
    with serving(slow_then) as server:
        outcome = run_replay(job_for(server.port, cancellation=plan), [chained("s", 2)])
    rows = outcome.by_turn()
    assert rows["s", 0].status == "cancelled"
    assert rows["s", 0].error is None
    assert rows["s", 0].output_tokens >= 2
    answer = server.requests[1].body["prompt"][8:-3]
    assert answer == rows["s", 0].output_ids


def test_cancellation_after_t_seconds():
    with serving(lambda r: r.reply(partial([7]))) as server:
        job = job_for(server.port, cancellation=Cancellation(share=1.0, after_s=0.05))
        (row,) = run_replay(job, one_turn_sessions([0])).rows
    assert row.status == "cancelled"
    assert 45 * MS <= row.end_ns - row.intended_ns < 1000 * MS


def test_the_cancelled_share_is_chosen_by_seed_not_by_chance():
    plan = Cancellation(share=0.5, after_tokens=1)
    chosen = []
    for _ in range(2):
        with serving(lambda r: r.reply(partial(ids_for(r)))) as server:
            job = job_for(server.port, cancellation=plan, limits=Limits(deadline_s=0.3))
            outcome = run_replay(job, one_turn_sessions(range(40)))
        chosen.append({row.session_id for row in outcome.rows if row.status == "cancelled"})
    assert chosen[0] == chosen[1]
    assert 5 < len(chosen[0]) < 35


def test_retries_are_off_by_default_and_counted_when_on():
    def fail_once(request):
        request.close() if request.number == 0 else good(request)

    with serving(fail_once) as server:
        assert run_replay(job_for(server.port), one_turn_sessions([0])).rows[0].status == "error"
        assert len(server.requests) == 1
    with serving(fail_once) as server:
        (row,) = run_replay(job_for(server.port, retries=2), one_turn_sessions([0])).rows
    assert (row.status, row.retries) == ("ok", 1)


def test_connections_are_reused_or_fresh_as_asked():
    sessions = one_turn_sessions([0, 60 * MS, 120 * MS])
    with serving(good) as server:
        rows = run_replay(job_for(server.port), sessions).rows
        assert server.connections == 1
        assert [row.connect_ns is None for row in rows] == [False, True, True]
    with serving(good) as server:
        rows = run_replay(job_for(server.port, connections="fresh"), sessions).rows
        assert server.connections == 3
        assert all(row.connect_ns is not None for row in rows)
        assert all(request.headers["connection"] == "close" for request in server.requests)


def test_closed_loop_keeps_n_sessions_live_and_starts_the_next_when_one_ends():
    with serving(good) as server:
        sessions = [chained(f"s{i}", 2, delay_ns=5 * MS) for i in range(12)]
        rows = run_replay(job_for(server.port, arrivals=ClosedLoop(3)), sessions).rows
    assert len(rows) == 24
    spans: dict[str, list[int]] = {}
    for row in rows:
        spans.setdefault(row.session_id, []).extend((row.intended_ns, row.end_ns))
    starts = sorted(min(span) for span in spans.values())
    ends = sorted(max(span) for span in spans.values())
    assert starts[2] == starts[0]
    for start, end in zip(starts[3:], ends, strict=False):
        assert 0 <= start - end < 200 * MS  # never a fourth, and no pause


def test_every_turn_goes_out_at_its_recorded_instant_but_not_before_its_base():
    turns = (
        Turn(0, 4, 2, arrival_ns=0),
        Turn(
            1,
            4,
            2,
            after=(0,),
            delay_ns=500 * MS,
            arrival_ns=150 * MS,
            base=0,
            kept_tokens=4,
            keeps_answer=True,
        ),
        Turn(2, 4, 2, after=(1,), arrival_ns=150 * MS + 1, base=1, kept_tokens=9, keeps_answer=True),
    )
    with serving(good) as server:
        outcome = run_replay(job_for(server.port, arrivals=EveryTurn()), [Session("s", 0, turns)])
    rows = outcome.by_turn()
    assert rows["s", 1].intended_ns - rows["s", 0].intended_ns == 150 * MS
    assert rows["s", 2].intended_ns == rows["s", 1].end_ns
    assert outcome.tally.held == 1


def test_nothing_is_sent_after_the_duration_and_the_rest_is_counted():
    job_limits = Limits(duration_s=0.1, drain_s=5.0)
    with serving(good) as server:
        outcome = run_replay(
            job_for(server.port, limits=job_limits),
            [
                *one_turn_sessions([0, 10 * MS]),
                chained("late", 5, start_ns=400 * MS),
                chained("long", 3, delay_ns=10**9),
            ],
        )
    assert len(outcome.rows) == 3
    assert outcome.replay.not_sent == 5 + 2


def test_while_it_drains_nothing_waits_for_a_start():
    pending = []

    def look(replay):
        while not replay._tally.sent:
            gevent.sleep(0)
        replay.stop()
        pending.append(len(replay._timers))
        replay.cut()

    with serving(lambda r: r.reply(partial([1]))) as server:
        outcome = run_replay(job_for(server.port), one_turn_sessions([0, 10**12]), during=look)
    assert pending == [0]
    assert outcome.replay.not_sent == 1


def test_what_the_drain_does_not_see_end_is_unfinished():
    with serving(lambda r: r.reply(partial([1]))) as server:
        job = job_for(server.port, limits=Limits(duration_s=0.05, drain_s=0.05))
        (row,) = run_replay(job, one_turn_sessions([0])).rows
    assert (row.status, row.output_tokens) == ("unfinished", 1)


def test_warm_up_is_kept_and_marked():
    with serving(good) as server:
        by_session = run_replay(
            job_for(server.port, warmup=Warmup(sessions=1)), [chained("s0", 2), chained("s1", 1, start_ns=MS)]
        ).by_turn()
        by_time = run_replay(
            job_for(server.port, warmup=Warmup(seconds=0.05)), one_turn_sessions([0, 100 * MS])
        )
    assert {key: row.phase for key, row in by_session.items()} == {
        ("s0", 0): "warmup", ("s0", 1): "warmup", ("s1", 0): "measure",
    }  # fmt: skip
    assert [row.phase for row in by_time.rows] == ["warmup", "measure"]


def test_chat_goes_to_its_own_path_and_asks_for_usage():
    def chat(request):
        parts = [
            event({"choices": [{"delta": {"role": "assistant"}}]}),
            event({"choices": [{"delta": {"content": "yes "}}]}),
            event({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
            event({"choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": 1}}),
            event("[DONE]"),
        ]
        request.reply(STREAM_HEAD + chunked(*parts))

    with serving(chat) as server:
        outcome = run_replay(job_for(server.port, api="chat"), [chained("s", 2)])
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 2
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert server.requests[1].body["messages"][1] == {"role": "assistant", "content": "yes "}
    assert [row.prompt_tokens for row in outcome.rows] == [31, 31]
    assert [row.output_ids for row in outcome.rows] == [None, None]
    assert [row.output_tokens for row in outcome.rows] == [1, 1]


def test_the_key_is_sent_and_never_recorded(tmp_path):
    secret = tmp_path / "key"
    secret.write_text("sk-verysecret\n")

    def echo(request):
        body = b'{"error":{"message":"bad key %b"}}' % request.headers["authorization"].encode()
        request.reply(b"HTTP/1.1 401 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with serving(echo) as server:
        target = Target(f"http://127.0.0.1:{server.port}/v1", api_key_file=secret)
        (row,) = run_replay(job_for(server.port, target=target), one_turn_sessions([0])).rows
    assert server.requests[0].headers["authorization"] == "Bearer sk-verysecret"
    assert "verysecret" not in repr(row)
    assert "[key]" in row.error


def test_a_key_that_is_not_there_is_a_job_error(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(JobError, match="NO_SUCH_KEY is not set"):
        run_replay(
            job_for(1, target=Target("http://127.0.0.1:1", api_key_env="NO_SUCH_KEY")), one_turn_sessions([0])
        )


def test_a_host_without_an_address_is_a_job_error():
    with pytest.raises(JobError, match=r"nowhere\.invalid"):
        run_replay(job_for(1, target=Target("http://nowhere.invalid")), one_turn_sessions([0]))


def test_a_base_url_that_is_none_is_a_job_error():
    with pytest.raises(JobError, match="expected http:"):
        run_replay(job_for(1, target=Target("localhost:8000")), one_turn_sessions([0]))


def test_long_prompts_are_sent_whole():
    with serving(good) as server:
        (row,) = run_replay(job_for(server.port), one_turn_sessions([0], new_tokens=300_000)).rows
    assert row.status == "ok"
    assert len(server.requests[0].body["prompt"]) == 300_000


def test_hundreds_of_sessions_at_one_instant_are_all_sent():
    with serving(good) as server:
        outcome = run_replay(job_for(server.port), one_turn_sessions([0] * 200))
    assert [row.status for row in outcome.rows] == ["ok"] * 200
    assert len({row.request_id for row in outcome.rows}) == 200
