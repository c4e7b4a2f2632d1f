"""The experiment file: strict TOML, every key known, every default visible in the resolved copy.

A cell is the experiment with some of its sections overridden; the cells of an experiment are run
interleaved and compared with each other.
"""

from __future__ import annotations

import re
import tomllib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from harness.engine import EngineOptions
from harness.faults import Fault
from harness.link import LinkProfile
from harness.loadgen.job import (
    Arrivals,
    Bounds,
    Cancellation,
    Limits,
    MasterOptions,
    RecordedArrivals,
    Warmup,
    Web,
)
from harness.policy.config import MODES, PolicyConfig
from harness.sim.settings import SimSettings

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._+-]+$")]


class ConfigError(ValueError):
    """What is wrong with an experiment: where, what, and what would be right, in one line."""


class WorkloadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is replayed."""

    source: str = "preset:small-engine"
    """A trace file or folder (relative to the experiment file), or preset:NAME of the generator."""
    format: str | None = None
    """Format of the trace; None: detected."""
    sessions: AtLeastOne | None = None
    """Sessions to generate (presets), or the first ones to keep (traces); None: all."""
    turns: AtLeastOne | None = None
    """Mean turns of a generated session; None: the preset's."""
    token_scale: Positive = 1.0
    """Factor on every token count; hit rates stay."""
    time_scale: Positive = 1.0
    """Factor on think times and session starts."""
    max_context_tokens: AtLeastOne | None = None
    """Sessions that grow beyond it are dropped whole; None: what the engine holds."""
    cache_tokens: AtLeastOne | None = None
    """Size of the prefix cache that hits are expected of; None: cluster.capacity_tokens of the workers that
    prefill, together, or a cache that holds everything where that is not set."""
    hit_tolerance_points: Positive = 2.0
    """Achieved and expected prefix hit may differ by so much before the run is invalid."""


_ENGINE_KEYS: Final = (
    "model",
    "model_sha256",
    "max_sequences",
    "max_context_tokens",
    "capacity_tokens",
    "batch_tokens",
    "threads",
)


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The workers."""

    engine: str = "llamacpp"
    model: str = "tiny"
    model_sha256: str | None = None
    prefill: Count = 1
    relay: Count = 1
    main: Count = 1
    colocated: AtLeastOne = 1
    """Workers of the `colocated` mode, which has no others."""
    max_sequences: AtLeastOne = 64
    max_context_tokens: AtLeastOne = 8192
    capacity_tokens: AtLeastOne | None = None
    batch_tokens: AtLeastOne = 512
    threads: AtLeastOne = 1
    kv_connections: AtLeastOne = 4
    segment_tokens: AtLeastOne = 1024
    stall_s: Positive = 30.0
    transport: str = "tcp"
    """What carries the bytes of KV: the workers' own connections, or 'nixl' (see docs/vllm.md)."""
    endpoints: dict[str, str] = {}
    """Engine `openai`: base URL of the server behind each worker, by its name (main-0) or kind (main)."""
    engine_options: dict[str, Any] = {}
    """Further options of the named engine (devices, time_scale, byte_scale of `emulated`; vocab_size and
    api_key_env of `openai`)."""

    def options(self, where: str, worker: str = "") -> EngineOptions:
        """What the engine of this worker is loaded with. ConfigError for an option it does not know."""
        common = {name: getattr(self, name) for name in _ENGINE_KEYS}
        common["endpoint"] = self.endpoints.get(worker, self.endpoints.get(worker.partition("-")[0]))
        return read(EngineOptions, {**common, **self.engine_options}, f"{where}.engine_options")


class LinkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The WAN between the clusters."""

    driver: str = "auto"
    profile: str | LinkProfile = "quickstart"
    """A named profile, or one written out."""


class LoadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the trace is replayed."""

    arrivals: Arrivals = RecordedArrivals()
    limits: Limits = Limits()
    warmup: Warmup = Warmup()
    cancellation: Cancellation | None = None
    bounds: Bounds = Bounds()
    temperature: float = 0.0
    connections: typing.Literal["reuse", "fresh"] = "reuse"
    processes: AtLeastOne = 1
    keep_output_ids: bool = False
    master: MasterOptions | None = None
    """Let `pddbench worker` processes send the load."""
    web: Web | None = None
    """Serve Locust's web interface while under load."""


class SloConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request counts towards goodput when it meets all that are set."""

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    e2e_ms: Positive | None = None


class CostConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices, for the benefit-cost ratio; None leaves it undefined."""

    a_per_hour: float | None = None
    """One worker in cluster A."""
    b_per_hour: float | None = None
    """One worker in cluster B."""
    line_per_hour: float = 0.0
    wan_per_gbyte: float | None = None
    currency: str = "USD"


class CellConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cell: a mode, and what differs from the experiment."""

    name: Name
    mode: str
    label: str | None = None
    policy: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    link: dict[str, Any] = {}
    load: dict[str, Any] = {}
    sim: dict[str, Any] = {}
    faults: tuple[Fault, ...] | None = None
    """Faults of this cell; not set: the experiment's."""


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    name: Name
    cells: Annotated[tuple[CellConfig, ...], msgspec.Meta(min_length=1)]
    description: str = ""
    seed: int = 1
    repetitions: AtLeastOne = 1
    workload: WorkloadConfig = WorkloadConfig()
    cluster: ClusterConfig = ClusterConfig()
    link: LinkConfig = LinkConfig()
    load: LoadConfig = LoadConfig()
    policy: dict[str, Any] = {}
    """Overrides of every cell's policy."""
    slo: SloConfig = SloConfig()
    cost: CostConfig = CostConfig()
    sim: SimSettings = SimSettings()
    """Read by `pddbench sim` alone."""
    faults: tuple[Fault, ...] = ()
    """Timed from the start of the load."""
    record_decisions: bool = True


class Cell(msgspec.Struct, frozen=True):
    """A cell as it is run: every section resolved."""

    name: str
    mode: str
    label: str
    main_cluster: str
    policy: PolicyConfig
    workload: WorkloadConfig
    cluster: ClusterConfig
    link: LinkConfig
    load: LoadConfig
    sim: SimSettings
    faults: tuple[Fault, ...]


def load_experiment(path: Path, overrides: dict[str, Any] | None = None) -> Experiment:
    """Read an experiment file; `overrides` (nested like the file) win over it. Raises ConfigError."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give an experiment in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    raw = merge(raw, overrides or {})
    if isinstance(workload := raw.get("workload"), dict) and isinstance(
        source := workload.get("source"), str
    ):
        raw["workload"] = {**workload, "source": _beside(path, source)}
    experiment = read(Experiment, raw, str(path))
    resolve(experiment, str(path))
    return experiment


def resolve(experiment: Experiment, where: str = "experiment") -> tuple[Cell, ...]:
    """Every cell with its own sections. Raises ConfigError for an unknown mode or a wrong override."""
    cells = []
    for index, cell in enumerate(experiment.cells):
        place = f"{where}: cells[{index}]"
        mode = MODES.get(cell.mode)
        if mode is None:
            raise ConfigError(f"{place}.mode: unknown mode {cell.mode!r}; known modes: {', '.join(MODES)}")
        if any(cell.name == other.name for other in experiment.cells[:index]):
            raise ConfigError(f"{place}.name: {cell.name!r} is taken; cell names are unique")
        cluster = _section(experiment.cluster, cell.cluster, f"{place}.cluster")
        cluster.options(f"{place}.cluster")
        policy = merge(merge(msgspec.to_builtins(mode.policy), experiment.policy), cell.policy)
        cells.append(
            Cell(
                name=cell.name,
                mode=cell.mode,
                label=cell.label or cell.name,
                main_cluster=mode.main_cluster,
                policy=read(PolicyConfig, policy, f"{place}.policy"),
                workload=_section(experiment.workload, cell.workload, f"{place}.workload"),
                cluster=cluster,
                link=_section(experiment.link, cell.link, f"{place}.link"),
                load=_section(experiment.load, cell.load, f"{place}.load"),
                sim=_section(experiment.sim, cell.sim, f"{place}.sim"),
                faults=experiment.faults if cell.faults is None else cell.faults,
            )
        )
    return tuple(cells)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Tables merge key by key, everything else is replaced."""
    out = dict(base)
    for key, value in over.items():
        before = out.get(key)
        out[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return out


_S = typing.TypeVar("_S")


def read(kind: type[_S], raw: object, where: str) -> _S:
    """Convert plain data strictly; an error names the place, and the known keys for an unknown one."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(kind, str(error)).lstrip('.')}") from None


def _section(base: _S, over: dict[str, Any], where: str) -> _S:
    if not over:
        return base
    return read(type(base), merge(msgspec.to_builtins(base), over), where)


def _beside(path: Path, source: str) -> str:
    if source.startswith("preset:") or Path(source).is_absolute():
        return source
    return str((path.parent / source).resolve())


_PATH: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(?P<key>[^`]*)`")
_MISSING: Final = re.compile(r"^Object missing required field `(?P<key>[^`]*)`")


def _explain(kind: type, message: str) -> str:
    """'.link.rtt: unknown key; known keys: …' out of msgspec's wording."""
    found = _PATH.search(message)
    path = found["path"] if found else ""
    what = message[: found.start()] if found else message
    if unknown := _UNKNOWN.match(what):
        fields = _fields_at(kind, path)
        known = f"; known keys: {', '.join(fields)}" if fields else ""
        return f"{path}.{unknown['key']}: unknown key{known}"
    if missing := _MISSING.match(what):
        return f"{path}.{missing['key']}: missing"
    return f"{path}: {what[0].lower()}{what[1:]}"


def _fields_at(kind: Any, path: str) -> list[str]:
    """Field names of the struct that `path` leads to; none where the path ends in a union of several."""
    for step in re.findall(r"\.([A-Za-z_]\w*)|\[[^\]]*\]", path):
        kind = typing.get_type_hints(kind).get(step) if step else next(iter(typing.get_args(kind)), None)
        kind = _struct_of(kind)
    return list(kind.__struct_fields__) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []


def _struct_of(kind: Any) -> Any:
    """The one struct (or tuple of one kind) inside Optional, Annotated and the like."""
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        structs = [a for a in typing.get_args(kind) if isinstance(a, type) and issubclass(a, msgspec.Struct)]
        return structs[0] if len(structs) == 1 else None
    return kind
