"""Live, in one process: every mode answers with the same tokens, and does what its name says."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.cluster import Answer, Cluster, cluster

pytestmark = pytest.mark.live

RELAY_ALL: dict[str, Any] = {"routing": {"relay_bound_ms": 0.0}}
CATCH_UP: dict[str, Any] = {
    **RELAY_ALL,
    "handoff": {"catch_up_threshold_tokens": 1, "switch_tokens": 2, "catch_up_batch_tokens": 8},
}
VARIANTS: list[tuple[str, dict[str, Any] | None]] = [
    ("xdc", None),
    ("idc", None),
    ("ppd", {"routing": {"append_hit_share": 0.5}}),
    ("pdd", RELAY_ALL),
    ("pdd", {**RELAY_ALL, "transfer": "per_chunk"}),
    ("pdd", {**RELAY_ALL, "odd_traffic_filter": True}),
    ("pdd", {**RELAY_ALL, "odd_traffic_filter": True, "back_fill": True}),
    ("pdd", {**RELAY_ALL, "decode_radix_cache": False}),
    ("pdd", {**RELAY_ALL, "local": True}),
    ("pdd-catch-up", CATCH_UP),
    ("pdd-dynamic", CATCH_UP),
    ("pdd-kv", RELAY_ALL),
]


async def replay_session(cluster: Cluster, seed: int, temperature: float, turns: int = 3) -> list[Answer]:
    """A session whose prompts grow by its own live answers."""
    rng = random.Random(seed)
    prompt = [rng.randrange(300, 500) for _ in range(rng.randrange(40, 300))]
    answers = []
    for turn in range(turns):
        answer = await cluster.ask(
            prompt,
            rng.randrange(8, 80),
            session=f"session-{seed}",
            seed=seed * 100 + turn,
            temperature=temperature,
        )
        assert answer.error is None, answer.error
        answers.append(answer)
        prompt = prompt + answer.ids + [rng.randrange(300, 500) for _ in range(rng.randrange(2, 60))]
    return answers


async def replay(
    tmp_path: Path, mode: str, policy: dict[str, Any] | None, temperature: float
) -> list[list[Answer]]:
    async with cluster(tmp_path / mode, mode, policy=policy) as running:
        sessions = await asyncio.gather(*(replay_session(running, seed, temperature) for seed in range(5)))
        await running.settled()
        return list(sessions)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_mode_gives_the_tokens_of_one_colocated_worker(tmp_path: Path, temperature: float) -> None:
    expected = asyncio.run(replay(tmp_path, "colocated", None, temperature))
    relayed = 0
    for number, (mode, policy) in enumerate(VARIANTS):
        got = asyncio.run(replay(tmp_path / str(number), mode, policy, temperature))
        assert [[a.ids for a in s] for s in got] == [[a.ids for a in s] for s in expected], (mode, policy)
        relayed += sum(1 for s in got for a in s if a.times.get("relay_tokens"))
    assert relayed > 10, "hardly anything was relayed: this compares nothing"


def test_a_later_turn_finds_its_earlier_turns_at_p_and_at_md(tmp_path: Path) -> None:
    sessions = asyncio.run(replay(tmp_path, "xdc", None, 0.0))
    for first, second, _ in sessions:
        prompt = first.usage["prompt_tokens"]
        answer = first.usage["completion_tokens"]
        # P computed the prompt but its last token; MD also holds the answer but its last token.
        assert second.times["prefill_cached_tokens"] == prompt - 1
        assert second.times["main_hit_tokens"] == prompt + answer - 1


def test_without_the_decode_radix_cache_md_finds_nothing(tmp_path: Path) -> None:
    sessions = asyncio.run(replay(tmp_path, "xdc", {"decode_radix_cache": False}, 0.0))
    assert all(turn.times["main_hit_tokens"] == 0 for session in sessions for turn in session)


def test_a_wrong_prompt_is_answered_in_one_line_and_owns_nothing(tmp_path: Path) -> None:
    async def ask() -> list[str | None]:
        async with cluster(tmp_path, "xdc") as running:
            answers = [
                await running.ask([1_000_000], 4),
                await running.ask([], 4),
                await running.ask([300] * 4000, 4),
                await running.ask([300], 0),
            ]
            assert running.router.requests_live == 0
            return [a.error for a in answers]

    errors = asyncio.run(ask())
    assert errors[0] is not None
    assert "outside the vocabulary" in errors[0]
    assert errors[1] == "prompt: empty; at least one token is needed"
    assert errors[2] is not None
    assert "exceed the context of 2048" in errors[2]
    assert errors[3] == "max_tokens: 0; at least 1 is needed"


def test_text_and_chat_are_answered_in_text(tmp_path: Path) -> None:
    async def ask() -> tuple[dict[str, Any], dict[str, Any], str]:
        async with cluster(tmp_path, "pdd", policy=RELAY_ALL) as running:
            base = f"http://127.0.0.1:{running.port}/v1"
            body = {"prompt": "hello", "max_tokens": 6, "seed": 3, "ignore_eos": True}
            async with running.session.post(f"{base}/completions", json=body) as response:
                completion = await response.json()
            chat_body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "seed": 3}
            async with running.session.post(f"{base}/chat/completions", json=chat_body) as response:
                chat = await response.json()
            streamed = {**chat_body, "stream": True}
            async with running.session.post(f"{base}/chat/completions", json=streamed) as response:
                return completion, chat, (await response.read()).decode()

    completion, chat, stream = asyncio.run(ask())
    assert completion["usage"]["prompt_tokens"] >= 5
    assert completion["usage"]["completion_tokens"] == 6
    assert completion["choices"][0]["text"]
    message = chat["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert stream.startswith('data: {"id"')
    assert '"role":"assistant"' in stream
    assert stream.rstrip().endswith("data: [DONE]")
    said = "".join(
        event["choices"][0]["delta"].get("content", "")
        for line in stream.splitlines()
        if line.startswith("data: {") and (event := msgspec.json.decode(line[6:]))["choices"]
    )
    assert said == message["content"]
