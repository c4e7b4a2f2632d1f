"""What goes wrong with a run's records: one line saying what, where, and what would be right."""

from __future__ import annotations


class ReportError(ValueError):
    """A record, run or comparison that cannot be used as asked."""


class RecordingError(ReportError):
    """Rows could not be put on disk (disk full, folder gone); everything flushed before stays readable."""
