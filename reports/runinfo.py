"""run.json: what a run was. Written by the runner at the start (state 'running') and at the end.

Everything needed to judge a result without the machine that made it: configuration as resolved,
versions, host, link, engine, clocks, validity. Null means "not known" or "does not apply".
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Final

import msgspec

from reports.errors import ReportError
from reports.whole_file import write_whole

FILE_NAME: Final = "run.json"
FORMAT: Final = 1


class RunState(enum.StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Validity(msgspec.Struct, frozen=True):
    """Whether the figures may be used; each reason is one line naming what was seen and the bound."""

    valid: bool = True
    reasons: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    """Remarks that do not make the figures wrong (one repetition only, user-space stamps, …)."""


class ClockAnchor(msgspec.Struct, frozen=True):
    """Anchor of one process: instants of two processes compare within the sum of their errors."""

    process: str
    offset_ns: int
    error_ns: int


class HostInfo(msgspec.Struct, frozen=True):
    """The machine. Runs of different `host_class` are not compared unless asked to."""

    host_class: str
    """CPU model, cores and memory in one key, e.g. 'amd-epyc-7b13/2c/24g/linux'."""
    cpu_model: str
    cores: int
    memory_bytes: int
    kernel: str
    platform: str
    hostname_hash: str


class VersionInfo(msgspec.Struct, frozen=True):
    """What ran."""

    pddbench: str
    python: str
    packages: dict[str, str] = {}
    git_commit: str | None = None
    git_dirty: bool | None = None


class LinkInfo(msgspec.Struct, frozen=True):
    """The WAN of one cell: what was asked, and what the driver says it is."""

    driver: str
    """'netem', 'uml', 'relay', 'sim' or 'none'."""
    modelled: bool
    """True where TCP over the link is only modelled."""
    profile: str
    kernel: str = ""
    a_to_b_rate_bit_s: int | None = None
    b_to_a_rate_bit_s: int | None = None
    a_to_b_delay_ms: float | None = None
    b_to_a_delay_ms: float | None = None
    details: dict[str, str] = {}


class EngineInfo(msgspec.Struct, frozen=True):
    """One worker of one cell."""

    worker: str
    role: str
    cluster: str
    engine: str
    model: str
    model_digest: str = ""
    build: str = ""
    emulated: bool = False
    details: dict[str, str] = {}


class CellInfo(msgspec.Struct, frozen=True):
    """One cell of the experiment's matrix, in the order of the experiment."""

    name: str
    """Names the folder: letters, digits and . _ + - only."""
    mode: str
    """Handoff mode as the experiment calls it ('xdc', 'pdd', 'one_shot', …)."""
    label: str
    """What people read."""
    reps: int
    link: LinkInfo | None = None
    engines: tuple[EngineInfo, ...] = ()
    parameters: dict[str, Any] = {}
    """What tells this cell from the others (offered rate, profile, workload …); JSON values."""
    cost_per_hour: float | None = None
    """Hardware and line, for the benefit-cost ratio; in `RunInfo.currency`."""
    validity: Validity = Validity()


class RepInfo(msgspec.Struct, frozen=True):
    """One repetition of one cell, in the order they ran."""

    cell: str
    rep: int
    order: int
    started_ns: int
    ended_ns: int | None = None
    validity: Validity = Validity()


class TraceInfo(msgspec.Struct, frozen=True):
    """The replayed workload. Runs of different digests are not compared unless asked to."""

    name: str
    digest: str
    requests: int | None = None
    sessions: int | None = None
    source: str = ""


class RunInfo(msgspec.Struct, frozen=True):
    """See the module. `replace` with msgspec.structs.replace, then `write` again."""

    name: str
    state: RunState
    started_ns: int
    seed: int
    config_toml: str
    """The resolved configuration as TOML: running it again repeats the run."""
    config: dict[str, Any]
    versions: VersionInfo
    host: HostInfo
    cells: tuple[CellInfo, ...]
    ended_ns: int | None = None
    reps: tuple[RepInfo, ...] = ()
    trace: TraceInfo | None = None
    load_driver: str = "loadgen"
    """What sent the load ('loadgen', 'sim', …): results of different drivers do not compare."""
    emulated: bool = False
    """Engine times came from a model, bytes and sockets were real."""
    simulated: bool = False
    """Nothing was real: instants count from 0."""
    token_scale: float = 1.0
    """Tokens sent ÷ tokens in the trace."""
    time_scale: float = 1.0
    """Gaps waited ÷ gaps in the trace."""
    slo: dict[str, float] = {}
    """Objectives a request must meet to count as good, e.g. {'ttft_ms': 2000, 'tpot_ms': 50}."""
    currency: str = "USD"
    wan_price_per_gbyte: float | None = None
    clocks: tuple[ClockAnchor, ...] = ()
    validity: Validity = Validity()
    format: int = FORMAT

    def write(self, run_dir: Path) -> Path:
        """Put run.json into the run's folder at once or not at all."""
        return write_whole(self, run_dir, FILE_NAME)

    @classmethod
    def read(cls, run_dir: Path) -> RunInfo:
        path = run_dir / FILE_NAME
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ReportError(f"{path}: {error.strerror}; a run directory holds run.json") from error
        try:
            info = msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise ReportError(f"{path}: {error}") from error
        if info.format > FORMAT:
            raise ReportError(
                f"{path}: format {info.format} was written by a newer pddbench ({info.versions.pddbench}); "
                f"this one reads up to {FORMAT}"
            )
        return info
