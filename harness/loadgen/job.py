"""What one load generator is asked to do: the interface between the experiment runner and this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class JobError(ValueError):
    """The job cannot be done as asked; one line that says what, where and what would be right."""


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TLS of an `https` target."""

    ca_file: Path | None = None  # None: the system's authorities
    verify: bool = True
    server_name: str | None = None  # None: the host of the base URL


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint.

    `pdd` is the router's dialect (token ids in and out, server-side times); `completions` and `chat`
    are OpenAI's. `token_ids` on `completions` sends ids and asks for ids back (vLLM's
    `return_token_ids`); without it, and on `chat`, turns are chained through text.
    """

    base_url: str
    api: Literal["pdd", "completions", "chat"] = "pdd"
    model: str = "pddbench"
    token_ids: bool = True
    ignore_eos: bool = True  # not an OpenAI parameter: switch off for endpoints that refuse unknown ones
    continuous_usage: bool = False  # vLLM's stream_options.continuous_usage_stats: exact tokens per chunk
    api_key_env: str | None = None
    api_key_file: Path | None = None
    tls: Tls = Tls()
    extra_body: dict[str, msgspec.Raw] = {}


class RecordedArrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="recorded"):
    """Sessions start at the plan's own instants."""


class ConstantArrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="constant"):
    """Session starts evenly spaced, `rate_s` a second, reached after a linear ramp of `ramp_s`."""

    rate_s: Positive
    ramp_s: NotNegative = 0.0


class PoissonArrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="poisson"):
    """Session starts with exponential gaps at `rate_s` sessions per second."""

    rate_s: Positive
    ramp_s: NotNegative = 0.0


class GammaArrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="gamma"):
    """Session starts with gamma gaps; `cv` is their coefficient of variation (1 = Poisson, 2 = bursty)."""

    rate_s: Positive
    cv: Positive
    ramp_s: NotNegative = 0.0


class ClosedLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="closed"):
    """`sessions` *live sessions* at any time; a new one starts the moment one ends.

    A session in its think time is live and has nothing in flight, so the requests in flight are
    fewer than `sessions` (or more, where turns fan out): this is not "N requests in flight".
    """

    sessions: AtLeastOne


class EveryTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="every_turn"):
    """Open loop for all turns: each at its recorded instant, never before the answers it builds on."""


Arrivals = RecordedArrivals | ConstantArrivals | PoissonArrivals | GammaArrivals | ClosedLoop | EveryTurn


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time limits. Nothing is sent after `duration_s`; what is in flight then has `drain_s` to end."""

    duration_s: Positive | None = None  # None: until the plan is done
    deadline_s: Positive = 600.0  # per request
    connect_s: Positive = 10.0
    drain_s: NotNegative = 30.0


class Warmup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Recorded with phase 'warmup': the first `sessions` sessions, and whatever is due before `seconds`."""

    sessions: Count = 0
    seconds: NotNegative = 0.0


class Cancellation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seeded `share` of the requests is given up after `after_tokens` tokens or `after_s` seconds."""

    share: Share
    after_tokens: AtLeastOne | None = None
    after_s: Positive | None = None


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Beyond any of these the instrument was the bottleneck and the run is marked invalid."""

    lateness_p99_ms: Positive = 5.0
    loop_lag_p99_ms: Positive = 20.0
    cpu_share_p90: Positive = 0.9
    clock_error_ms: Positive = 1.0
    merged_share: Share = 0.1


class Scrape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prometheus endpoints sampled into `server_metrics` while the run lasts."""

    endpoints: tuple[str, ...] = ()
    every_s: Positive = 5.0


class MasterOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Locust's distributed mode: wait for `workers` workers on `host:port`, shard the sessions over them."""

    workers: AtLeastOne
    host: str = "127.0.0.1"
    port: Port = 5557
    join_s: Positive = 60.0  # workers must have joined by then


class Web(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Locust's web interface."""

    host: str = "127.0.0.1"
    port: Port = 8089


class LoadJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cell and repetition: replay `plan` against `target`, write `requests` into `run_dir`."""

    target: Target
    plan: Path
    run_dir: Path
    cell: str
    rep: Count
    seed: int
    arrivals: Arrivals = RecordedArrivals()
    limits: Limits = Limits()
    warmup: Warmup = Warmup()
    cancellation: Cancellation | None = None
    retries: Count = 0
    connections: Literal["reuse", "fresh"] = "reuse"
    temperature: NotNegative = 0.0
    request_seed: Literal["per_request", "fixed"] = "per_request"
    keep_output_ids: bool = False
    bounds: Bounds = Bounds()
    scrape: Scrape = Scrape()
    processes: AtLeastOne = 1
    master: MasterOptions | None = None
    web: Web | None = None
    progress: Literal["json", "live", "quiet"] = "json"


def _encode_other(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a job holds no {type(value).__name__}")


def _decode_other(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"a job holds no {kind.__name__}")


def encode_job(job: LoadJob) -> bytes:
    return msgspec.json.format(msgspec.json.encode(job, enc_hook=_encode_other))


def decode_job(data: bytes, where: str = "job") -> LoadJob:
    """Raises JobError naming the offending key."""
    try:
        return msgspec.json.decode(data, type=LoadJob, dec_hook=_decode_other)
    except msgspec.MsgspecError as error:
        raise JobError(f"{where}: {error}") from None


def write_job(job: LoadJob, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_job(job))


def read_job(path: Path) -> LoadJob:
    """Raises JobError on a missing file or a key that is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    return decode_job(data, str(path))


def shard_name(number: int) -> str:
    """Name of the `number`th process of a run, from 0: of its shards and of its assessment."""
    return f"loadgen-{number}"


def loadgen_dir(job: LoadJob) -> Path:
    """Where the load generator's own files of this cell and repetition stand."""
    return job.run_dir / "loadgen" / f"cell={job.cell}" / f"rep={job.rep}"
