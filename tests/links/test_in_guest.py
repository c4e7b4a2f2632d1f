"""The netem driver where this kernel has no netem: its whole suite, inside a user-mode-linux guest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.netem, pytest.mark.timeout(900)]


def test_the_netem_driver_passes_its_suite_in_a_guest():
    done = subprocess.run(
        [sys.executable, "-m", "tests.links.uml_guest"],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    print(done.stdout[-20_000:], done.stderr[-2000:])
    assert done.returncode == 0, done.stderr or "see the guest's output above"
