"""What is done to circuits."""

from __future__ import annotations

from duetime.domain.audit import Entry
from duetime.domain.breaker import End, Rules
from duetime.domain.commands.base import Command


class CountEnds(Command, frozen=True):
    """Count ends of executions for their circuits; given together with the Finish that writes them, and after it.

    What is not how its execution ended (a Finish refused it) is left out. Beyond the most that a tenant may have,
    `breaker.beyond` says how many are forgotten. Answers (circuit, Circuit or None) of each as it stands then, and of
    each that was forgotten; None: it is closed.
    """

    now: int
    ends: tuple[End, ...]
    rules: Rules


class TakeProbe(Command, frozen=True):
    """Make an execution the one that tries an open circuit, if it is time for one. Of many at once, one is it.

    Answers the Circuit as it stands then, with its probe; None: it is closed.
    """

    now: int
    circuit: int
    execution_id: str
    rules: Rules


class CloseCircuit(Command, frozen=True):
    """Forget what a circuit's target did: runs are let through again. Answers None. Refused: NotFound."""

    now: int
    tenant: str
    circuit: int
    audit: Entry | None = None
