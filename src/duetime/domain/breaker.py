"""The circuit breaker: a target that keeps failing is left alone for a while, and then tried by one run.

    CLOSED ──(`threshold` executions in a row failed for good)──► OPEN ──(cooldown over)──► HALF_OPEN: one probe
      ▲                                                             ▲                           │
      └───────────────────(the target answers)──────────────────────┼───────────────────────────┤
                                                                    └──(the probe failed too)───┘

What counts as a failure says that the target is down: no connection, no name, no TLS, no answer in time, 5xx and 429.
Any other answer, 400 as well as 200, comes from a target that is up: it counts as a success does here.

A circuit is a tenant's URL without its query, so that no tenant's targets close another's. One that has not failed
lately is not known: nothing is kept of it, and nothing is written for it. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from duetime.domain.execution import Attempted, Run
from duetime.domain.instants import MINUTE, format_instant
from duetime.domain.job import HttpJob
from duetime.domain.retry import is_retryable
from duetime.domain.states import ErrorType, State

# Of the target, and not of us, of whoever cancels, or of a node that was lost. Of answers, those that are worth another
# attempt: what 429 asks for is what an open circuit does.
_OF_THE_TARGET = frozenset(
    {
        ErrorType.CONNECTION_ERROR,
        ErrorType.DNS_ERROR,
        ErrorType.TLS_ERROR,
        ErrorType.TIMEOUT,
        ErrorType.HTTP_ERROR,
    }
)


# Of one tenant that are kept, closed ones included that others have yet to learn of. A tenant whose URLs are all
# different, and fail, must not fill the database, nor push what nodes know of others out of their memory.
MOST_OF_TENANT = 1_000
MOST_FORGOTTEN = 1_000  # of one tenant in one command


class CircuitState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class Rules(msgspec.Struct, frozen=True):
    threshold: int = 5  # executions in a row; 0: there is no breaker
    cooldown: int = 2 * MINUTE


class Circuit(msgspec.Struct, frozen=True, array_like=True):
    """A target that was down since it last answered. Closed, unless it has an instant at which it opened."""

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


class CircuitChanges(NamedTuple):
    """Circuits that have changed; one without failures is closed. `mark` is what the next reading begins from."""

    mark: int
    circuits: list[Circuit]


class Known:
    """Circuits that a node has in mind: not more than so many, and of one tenant not more than the store keeps.

    What is beyond that is forgotten as `beyond` says, by when a circuit was last put here.
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

    def numbers(self) -> set[int]:
        return set(self._circuits)

    def put(self, number: int, circuit: Circuit | None) -> Circuit | None:
        """What it is now (None: closed). Answers what it was."""
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
    """The end of an execution, as far as its circuit goes. `attempt` and `token` are of the claim that ended it."""

    circuit: int
    tenant: str
    url: str
    execution_id: str
    attempt: int
    token: int
    state: State
    ended_at: int
    answered: bool = False  # it failed by an answer of a target that is up

    @property
    def is_up(self) -> bool:
        """Whether it says that its target is up; else that it is down."""
        return self.answered or self.state is State.COMPLETED


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
    error_type = attempted.error_type
    if state is not State.COMPLETED and (
        state not in (State.FAILED, State.TIMEOUT) or error_type not in _OF_THE_TARGET
    ):
        return None
    answered = error_type is ErrorType.HTTP_ERROR and not is_retryable(error_type, attempted.http_status)
    url = run.spec.payload.url
    return End(
        circuit_of(run.tenant, url), run.tenant, url_of(url), run.execution_id, attempted.attempt, attempted.token,
        state, attempted.ended_at, answered,
    )  # fmt: skip


def count(known: Mapping[int, Circuit], ends: Iterable[End], rules: Rules) -> dict[int, Circuit | None]:
    """The circuits of these ends as they stand after them; None: closed, and nothing is kept of it."""
    counted: dict[int, Circuit | None] = {}
    for end in sorted(ends, key=lambda end: end.ended_at):
        before = counted[end.circuit] if end.circuit in counted else known.get(end.circuit)
        counted[end.circuit] = _after(before or Circuit(end.circuit, end.tenant, end.url), end, rules)
    return counted


def _after(circuit: Circuit, end: End, rules: Rules) -> Circuit | None:
    if end.is_up:
        return None
    failures = circuit.failures + 1
    # An open one opens anew when its probe fails. Others may have been under way when it opened: they change nothing.
    is_probe = end.execution_id == circuit.probe
    if not (0 < rules.threshold <= failures if circuit.opened_at is None else is_probe):
        return msgspec.structs.replace(circuit, failures=failures)
    return Circuit(circuit.circuit, circuit.tenant, circuit.url, failures, end.ended_at, end.ended_at + rules.cooldown)


def beyond(count: int) -> int:
    """How many of a tenant's so many circuits are to be forgotten.

    The closed ones go first, of these the one that nobody has called for longest; an open one only if all are open.
    """
    return min(max(0, count - MOST_OF_TENANT), MOST_FORGOTTEN)


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
