"""Speed of an engine: prefill, decode at batch 1 and 8, export and import of KV.

    python benchmarks/engines.py --engine llamacpp --model tiny --model smollm2
    python benchmarks/engines.py --engine emulated --model llama-3-8b --devices h100

The models take turns, round by round, so that what else runs on the machine strikes all alike; the median
of the rounds is shown, by wall clock and by CPU time. The second tells what one free core would do: on a
busy machine compare only that.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from adapters.engines import load_engine
from harness.engine import Decode, Engine, EngineOptions, Sampled

_CONTEXT_TOKENS = 2048
_BATCH = 8


@dataclass
class Timed:
    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def timed() -> Iterator[Timed]:
    result = Timed()
    wall, cpu = time.perf_counter(), time.process_time()
    yield result
    result.wall_s, result.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def drain(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


class Subject:
    """One engine under measurement; every figure is a list over rounds of (by wall, by CPU)."""

    def __init__(self, engine: Engine, prompt_tokens: int, decode_tokens: int) -> None:
        self.engine = engine
        self.figures: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._prompt_tokens = prompt_tokens
        self._decode_tokens = decode_tokens
        self._draw = random.Random(0)

    def round(self) -> None:
        ids = self._ids(self._prompt_tokens)
        n = len(ids) - 1
        self.engine.open(0, ids)
        with timed() as spent:
            self.engine.extend(0, ids[:n])
            drain(self.engine)
        self._rate("prefill_tokens_s", n, spent)
        with timed() as spent:
            blob = self.engine.export_kv(0, 0, n)
        self._per_thousand("export_ms_per_1k_tokens", n, spent)
        self.engine.close(0, keep=False)
        self.engine.open(1, ids)
        with timed() as spent:
            self.engine.import_kv(1, 0, n, blob)
        self._per_thousand("import_ms_per_1k_tokens", n, spent)
        self.engine.close(1, keep=False)
        for batch in (1, _BATCH):
            self._decode(batch)

    def _decode(self, batch: int) -> None:
        """Sequences of 100 ids, so that their number is what differs, not the context."""
        for seq in range(batch):
            ids = self._ids(100)
            self.engine.open(seq, ids)
            self.engine.extend(seq, ids, Decode(self._decode_tokens))
        begun: set[int] = set()
        while len(begun) < batch:
            begun |= {output.seq for output in self.engine.step() if isinstance(output, Sampled)}
        before = self.engine.usage().decoded_tokens
        with timed() as spent:
            drain(self.engine)
        self._rate(f"decode_{batch}_tokens_s", self.engine.usage().decoded_tokens - before, spent)
        for seq in range(batch):
            self.engine.close(seq, keep=False)

    def _ids(self, count: int) -> list[int]:
        info = self.engine.info
        return [self._draw.randrange(info.first_normal_id, info.vocab_size) for _ in range(count)]

    def _rate(self, name: str, tokens: int, spent: Timed) -> None:
        self.figures[name].append((tokens / spent.wall_s, tokens / max(spent.cpu_s, 1e-9)))

    def _per_thousand(self, name: str, tokens: int, spent: Timed) -> None:
        self.figures[name].append((spent.wall_s * 1e6 / tokens, spent.cpu_s * 1e6 / tokens))

    def summary(self) -> dict[str, float]:
        result = {"kv_bytes_per_token": self.engine.info.kv_bytes_per_token}
        for name, values in self.figures.items():
            result[f"{name}_by_wall"] = round(statistics.median(wall for wall, _ in values), 2)
            result[f"{name}_by_cpu"] = round(statistics.median(cpu for _, cpu in values), 2)
        return result


@click.command(help=__doc__)
@click.option("--engine", "engine_name", default="llamacpp", show_default=True)
@click.option("--model", "models", multiple=True, default=("tiny",), show_default=True)
@click.option("--devices", help="Of the emulated engine, such as 'h100x8'.")
@click.option("--prompt-tokens", default=1000, show_default=True)
@click.option("--decode-tokens", default=48, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def main(
    engine_name: str,
    models: tuple[str, ...],
    devices: str | None,
    prompt_tokens: int,
    decode_tokens: int,
    rounds: int,
    as_json: bool,
) -> None:
    subjects: dict[str, Subject] = {}
    for model in models:
        options = EngineOptions(
            model=model, devices=devices, max_sequences=_BATCH, max_context_tokens=_CONTEXT_TOKENS
        )
        subjects[model] = Subject(load_engine(engine_name, options), prompt_tokens, decode_tokens)
    try:
        for _ in range(rounds):
            for subject in subjects.values():
                subject.round()
        results = {model: subject.summary() for model, subject in subjects.items()}
    finally:
        for subject in subjects.values():
            subject.engine.shutdown()
    load = os.getloadavg()[0]
    if as_json:
        click.echo(json.dumps({"engine": engine_name, "load_average": load, "models": results}))
        return
    click.echo(f"{engine_name}; {os.cpu_count()} cores, load average {load:.1f}; median of {rounds} rounds")
    for name in next(iter(results.values())):
        click.echo(f"{name:38}" + "".join(f"{results[model][name]:>14,.1f}" for model in models))
    click.echo(f"{'model':38}" + "".join(f"{model:>14}" for model in models))


if __name__ == "__main__":
    main()
