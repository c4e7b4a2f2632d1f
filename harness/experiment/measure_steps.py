"""Step times of an engine on this machine, as coefficients for the simulator.

    python -m harness.experiment.measure_steps --engine llamacpp --model tiny -o measured.toml
    python -m harness.experiment.measure_steps --run RUN -o measured.toml

Prompts of several lengths are computed in one step each, and batches of several sizes decoded over several
contexts; the coefficients are least squares over the medians; or a live run's own counters are taken, as they
are under its load (`harness.experiment.observed_steps`). Then `[sim] measured = "measured.toml"`.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy as np
import tomli_w
from numpy.typing import NDArray

from adapters.engines import load_engine
from harness.costs.deployment import attention_pairs
from harness.costs.measured import Measured
from harness.costs.quantity import Basis, Quantity
from harness.engine import Decode, Engine, EngineError, EngineOptions, Extended
from harness.experiment.observed_steps import observed
from reports.run import Run

_PROMPTS: Final = (64, 128, 256, 512)
_PASTS: Final = (0, 512, 1024)
_BATCHES: Final = (1, 2, 4, 8, 16)
_CONTEXTS: Final = (64, 512, 1024)
_DECODE_STEPS: Final = 12
_FABRIC_BYTES_S: Final = 1e9
"""Loopback between processes, with serialisation: a guess that matters little beside the WAN."""


class _Bench:
    def __init__(self, engine: Engine, repetitions: int) -> None:
        self._engine = engine
        self._repetitions = repetitions
        self._next = 0

    def _ids(self, length: int) -> list[int]:
        info = self._engine.info
        rng = np.random.default_rng(self._next)
        return [int(i) for i in rng.integers(info.first_normal_id, info.vocab_size, length)]

    def _open(self, length: int, held: int) -> tuple[int, list[int]]:
        """A sequence of `length` ids that holds `held` of them (or one more, if its first id was cached)."""
        self._next += 1
        ids = self._ids(length)
        hit = self._engine.open(self._next, ids)
        if hit < held:
            self._compute(self._next, ids[hit:held])
        return self._next, ids

    def _compute(self, seq: int, ids: list[int]) -> None:
        """Compute ids to the end, in as many steps as the engine takes."""
        self._engine.extend(seq, ids)
        left = len(ids)
        while left:
            for output in self._engine.step():
                if isinstance(output, Extended) and output.seq == seq:
                    left = output.pending

    def prefill_s(self, new: int, past: int) -> float:
        """One step that computes `new` ids after `past` held ones."""
        times = []
        for _ in range(self._repetitions):
            seq, ids = self._open(past + new + 1, past)
            self._engine.extend(seq, ids[self._engine.length(seq) : past + new])
            began_s = time.perf_counter()
            self._engine.step()
            times.append(time.perf_counter() - began_s)
            self._engine.close(seq, keep=False)
        return statistics.median(times)

    def decode_s(self, batch: int, context: int) -> float:
        """One decoding step of `batch` sequences with `context` positions each."""
        sequences = [self._open(context + 1, context) for _ in range(batch)]
        for seq, ids in sequences:
            self._engine.extend(seq, ids[context:], Decode(_DECODE_STEPS + 2))
        self._engine.step()
        times = []
        for _ in range(_DECODE_STEPS):
            began_s = time.perf_counter()
            self._engine.step()
            times.append(time.perf_counter() - began_s)
        for seq, _ in sequences:
            self._engine.close(seq, keep=False)
        return statistics.median(times)


def measure(engine: Engine, *, repetitions: int, batch_tokens: int, name: str) -> Measured:
    """Run the grid and fit it. Points that the engine's context or slots do not hold are left out."""
    bench = _Bench(engine, repetitions)
    info, capacity_tokens = engine.info, engine.usage().capacity_tokens
    if capacity_tokens is None:
        raise EngineError(f"engine {info.engine!r} has no steps of its own: measure the server behind it")
    prefill = [
        (new, past, bench.prefill_s(new, past))
        for new, past in itertools.product(_PROMPTS, _PASTS)
        if new <= batch_tokens and past + new < info.max_context_tokens
    ]
    decode = [
        (batch, context, bench.decode_s(batch, context))
        for batch, context in itertools.product(_BATCHES, _CONTEXTS)
        if batch <= info.max_sequences and context + _DECODE_STEPS + 2 < info.max_context_tokens
    ]
    rows, times = _design(prefill, decode)
    weights = 1 / times  # relative errors count
    found = _non_negative(rows * weights[:, None], times * weights)
    residuals = rows @ found / times - 1
    source = (
        f"measured on this machine: {len(prefill)} prompts, {len(decode)} batches; relative error "
        f"median {float(np.median(np.abs(residuals))):.0%}, largest {float(np.abs(residuals).max()):.0%}"
    )

    def quantity(value: float, text: str = source) -> Quantity:
        return Quantity(value, Basis.FITTED, text)

    overhead_s, linear_s, pair_s, decode_s, read_s = (float(v) for v in found)
    return Measured(
        name=name,
        linear_s_per_token=quantity(linear_s),
        attention_s_per_pair=quantity(pair_s),
        decode_s_per_token=quantity(decode_s),
        kv_read_s_per_token=quantity(read_s),
        overhead_s=quantity(overhead_s),
        decode_kernel_tokens=quantity(float(max(_BATCHES)), "largest batch measured"),
        kv_bytes_per_token=quantity(info.kv_bytes_per_token, "told by the engine"),
        capacity_tokens=quantity(float(capacity_tokens), "told by the engine"),
        fabric_bytes_s=quantity(_FABRIC_BYTES_S, "assumed: loopback between processes"),
    )


def _design(
    prefill: list[tuple[int, int, float]], decode: list[tuple[int, int, float]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns: overhead, prompt tokens, pairs, decoded tokens, positions read."""
    rows = [(1, new, attention_pairs(new, past), 0, 0) for new, past, _ in prefill]
    rows += [(1, 0, 0, batch, batch * context) for batch, context, _ in decode]
    return np.array(rows, np.float64), np.array([t for *_, t in (*prefill, *decode)])


def _non_negative(rows: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with no negative coefficient: a step never pays back."""
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to load

    scale = np.abs(rows).max(axis=0)
    return np.asarray(nnls(rows / scale, times)[0] / scale, dtype=np.float64)


def plain(measured: Measured) -> Iterator[tuple[str, Any]]:
    """The file's keys and values."""
    for key, value in msgspec.to_builtins(measured).items():
        yield key, {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


@click.command()
@click.option("--engine", "engine_name", default="llamacpp", show_default=True)
@click.option("--model", default="tiny", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--repetitions", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--run",
    "run_dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take the counters of this live run instead of an engine alone.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(
    engine_name: str, model: str, threads: int, repetitions: int, run_dir: Path | None, output: Path
) -> None:
    """Measure step times and write them as coefficients for `[sim] measured`."""
    if run_dir is None:
        found = _alone(engine_name, model, threads, repetitions)
    else:
        try:
            found = observed(Run.open(run_dir))
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    output.write_text(tomli_w.dumps(dict(plain(found))), encoding="utf-8")
    click.echo(f"{output}: {found.linear_s_per_token.source}")


def _alone(engine_name: str, model: str, threads: int, repetitions: int) -> Measured:
    options = EngineOptions(
        model=model, max_sequences=32, max_context_tokens=2048, batch_tokens=512, threads=threads
    )
    engine = load_engine(engine_name, options)
    try:
        return measure(
            engine, repetitions=repetitions, batch_tokens=options.batch_tokens, name=f"{engine_name} {model}"
        )
    finally:
        engine.shutdown()


if __name__ == "__main__":
    main()
