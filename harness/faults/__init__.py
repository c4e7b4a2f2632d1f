"""Fault injection: a timed, seeded schedule of faults on the link and on processes.

A fault is parameters and what to do with them (`kinds`); `FaultSchedule` applies and clears them on time and
records when they really took effect. Clearing always runs, also after an exception or Ctrl-C; what a killed
runner leaves is undone by `sweep` at the next start, by the ids in its `Ledger`.
"""

from harness.faults.kinds import Fault
from harness.faults.ledger import Ledger, sweep
from harness.faults.schedule import FaultSchedule
from harness.faults.surroundings import FaultError, Surroundings

__all__ = ["Fault", "FaultError", "FaultSchedule", "Ledger", "Surroundings", "sweep"]
