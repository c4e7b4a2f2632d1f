"""The conformance suite's engines: a test that takes `make_engine` runs once for each of them.

To bring a new engine under it, add a row to CASES. Options given by a test override the row's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from adapters.engines import load_engine
from harness.engine import Engine, EngineOptions
from tests.vllm import pool

MakeEngine = Callable[..., Engine]


@dataclass(frozen=True)
class Case:
    """An engine under test; `other` are options of a model whose KV it must refuse."""

    name: str
    options: dict[str, object]
    other: dict[str, object]
    margins: bool
    """Whether greedy ids come with a logit margin."""
    marks: tuple[pytest.MarkDecorator, ...] = ()
    load: Callable[[str, EngineOptions], Engine] = load_engine


CASES = (
    Case("llamacpp", {"model": "tiny"}, other={"model": "tiny:seed=1"}, margins=True),
    Case(
        "emulated",
        {"model": "llama-3-8b", "devices": "h100", "time_scale": 1e-6, "byte_scale": 1e-3},
        other={"model": "qwen3-32b", "devices": "h100x8"},
        margins=False,
    ),
    Case(
        "vllm",
        {"model": "tiny"},
        other={"model": "tiny:seed=1"},
        margins=True,
        marks=(pytest.mark.vllm, pytest.mark.filterwarnings("ignore")),  # its imports warn in hundreds
        load=pool.load_engine,
    ),
)

SMALL = {"max_sequences": 6, "max_context_tokens": 512, "batch_tokens": 64}


@pytest.fixture(params=[pytest.param(case, id=case.name, marks=case.marks) for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def make_engine(case: Case) -> Iterator[MakeEngine]:
    """`make_engine(**options)` loads one more engine; all are shut down at the end of the test."""
    made: list[Engine] = []

    def make(**options: object) -> Engine:
        engine = case.load(case.name, EngineOptions(**{**SMALL, **case.options, **options}))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.shutdown()


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine()
