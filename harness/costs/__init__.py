"""Cost profiles and pure cost functions. Owned by the simulator; the emulated engine imports them too.

    accelerator = load_accelerator("h100-sxm")          # name of a shipped profile, or a path ending in .toml
    model = load_model("deepseek-v3")
    line = load_line("wan-20g")
    costs = WorkerCosts(accelerator, model, accelerators=8)
    costs.step_s([Chunk(new=4096, past=60_000)], batch=32, context_tokens=32 * 8000)   # one engine step
    costs.prefill_s(16_384, 0), costs.decode_s(32, 32 * 8000), costs.extend_s(100, 65_536)
    costs.capacity_tokens                               # KV positions that fit beside the weights
    model.kv_bytes(p0, p1)                              # payload of the KV of positions [p0, p1)
    costs.fast_transfer_s(kv_bytes)                     # over the RDMA-like fabric inside a datacenter

Every value of a profile is a `Figure` (value, source, kind: published, derived or fitted). All times are
seconds, sizes bytes, lengths tokens. Functions are pure and deterministic. ProfileError (a ValueError)
names the file, the field and what would be right.
"""

from harness.costs.accelerator import Accelerator
from harness.costs.catalog import load_accelerator, load_line, load_model, names
from harness.costs.figure import Figure, FigureKind, ProfileError
from harness.costs.line import Line
from harness.costs.model import Model
from harness.costs.worker import Chunk, WorkerCosts

__all__ = [
    "Accelerator",
    "Chunk",
    "Figure",
    "FigureKind",
    "Line",
    "Model",
    "ProfileError",
    "WorkerCosts",
    "load_accelerator",
    "load_line",
    "load_model",
    "names",
]
