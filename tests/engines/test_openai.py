"""The engine in front of an OpenAI-compatible server: a cluster of this project, over loopback."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from adapters.engines import load_engine
from harness.engine import Decode, Engine, EngineError, EngineOptions, Extended, KvMismatch, SequenceFailed
from tests.cluster.cluster import Cluster, cluster
from tests.engines.driving import colocated, drain, finish, prefill, prompt, sample_on, tokens

LLAMA = EngineOptions(model="tiny", max_sequences=8, max_context_tokens=2048)
VOCAB = 514


class Served:
    """A server on a loop of its own thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._up = threading.Event()
        self._end = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self.cluster: Cluster
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._up.wait(60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.cluster.port}"

    async def _serve(self) -> None:
        async with cluster(self._folder, "colocated", options=LLAMA) as running:
            self.cluster = running
            self._up.set()
            await self._end.wait()

    def crash(self) -> None:
        self._loop.call_soon_threadsafe(self.cluster.crash, "colocated-0")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    yield server
    server.close()


def connect(url: str, **options: object) -> Engine:
    small = {"model": "tiny", "max_sequences": 4, "max_context_tokens": 2048, "vocab_size": VOCAB}
    return load_engine("openai", EngineOptions(endpoint=url, **{**small, **options}))


@pytest.fixture
def make(served: Served) -> Iterator[Callable[[], Engine]]:
    made: list[Engine] = []

    def connected() -> Engine:
        made.append(connect(served.url))
        return made[-1]

    yield connected
    for engine in made:
        engine.shutdown()


@pytest.fixture(scope="module")
def llama() -> Iterator[Engine]:
    engine = load_engine("llamacpp", LLAMA)
    yield engine
    engine.shutdown()


def until(engine: Engine, done: Callable[[], bool]) -> list[object]:
    """Step until it is so."""
    outputs: list[object] = []
    ends = time.monotonic() + 20
    while not done() and not any(isinstance(o, SequenceFailed) for o in outputs):
        assert time.monotonic() < ends
        outputs += engine.step()
    return outputs


def test_it_answers_as_the_server_does(make: Callable[[], Engine], llama: Engine) -> None:
    engine = make()
    ids = prompt(llama, 200)
    expected = colocated(llama, 1, ids, Decode(40))
    engine.open(1, ids)
    engine.extend(1, ids, Decode(40))
    outputs = drain(engine)
    assert tokens(outputs, 1) == expected
    assert finish(outputs, 1) == ["length"]
    assert engine.length(1) == len(ids) + 39
    assert not engine.has_work()
    assert engine.usage().decoded_tokens == 40


def test_a_handoff_gives_the_same_answer_by_recomputing(make: Callable[[], Engine], llama: Engine) -> None:
    p, rld, md = make(), make(), make()
    ids = prompt(llama, 300, seed=2)
    n = len(ids)
    expected = colocated(llama, 1, ids, Decode(60))
    prefill(p, 1, ids)
    for worker in (rld, md):
        assert worker.open(1, ids) == 0
        # In two ranges, the second before the first is computed.
        for p0, p1 in ((0, 100), (100, n - 1)):
            worker.import_kv(1, p0, p1, p.export_kv(1, p0, p1))
        assert worker.length(1) == 0
        assert [o.length for o in drain(worker) if isinstance(o, Extended)][-1] == n - 1
        assert worker.length(1) == n - 1
    answer = sample_on(rld, 1, ids, Decode(25))
    assert answer == expected[:25]
    md.extend(1, [ids[-1], *answer[:10]])
    drain(md)
    md.extend(1, answer[10:], Decode(35, first_index=25))
    assert answer + tokens(drain(md), 1) == expected


def test_relayed_ids_come_with_the_import_that_names_them(make: Callable[[], Engine], llama: Engine) -> None:
    rld, md = make(), make()
    ids = prompt(llama, 50, seed=3)
    rld.open(1, ids)
    answer = sample_on(rld, 1, ids, Decode(10))
    held = rld.length(1)
    md.open(1, ids)
    blob = rld.export_kv(1, 0, held)
    with pytest.raises(EngineError, match="needs 9 ids beyond its prompt"):
        md.import_kv(1, 0, held, blob)
    md.import_kv(1, 0, held, blob, answer[:-1])
    drain(md)
    assert md.length(1) == held


def test_kv_of_an_engine_that_has_some_is_refused(make: Callable[[], Engine], llama: Engine) -> None:
    engine = make()
    ids = prompt(llama, 50, seed=4)
    prefill(llama, 1, ids)
    blob = llama.export_kv(1, 0, 49)
    llama.close(1, keep=False)
    engine.open(1, ids)
    with pytest.raises(KvMismatch, match="layout"):
        engine.import_kv(1, 0, 49, blob)
    assert engine.length(1) == 0
    assert not engine.has_work()


def test_stopping_hangs_up_and_the_sequence_goes_on(
    make: Callable[[], Engine], served: Served, llama: Engine
) -> None:
    engine = make()
    ids = prompt(llama, 100, seed=5)
    expected = colocated(llama, 1, ids, Decode(900))
    engine.open(1, ids)
    engine.extend(1, ids, Decode(900))
    answer = tokens(until(engine, lambda: engine.length(1) >= 105), 1)  # type: ignore[arg-type]
    engine.stop(1)
    assert not engine.has_work()
    held = engine.length(1)
    assert held == 100 + len(answer) - 1 < 900
    ends = time.monotonic() + 20
    while served.cluster.router.requests_live:
        assert time.monotonic() < ends, "the server still works for nobody"
        time.sleep(0.01)
    more = sample_on(engine, 1, ids + answer, Decode(5, first_index=len(answer)))
    assert answer + more == expected[: len(answer) + 5]


def test_a_stop_id_ends_an_answer(make: Callable[[], Engine], llama: Engine) -> None:
    engine = make()
    ids = prompt(llama, 30, seed=6)
    answer = colocated(llama, 1, ids, Decode(30))
    stop = answer[12]
    engine.open(1, ids)
    engine.extend(1, ids, Decode(30, stop_ids=(stop,)))
    outputs = drain(engine)
    assert tokens(outputs, 1) == answer[: answer.index(stop) + 1]
    assert finish(outputs, 1) == ["stop"]


def test_a_server_that_dies_fails_the_sequence_in_one_line(tmp_path: Path, llama: Engine) -> None:
    server = Served(tmp_path)
    engine = connect(server.url)
    try:
        ids = prompt(llama, 100, seed=7)
        expected = colocated(llama, 1, ids, Decode(1500))
        engine.open(1, ids)
        engine.extend(1, ids, Decode(1500))
        outputs = until(engine, lambda: engine.length(1) >= 110)
        server.crash()
        outputs += until(engine, lambda: not engine.has_work())
        failed = [o for o in outputs if isinstance(o, SequenceFailed)]
        assert len(failed) == 1
        assert failed[0].error.startswith(server.url)
        assert "\n" not in failed[0].error
        answer = tokens(outputs, 1)  # type: ignore[arg-type]
        assert answer == expected[: len(answer)]
        with pytest.raises(EngineError, match="has failed; close it"):
            engine.extend(1, [300])
        assert engine.close(1, keep=True) == 0
    finally:
        engine.shutdown()
        server.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "gpt-99"}, "does not serve 'gpt-99'; it serves: tiny"),
        ({"vocab_size": None}, "vocab_size is not set"),
        ({"model_sha256": "00"}, "no server tells its weights"),
        ({"api_key_env": "PDDBENCH_NO_SUCH_KEY"}, "PDDBENCH_NO_SUCH_KEY is not set"),
    ],
)
def test_options_that_cannot_be_are_refused(served: Served, options: dict[str, object], says: str) -> None:
    with pytest.raises(EngineError) as refused:
        connect(served.url, **options)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_a_server_it_says_so() -> None:
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9: no OpenAI-compatible server answers there"):
        connect("http://127.0.0.1:9")
    with pytest.raises(EngineError, match=r"no endpoint; set cluster\.endpoints"):
        load_engine("openai", EngineOptions())


def test_temperature_is_refused(make: Callable[[], Engine], llama: Engine) -> None:
    engine = make()
    ids = prompt(llama, 10)
    engine.open(1, ids)
    with pytest.raises(EngineError, match="only 0 can change hands"):
        engine.extend(1, ids, Decode(5, temperature=0.7))
    assert not engine.has_work()


class Odd:
    """A server that answers completions with this."""

    def __init__(self, status: int, body: bytes, *, key: str | None = None, limit: int = 4096) -> None:
        self._answer = (status, body)
        self._key = key
        self._limit = limit
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(20)
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _start(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/v1/models", self._models), web.post("/v1/completions", self._complete)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def _models(self, request: web.Request) -> web.Response:
        if self._key is not None and request.headers.get("Authorization") != f"Bearer {self._key}":
            raise web.HTTPUnauthorized
        return web.json_response({"data": [{"id": "tiny", "max_model_len": self._limit}]})

    async def _complete(self, request: web.Request) -> web.Response:
        del request
        status, body = self._answer
        return web.Response(status=status, body=body, content_type="text/event-stream")

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()


TEXT_ONLY = b'data: {"choices":[{"text":"x","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
GOOD = b'data: {"choices":[{"token_ids":[7],"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (
            200,
            b'data: {"choices":[{"text":"x","finish_reason":"length"}]}\n\ndata: [DONE]\n\n',
            "no token ids",
        ),
        (500, b"out of\nmemory", "HTTP 500: out of memory"),
        (200, b'data: {"error":{"message":"no such model"}}\n\n', "no such model"),
        (200, b'data: {"choices":[{"token_ids":[7]}]}\n\n', "ended before its end mark"),
        (200, b"data: {broken\n\n", "JSON"),
    ],
)
def test_a_server_that_does_not_fit_is_refused_at_start(status: int, body: bytes, says: str) -> None:
    server = Odd(status, body)
    try:
        with pytest.raises(EngineError) as refused:
            connect(server.url)
    finally:
        server.close()
    assert says in str(refused.value)
    assert server.url in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_context_beyond_the_servers_is_refused() -> None:
    server = Odd(200, GOOD, limit=1024)
    try:
        with pytest.raises(EngineError, match=r"max_context_tokens is 2048; .* serves at most 1024"):
            connect(server.url)
    finally:
        server.close()


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDDBENCH_TEST_KEY", "k-1")
    server = Odd(200, GOOD, key="k-1")
    try:
        connect(server.url + "/v1", api_key_env="PDDBENCH_TEST_KEY").shutdown()
        with pytest.raises(EngineError, match="HTTP 401"):
            connect(server.url)
    finally:
        server.close()


def test_an_answer_that_ends_too_early_is_a_failure() -> None:
    server = Odd(200, GOOD)
    engine = connect(server.url)
    try:
        engine.open(1, [1, 2, 3])
        engine.extend(1, [1, 2, 3], Decode(5))
        outputs = until(engine, lambda: not engine.has_work())
        (failed,) = [o for o in outputs if isinstance(o, SequenceFailed)]
        assert failed.error == f"{server.url}: the answer ended (length) after 1 of 5 tokens"
    finally:
        engine.shutdown()
        server.close()
