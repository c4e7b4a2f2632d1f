"""Figures of a trace: what its prompts hit, how long they are, when they come."""
