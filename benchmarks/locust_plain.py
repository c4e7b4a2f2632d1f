"""Plain Locust as many write it: FastHttpUser, `iter_lines`, `constant_throughput`; the side to compare with.

A process of its own (it must import Locust first); prints one JSON object: per request its id, the
instant of sending and that of each token as the client saw it, epoch ns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import gevent
from locust import FastHttpUser, constant_throughput, task
from locust.env import Environment

SENT: list[dict] = []


def make_user(port: int, tokens: int, rate_s: float | None, users: int, requests: int) -> type[FastHttpUser]:
    class Streaming(FastHttpUser):
        host = f"http://127.0.0.1:{port}"
        wait_time = constant_throughput(rate_s / users) if rate_s else (lambda _self: 3600.0)
        connection_timeout = 60.0
        network_timeout = 60.0

        @task
        def complete(self) -> None:
            if len(SENT) >= requests:
                gevent.sleep(3600.0)
            request_id = f"locust/{len(SENT)}"
            row = {"request_id": request_id, "sent_ns": time.time_ns(), "tokens_ns": []}
            SENT.append(row)
            body = {"model": "m", "prompt": [1] * 64, "max_tokens": tokens, "stream": True}
            lines = self.client.iter_lines(
                "/v1/completions", method="POST", json=body, headers={"X-Request-Id": request_id}
            )
            for line in lines:
                if line.startswith("data: {") and "token_ids" in line:
                    row["tokens_ns"].append(time.time_ns())
            row["ended"] = True

    return Streaming


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, help="requests per second over all users; without: one each, at once"
    )
    options = parser.parse_args()
    environment = Environment(
        user_classes=[make_user(options.port, options.tokens, options.rate, options.users, options.requests)]
    )
    runner = environment.create_local_runner()
    cpu_ns = time.process_time_ns()
    runner.start(options.users, spawn_rate=options.users)
    deadline = time.monotonic() + 180
    while sum(row.get("ended", False) for row in SENT) < options.requests and time.monotonic() < deadline:
        gevent.sleep(0.2)
    cpu_s = (time.process_time_ns() - cpu_ns) / 1e9
    json.dump({"rows": [row for row in SENT if row.get("ended")], "cpu_s": cpu_s}, sys.stdout)


if __name__ == "__main__":
    main()
