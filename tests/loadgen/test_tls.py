"""TLS to a server with a self-signed certificate (localhost.pem, valid for a century, used nowhere else)."""

from __future__ import annotations

import ssl
from pathlib import Path

from harness.loadgen.job import Target, Tls
from tests.loadgen.plans import chained, one_turn_sessions
from tests.loadgen.replays import job_for, run_replay
from tests.loadgen.scripted_server import serving, tokens_answer

PEM = Path(__file__).parent / "localhost.pem"


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(PEM)
    return made


def target(port: int, **tls) -> Target:
    return Target(f"https://localhost:{port}", tls=Tls(**tls))


def good(request) -> None:
    request.reply(tokens_answer([5, 6, 7, 8]))


def test_turns_over_tls_reuse_the_connection_and_keep_the_kernels_stamps():
    with serving(good, tls=context()) as server:
        rows = run_replay(job_for(0, target=target(server.port, ca_file=PEM)), [chained("s", 3)]).rows
        assert server.connections == 1
    assert [row.status for row in rows] == ["ok"] * 3
    assert rows[0].connect_ns > 0
    assert rows[1].connect_ns is None
    assert all(row.intended_ns <= row.sent_ns <= row.first_token_ns for row in rows)


def test_long_prompts_go_through_tls():
    with serving(good, tls=context()) as server:
        job = job_for(0, target=target(server.port, ca_file=PEM))
        (row,) = run_replay(job, one_turn_sessions([0], new_tokens=200_000)).rows
    assert row.status == "ok"
    assert len(server.requests[0].body["prompt"]) == 200_000


def test_an_unknown_certificate_is_an_error_unless_asked_not_to_look():
    with serving(good, tls=context()) as server:
        (refused,) = run_replay(job_for(0, target=target(server.port)), one_turn_sessions([0])).rows
        (accepted,) = run_replay(
            job_for(0, target=target(server.port, verify=False)), one_turn_sessions([0])
        ).rows
    assert refused.status == "error"
    assert "TLS" in refused.error
    assert "CERTIFICATE_VERIFY_FAILED" in refused.error
    assert accepted.status == "ok"
