"""The host and the versions, as written into run.json."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
from pathlib import Path

from reports.runinfo import HostInfo, VersionInfo


def probe_host() -> HostInfo:
    """Describe this machine. The host name enters only as a hash."""
    model = _cpu_model()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    key = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "unknown-cpu"
    return HostInfo(
        host_class=f"{key}/{cores}c/{round(memory / 2**30)}g/{platform.system().lower()}",
        cpu_model=model,
        cores=cores,
        memory_bytes=memory,
        kernel=platform.release(),
        platform=platform.platform(),
        hostname_hash=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
    )


def probe_versions(source: Path, packages: tuple[str, ...]) -> VersionInfo:
    """Versions of this tool and of `packages`, and the git commit of `source` if it is a checkout."""
    commit = _git(source, "rev-parse", "HEAD")
    changes = _git(source, "status", "--porcelain", "--untracked-files=no") if commit else None
    return VersionInfo(
        pddbench=_version("pddbench") or "unknown",
        python=platform.python_version(),
        packages={name: found for name in packages if (found := _version(name))},
        git_commit=commit,
        git_dirty=None if changes is None else bool(changes),
    )


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(source: Path, *arguments: str) -> str | None:
    """Output of git, None when there is no git or no checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(source), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
