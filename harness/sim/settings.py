"""What an experiment may set for the simulator beyond what a live run needs to know."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class WorkerKind(enum.StrEnum):
    """How a worker takes commands and moves KV."""

    LIVE = "live"
    """As pddbench's own do: between the engine's steps, KV in segments, over loopback inside a cluster."""
    DATACENTER = "datacenter"
    """Beside the engine's steps, KV by RDMA."""


class SimSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[sim]` section. Workers, their limits and the link's profile are the experiment's own."""

    model: str | None = None
    """Model profile (harness.costs); None: the cluster's model, which must then name one."""
    measured: str | None = None
    """Step times measured on a real engine (harness.experiment.measure_steps); wins over the model."""
    devices: str | None = None
    """Devices of a worker, e.g. 'h100x16'; None: the cluster's engine_options, else 'h100x8'."""
    relay_devices: str | None = None
    """Devices of a relay worker; None: as `devices`."""
    main_devices: str | None = None
    """Devices of a main worker; None: as `devices`."""
    line: str | None = None
    """Line profile that tells how the pool behaves on the link (efficiency, rate spread, limit of a
    connection, pool size) and what it costs; None: fair sharing by `kv_connections` a pair of workers."""
    workers: WorkerKind = WorkerKind.LIVE
    """'live' for what `pddbench run` would measure, 'datacenter' for a cluster of real accelerators."""
    chunk_tokens: _AtLeastOne | None = None
    """Tokens of one prefill step; None: the cluster's batch_tokens."""
    fill_tail: bool = True
    """Fill a step with the next prompts' tokens; False: a tail chunk goes alone."""
    time_scale: _Positive | None = None
    """Factor on every step's duration; None: the cluster's engine_options, else 1."""
    byte_scale: _Positive | None = None
    """Factor on every KV size; None: the cluster's engine_options, else 1."""
    message_ms: _NotNegative | None = None
    """One way of a control message inside a datacenter (across the WAN half its round trip comes on top),
    and of a client's request; None: 1 ms for live workers, else 0."""
    handoff_extra_ms: _NotNegative = 0.0
    """What a handoff takes beyond messages and steps (scheduling at MD, metadata); mean."""
    handoff_extra_sd_ms: _NotNegative = 0.0
    copy_ms: _NotNegative = 0.0
    """Device copy of a kv_transfer handoff."""
    token_times: bool | None = None
    """Write the instant of every token; None: in runs of up to 20,000 requests."""
    sample_s: _Positive = 1.0
    """Interval of link and worker samples at first, in virtual time; it doubles every 1,000 samples."""
