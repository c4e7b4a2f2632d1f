"""Synthetic agentic traffic: parameters in, a Trace out, the same for the same seed."""
