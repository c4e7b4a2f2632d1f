"""Trace files in other formats; `workloads.convert` is the table of them."""
