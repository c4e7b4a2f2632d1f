"""The router's HTTP face under requests that are wrong, hostile or slow: nobody else suffers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harness.cluster.messages import SECRET_HEADER
from tests.cluster.cluster import SECRET, Cluster, cluster
from tests.cluster.test_modes import RELAY_ALL

pytestmark = pytest.mark.live

FINE: dict[str, Any] = {
    "prompt": [300, 301, 302],
    "max_tokens": 4,
    "ignore_eos": True,
    "return_token_ids": True,
}
COMPLETIONS, CHAT, JOIN = "/v1/completions", "/v1/chat/completions", "/admin/join"
WORKER = {"name": "w", "role": "main_decode", "cluster": "B", "host": "127.0.0.1", "port": 9}


def fine(**over: Any) -> bytes:
    """A good request, but for `over`."""
    return json.dumps({**FINE, **over}).encode()


WRONG: list[tuple[str, str, bytes, str]] = [
    # what, path, body, a word of the answer
    ("an id beyond u32", COMPLETIONS, fine(prompt=[2**33]), "$.prompt"),
    ("an id beyond i64", COMPLETIONS, fine(prompt=[2**70]), "$.prompt"),
    ("a negative id", COMPLETIONS, fine(prompt=[-1]), "$.prompt"),
    ("a stop id beyond i64", COMPLETIONS, fine(stop_token_ids=[2**70]), "$.stop_token_ids"),
    ("a seed beyond i64", COMPLETIONS, fine(seed=2**70), "$.seed"),
    ("a negative temperature", COMPLETIONS, fine(temperature=-1), "$.temperature"),
    ("a key of five thousand letters", COMPLETIONS, fine(prompt_cache_key="k" * 5000), "$.prompt_cache_key"),
    ("no JSON", COMPLETIONS, b"{", "truncated"),
    ("no UTF-8", COMPLETIONS, b'{"prompt":"\xff"}', "UTF-8"),
    ("nothing", COMPLETIONS, b"", "truncated"),
    ("no tokens", CHAT, b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0}', "at least 1"),
    ("a worker in no JSON", JOIN, b"{", "truncated"),
    ("a worker at no port", JOIN, json.dumps({**WORKER, "port": 99999}).encode(), "$.port"),
    ("a worker at no host", JOIN, json.dumps({**WORKER, "host": ""}).encode(), "'' is no host"),
    ("a name taken", JOIN, json.dumps({**WORKER, "name": "main_decode-0"}).encode(), "names are unique"),
]


async def send(running: Cluster, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{running.port}{path}"
    async with running.session.post(url, data=body, headers={SECRET_HEADER: SECRET, **headers}) as response:
        return response.status, await response.text()


async def send_raw(running: Cluster, head: bytes) -> bytes:
    """One request with header bytes that no client library would send; the status line."""
    body = json.dumps(FINE).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(head + b"Host: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    try:
        return await asyncio.wait_for(reader.readline(), 20)
    finally:
        writer.close()


def test_what_cannot_be_served_is_refused_in_one_line_and_the_next_request_is_served(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, "pdd", policy=RELAY_ALL) as running:
            expected = await running.ask([300, 301, 302], 4)
            for what, path, body, word in WRONG:
                status, said = await send(running, path, body)
                assert status == 400, (what, said)
                message = json.loads(said)["error"]["message"]
                assert word in message, what
                assert "\n" not in message, what
            status, said = await send(
                running, COMPLETIONS, json.dumps(FINE).encode(), **{"X-Request-Id": "x" * 2000}
            )
            assert status == 400, said
            assert b" 400 " in await send_raw(
                running, b"POST /v1/completions HTTP/1.1\r\nX-Request-Id: \xff\r\n"
            )
            assert b" 403 " in await send_raw(
                running, b"POST /admin/drain/x HTTP/1.1\r\nX-PDD-Secret: \xff\r\n"
            )
            assert running.router.requests_live == 0
            assert (await running.ask([300, 301, 302], 4)).ids == expected.ids
            assert len(running.router.workers_up) == 3

    asyncio.run(run())


@pytest.mark.parametrize(("prompt", "max_tokens"), [(1, 1), (1, 8), (2047, 1), (2040, 8)])
def test_the_smallest_and_the_fullest_contexts_are_answered(
    tmp_path: Path, prompt: int, max_tokens: int
) -> None:
    async def run() -> list[int]:
        async with cluster(tmp_path, "pdd", policy=RELAY_ALL) as running:
            answer = await running.ask([300 + i % 200 for i in range(prompt)], max_tokens, temperature=0.8)
            assert answer.error is None
            assert answer.finish == "length"
            await running.settled()
            return answer.ids

    assert len(asyncio.run(run())) == max_tokens


def test_a_slow_reader_whose_id_is_used_again_does_not_end_the_other_request(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with cluster(tmp_path, "xdc") as running:
            first = running.router
            # The first answer is complete and its request settled, but its handler is still there.
            leaving: list[Any] = []
            leave = first.leave

            def late(request: str, exchange: Any) -> None:
                leaving.append((request, exchange))

            first.leave = late  # type: ignore[method-assign]
            await running.ask([300, 301], 3, request="same")
            await running.settled()
            first.leave = leave  # type: ignore[method-assign]
            asking = asyncio.create_task(running.ask([300] * 400, 300, request="same"))
            async with asyncio.timeout(20):
                while "same" not in first.policy.requests:
                    await asyncio.sleep(0)
                leave(*leaving[0])
                return (await asking).ids

    assert len(asyncio.run(run())) == 300
