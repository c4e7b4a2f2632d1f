"""The run itself failed (not: its configuration is wrong, nor: its figures are invalid)."""

from __future__ import annotations


class RunFailedError(RuntimeError):
    """One line: which process or step failed, and what it said."""
