"""The circuit breaker: a target that keeps failing is left alone for a while, and then tried by one run.

    CLOSED ──(`threshold` executions in a row failed for good)──► OPEN ──(cooldown over)──► HALF_OPEN: one probe
      ▲                                                             ▲                           │
      └────────────────────────(a success)──────────────────────────┼───────────────────────────┤
                                                                    └──(the probe failed too)───┘

A circuit is a tenant's URL without its query, so that no tenant's targets close another's. One that has not failed
lately has no row: nothing is kept of it, and nothing is written for it. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b

import msgspec

from duetime.domain.execution import Attempted, Run
from duetime.domain.instants import MINUTE, format_instant
from duetime.domain.job import HttpJob
from duetime.domain.states import ErrorType, State

# Of the target, and not of us, of whoever cancels, or of a node that was lost.
_COUNTED = frozenset(
    {
        ErrorType.CONNECTION_ERROR,
        ErrorType.DNS_ERROR,
        ErrorType.TLS_ERROR,
        ErrorType.TIMEOUT,
        ErrorType.HTTP_ERROR,
    }
)


class CircuitState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class Rules(msgspec.Struct, frozen=True):
    threshold: int = 5  # executions in a row; 0: there is no breaker
    cooldown: int = 2 * MINUTE


class Circuit(msgspec.Struct, frozen=True, array_like=True):
    """A target that has failed since it last succeeded. Closed, unless it has an instant at which it opened."""

    circuit: int
    tenant: str
    url: str
    failures: int = 0  # executions in a row
    opened_at: int | None = None
    next_probe_at: int | None = None
    probe: str | None = None  # the execution that tries it

    @property
    def state(self) -> CircuitState:
        if self.opened_at is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if self.probe is None else CircuitState.HALF_OPEN

    @property
    def text(self) -> str:
        """Its number as people and JSON have it: a number of JavaScript's would not hold it."""
        return f"{self.circuit:016x}"


class End(msgspec.Struct, frozen=True, array_like=True):
    """The end of an execution, as far as its circuit goes. `attempt` and `token` are of the claim that ended it."""

    circuit: int
    tenant: str
    url: str
    execution_id: str
    attempt: int
    token: int
    state: State
    ended_at: int


def url_of(url: str) -> str:
    """What stands for a target: its URL without query and fragment, the host in small letters."""
    base = url.partition("#")[0].partition("?")[0]
    end = base.find("/", 8)  # after the slashes of http:// or https://
    return base.lower() if end < 0 else base[:end].lower() + base[end:]


@lru_cache(maxsize=4096)
def circuit_of(tenant: str, url: str) -> int:
    """63 bits."""
    return int.from_bytes(blake2b(f"{tenant}\0{url_of(url)}".encode(), digest_size=8).digest(), "big") >> 1


def end_of(run: Run, attempted: Attempted) -> End | None:
    """None if it says nothing about its target: not a webhook, tried again, or ended for a reason of our own."""
    state = attempted.state
    if not isinstance(run.spec, HttpJob):
        return None
    if state is not State.COMPLETED and (
        state not in (State.FAILED, State.TIMEOUT) or attempted.error_type not in _COUNTED
    ):
        return None
    url = run.spec.payload.url
    return End(
        circuit_of(run.tenant, url), run.tenant, url_of(url), run.execution_id, attempted.attempt, attempted.token,
        state, attempted.ended_at,
    )  # fmt: skip


def count(known: Mapping[int, Circuit], ends: Iterable[End], rules: Rules) -> dict[int, Circuit | None]:
    """The circuits of these ends as they stand after them; None: closed, and nothing is kept of it."""
    counted: dict[int, Circuit | None] = {}
    for end in sorted(ends, key=lambda end: end.ended_at):
        before = counted[end.circuit] if end.circuit in counted else known.get(end.circuit)
        counted[end.circuit] = _after(before or Circuit(end.circuit, end.tenant, end.url), end, rules)
    return counted


def _after(circuit: Circuit, end: End, rules: Rules) -> Circuit | None:
    if end.state is State.COMPLETED:
        return None
    failures = circuit.failures + 1
    # An open one opens anew when its probe fails. Others may have been under way when it opened: they change nothing.
    is_probe = end.execution_id == circuit.probe
    if not (0 < rules.threshold <= failures if circuit.opened_at is None else is_probe):
        return msgspec.structs.replace(circuit, failures=failures)
    return Circuit(circuit.circuit, circuit.tenant, circuit.url, failures, end.ended_at, end.ended_at + rules.cooldown)


def lets_through(circuit: Circuit | None, execution_id: str) -> bool:
    """The probe, each of its attempts, and all if the circuit is closed."""
    return circuit is None or circuit.opened_at is None or circuit.probe == execution_id


def may_probe(circuit: Circuit, now: int, rules: Rules) -> bool:
    """The cooldown is over; or the probe is lost, for it has had another one and has not ended."""
    at = circuit.next_probe_at
    # Much further ahead than a cooldown it was never set: the clock was, back.
    return at is not None and (now >= at or at - now > rules.cooldown + MINUTE)


def take_probe(circuit: Circuit, execution_id: str, now: int, rules: Rules) -> Circuit:
    """With this execution for its probe; or as it was, if it is not time, or another one is."""
    if circuit.opened_at is None or not may_probe(circuit, now, rules):
        return circuit
    return msgspec.structs.replace(circuit, probe=execution_id, next_probe_at=now + rules.cooldown)


def explain_refusal(circuit: Circuit) -> str:
    """For the attempt that was not made."""
    return f"nothing was sent: {explain_open(circuit)}"


def explain_open(circuit: Circuit) -> str:
    """Of one that is open."""
    assert circuit.opened_at is not None
    assert circuit.next_probe_at is not None
    since = f"the circuit of {circuit.url} is open since {format_instant(circuit.opened_at)}"
    why = f"after {circuit.failures} failed executions in a row" if circuit.failures > 1 else "after a failed execution"
    if circuit.state is CircuitState.HALF_OPEN:
        return f"{since}, {why}; one execution tries it now, or another from {format_instant(circuit.next_probe_at)} on"
    return f"{since}, {why}; it is tried again from {format_instant(circuit.next_probe_at)} on"
