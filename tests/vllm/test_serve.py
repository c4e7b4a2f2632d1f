"""Workers in front of `vllm serve`, which knows nothing of them."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from adapters.engines import load_engine
from adapters.engines.vllm import models
from harness.engine import Decode, EngineError, EngineOptions
from tests.engines.driving import colocated, drain, prefill, prompt, sample_on, tokens
from tests.vllm import pool

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

OPTIONS = EngineOptions(max_sequences=8, max_context_tokens=512, batch_tokens=64)
START_S = 400  # three processes import vLLM, perhaps on a busy machine


def answers(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The URL of a server of the tiny model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # What `vllm serve` runs; its command line asks for the version of a distribution called vllm.
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(models.resolve("tiny", None).path)),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
        *("--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", "513", "--max-num-seqs", "8", "--block-size", "32"),
        *("--num-gpu-blocks-override", "144", "--kv-cache-memory-bytes", str(1 << 20)),
    ]
    quiet = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    log = tmp_path_factory.mktemp("serve") / "log"
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, env={**os.environ, **quiet, **offline}, stdout=out, stderr=out, start_new_session=True
        )
        try:
            ends = time.monotonic() + START_S
            while not answers(url):
                assert server.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < ends, log.read_text()[-3000:]
                time.sleep(0.5)
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


@pytest.fixture
def connect(served):
    made = []

    def connected():
        options = EngineOptions(endpoint=served, vocab_size=512, max_sequences=8, max_context_tokens=512)
        made.append(load_engine("openai", options))
        return made[-1]

    yield connected
    for engine in made:
        engine.shutdown()


def test_a_handoff_between_servers_gives_the_answer_of_an_embedded_vllm(connect):
    embedded = pool.load_engine("vllm", OPTIONS)
    ids = prompt(embedded, 300, seed=1)
    expected = colocated(embedded, 1, ids, Decode(40))
    embedded.shutdown()
    p, rld, md = connect(), connect(), connect()
    assert colocated(p, 9, ids, Decode(40)) == expected
    prefill(p, 1, ids)
    for worker in (rld, md):
        worker.open(1, ids)
        worker.import_kv(1, 0, 299, p.export_kv(1, 0, 299))
        drain(worker)
        assert worker.length(1) == 299
    answer = sample_on(rld, 1, ids, Decode(15))
    md.extend(1, [ids[-1], *answer], Decode(25, first_index=15))
    assert answer + tokens(drain(md), 1) == expected


def test_a_stop_id_ends_an_answer_there_as_well(connect):
    engine = connect()
    ids = prompt(engine, 50, seed=2)
    answer = colocated(engine, 1, ids, Decode(30))
    stop = answer[9]
    engine.open(1, ids)
    got = sample_on(engine, 1, ids, Decode(30, stop_ids=(stop,)))
    assert got == answer[: answer.index(stop) + 1]


def test_a_context_that_is_too_long_for_the_server_is_told(served):
    with pytest.raises(EngineError, match="serves at most 513"):
        load_engine("openai", EngineOptions(endpoint=served, vocab_size=512, max_context_tokens=4096))
