"""The circuit breaker: a target that keeps failing is not called for a while, and then probed by one execution.

    CLOSED ──(`threshold` executions in a row failed for good)──► OPEN ──(cooldown over)──► HALF_OPEN: one probe
      ▲                                                             ▲                           │
      └───────────────────(the target answers)──────────────────────┼───────────────────────────┤
                                                                    └──(the probe failed too)───┘

A failure means that the target is down: no connection, no name, no TLS, no response in time, 5xx and 429. Any other
response, 400 as well as 200, comes from a target that is up: here it counts as a success.

A circuit is a tenant's URL without its query, so that no tenant affects another's circuits. For a target that has not
failed lately nothing is stored or written. Pure: time is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import MINUTE, format_instant
from duetime.domain.job import HttpJob
from duetime.domain.retry import is_retryable
from duetime.domain.states import ErrorType, State

# Errors of the target: not of Duetime, of a cancellation or of an expired node. Of responses, only those that are
# retried: a 429 asks for the pause that an open circuit makes.
_OF_THE_TARGET = frozenset({
    ErrorType.CONNECTION_ERROR, ErrorType.DNS_ERROR, ErrorType.TLS_ERROR, ErrorType.TIMEOUT, ErrorType.HTTP_ERROR,
})  # fmt: skip
_FAILURES = (State.FAILED, State.TIMEOUT)

# Circuits stored for one tenant, with closed ones that other nodes have not read yet. A tenant whose URLs are all
# different, and fail, must not fill the database, nor push other tenants' circuits out of the nodes' memory.
MOST_OF_TENANT = 1_000
MOST_FORGOTTEN = 1_000  # circuits of one tenant deleted by one command


class CircuitState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class Rules(msgspec.Struct, frozen=True):
    threshold: int  # executions in a row; 0: there is no breaker
    cooldown: int


class Circuit(msgspec.Struct, frozen=True, array_like=True):
    """A target that has failed since it last responded. The circuit is closed if `opened_at` is None."""

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
        """Returns its number as text, for people and JSON: a JavaScript number can't hold it."""
        return f"{self.circuit:016x}"


class CircuitChanges(NamedTuple):
    """Circuits that have changed; one without failures is closed. The next read begins at `mark`."""

    mark: int
    circuits: list[Circuit]


class Known:
    """Circuits that a node keeps in memory: a bounded number, and of one tenant no more than the store keeps.

    Circuits above the bound are dropped as `beyond` says, ordered by when a circuit was last put here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._circuits: dict[int, Circuit] = {}
        self._of: dict[str, dict[int, Circuit]] = {}  # by tenant

    def __len__(self) -> int:
        return len(self._circuits)

    def __contains__(self, number: int) -> bool:
        return number in self._circuits

    def get(self, number: int) -> Circuit | None:
        return self._circuits.get(number)

    def count(self) -> Counter[CircuitState]:
        """Returns the number of circuits by state."""
        return Counter(circuit.state for circuit in self._circuits.values())

    def numbers(self) -> set[int]:
        return set(self._circuits)

    def put(self, number: int, circuit: Circuit | None) -> Circuit | None:
        """Store a circuit's new state (None: closed). Returns its state before."""
        before = self._take(number)
        if circuit is not None:
            self._circuits[number] = circuit
            own = self._of.setdefault(circuit.tenant, {})
            own[number] = circuit
            if len(own) > MOST_OF_TENANT:
                self._take(next((one.circuit for one in own.values() if one.opened_at is None), next(iter(own))))
            if len(self._circuits) > self._most:
                self._take(next(iter(self._circuits)))
        return before

    def _take(self, number: int) -> Circuit | None:
        before = self._circuits.pop(number, None)
        if before is not None:
            own = self._of[before.tenant]
            del own[number]
            if not own:
                del self._of[before.tenant]
        return before


class End(msgspec.Struct, frozen=True, array_like=True):
    """The end of an execution, as its circuit counts it. `attempt` and `token` are those of the claim that ended it."""

    circuit: int
    tenant: str
    url: str
    execution_id: str
    attempt: int
    token: int
    state: State
    ended_at: int
    answered: bool = False  # it failed, but by a response of a target that is up

    @property
    def is_up(self) -> bool:
        """Returns whether this end shows that the target is up; otherwise the target is down."""
        return self.answered or self.state is State.COMPLETED


def url_of(url: str) -> str:
    """Returns the URL that identifies a target: without query and fragment, the host in lower case."""
    base = url.partition("#")[0].partition("?")[0]
    end = base.find("/", 8)  # after the slashes of http:// or https://
    return base.lower() if end < 0 else base[:end].lower() + base[end:]


@lru_cache(maxsize=4096)
def circuit_of(tenant: str, url: str) -> int:
    """Returns the number of a circuit: 63 bits."""
    return int.from_bytes(blake2b(f"{tenant}\0{url_of(url)}".encode(), digest_size=8).digest(), "big") >> 1


def end_of(claim: Claim, end: AttemptEnd) -> End | None:
    """Returns None if the end does not concern a target: no webhook, a retry follows, or Duetime itself ended it."""
    state = end.state
    if not isinstance(claim.spec, HttpJob):
        return None
    error_type = end.error_type
    if state is not State.COMPLETED and not (state in _FAILURES and error_type in _OF_THE_TARGET):
        return None
    answered = error_type is ErrorType.HTTP_ERROR and not is_retryable(error_type, end.http_status)
    url = claim.spec.payload.url
    return End(
        circuit_of(claim.tenant, url), claim.tenant, url_of(url), claim.execution_id, end.attempt,
        end.token, state, end.ended_at, answered,
    )  # fmt: skip


def count(known: Mapping[int, Circuit], ends: Iterable[End], rules: Rules) -> dict[int, Circuit | None]:
    """Returns the circuits of these ends in their new state; None: closed, and not stored."""
    counted: dict[int, Circuit | None] = {}
    for end in sorted(ends, key=lambda end: end.ended_at):
        before = counted[end.circuit] if end.circuit in counted else known.get(end.circuit)
        counted[end.circuit] = _after(before or Circuit(end.circuit, end.tenant, end.url), end, rules)
    return counted


def _after(circuit: Circuit, end: End, rules: Rules) -> Circuit | None:
    if end.is_up:
        return None
    failures = circuit.failures + 1
    # An open circuit opens again if its probe fails. Others may have been running when it opened: they are ignored.
    is_probe = end.execution_id == circuit.probe
    if not (0 < rules.threshold <= failures if circuit.opened_at is None else is_probe):
        return msgspec.structs.replace(circuit, failures=failures)
    return Circuit(circuit.circuit, circuit.tenant, circuit.url, failures, end.ended_at, end.ended_at + rules.cooldown)


def beyond(count: int) -> int:
    """Returns how many of a tenant's `count` circuits have to be deleted.

    Closed circuits are deleted first, the longest unused one before others; an open one only if all are open.
    """
    return min(max(0, count - MOST_OF_TENANT), MOST_FORGOTTEN)


def audited(circuit: Circuit) -> dict[str, object]:
    """Returns what the audit records of a circuit that is closed by hand."""
    return {"url": circuit.url, "state": circuit.state, "failures": circuit.failures}


def lets_through(circuit: Circuit | None, execution_id: str) -> bool:
    """Returns whether an execution may run: any if the circuit is closed, else only the probe (all its attempts)."""
    return circuit is None or circuit.opened_at is None or circuit.probe == execution_id


def may_probe(circuit: Circuit, now: int, rules: Rules) -> bool:
    """Returns whether a probe is due: the cooldown is over, or the probe has not ended after another cooldown."""
    at = circuit.next_probe_at
    # It is never set much further ahead than a cooldown. If it is that far ahead, the clock was set back.
    return at is not None and (now >= at or at - now > rules.cooldown + MINUTE)


def take_probe(circuit: Circuit, execution_id: str, now: int, rules: Rules) -> Circuit:
    """Returns the circuit with this execution as its probe; unchanged if no probe is due, or another one is it."""
    if circuit.opened_at is None or not may_probe(circuit, now, rules):
        return circuit
    return msgspec.structs.replace(circuit, probe=execution_id, next_probe_at=now + rules.cooldown)


def explain_refusal(circuit: Circuit) -> str:
    """Returns the message for an attempt that was not made."""
    return f"nothing was sent: {explain_open(circuit)}"


def explain_open(circuit: Circuit) -> str:
    """Returns the message about an open circuit."""
    assert circuit.opened_at is not None
    assert circuit.next_probe_at is not None
    since = f"the circuit of {circuit.url} is open since {format_instant(circuit.opened_at)}"
    why = f"after {circuit.failures} failed executions in a row" if circuit.failures > 1 else "after a failed execution"
    if circuit.state is CircuitState.HALF_OPEN:
        return f"{since}, {why}; one execution tries it now, or another from {format_instant(circuit.next_probe_at)} on"
    return f"{since}, {why}; it is tried again from {format_instant(circuit.next_probe_at)} on"
