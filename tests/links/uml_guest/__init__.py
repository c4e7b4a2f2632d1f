"""Runs the netem tests in a user-mode-linux guest: `python -m tests.links.uml_guest [PYTEST ARGUMENT…]`."""
