"""Commands on circuits."""

from __future__ import annotations

from duetime.domain.audit import Entry
from duetime.domain.breaker import Circuit, End, Rules
from duetime.domain.commands.base import Command


class CountEnds(Command[list[tuple[int, Circuit | None]]], frozen=True):
    """Count ends of executions for their circuits. It follows the Finish that writes these ends, in the same batch.

    An end that the Finish refused is not counted. If a tenant has more circuits than it may have, `breaker.beyond` says
    how many are deleted. Returns (circuit, Circuit or None) for each counted circuit in its new state, and for each
    deleted one. None means that the circuit is closed.
    """

    now: int
    ends: tuple[End, ...]
    rules: Rules


class TakeProbe(Command[Circuit | None], frozen=True):
    """Make an execution the probe of an open circuit, if a probe is due. Of several executions, one becomes the probe.

    Returns the Circuit in its new state, with its probe, or None if it is closed.
    """

    now: int
    circuit: int
    execution_id: str
    rules: Rules


class CloseCircuit(Command[None], frozen=True):
    """Close a circuit and forget its target's failures: executions run again. Returns None. Fails with NotFound."""

    now: int
    tenant: str
    circuit: int
    audit: Entry | None = None
