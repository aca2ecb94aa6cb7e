"""The breaker: it caches recently failed circuits, decides which attempts must not be sent, and counts ends.

The store is authoritative; the breaker caches it. With several nodes, changes are read every half second and everything
once an hour. A single node has written everything itself. `domain.breaker` holds the rules. A healthy URL costs one
dict lookup and no write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import structlog

from duetime.domain.breaker import Circuit, CircuitState, Known, Rules, circuit_of, end_of, lets_through, may_probe
from duetime.domain.commands import CountEnds, TakeProbe
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import DAY, HOUR, SECOND
from duetime.domain.job import HttpJob
from duetime.domain.states import State
from duetime.engine.service import Service
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one

REFRESH = SECOND // 2
RELOAD = HOUR  # between full reads: changes omit forgotten and pruned circuits. Closed ones are kept for much longer
MOST_KNOWN = 10_000  # circuits: the open ones, then those that failed most recently

log = structlog.get_logger()


class Breaker(Service):
    """`shared`: other nodes may use the same store."""

    def __init__(self, store: Store, clock: Clock, events: EventHub, rules: Rules, *, shared: bool) -> None:
        super().__init__("breaker", clock)
        self._store = store
        self._events = events
        self._rules = rules
        self._shared = shared
        self._circuits = Known(MOST_KNOWN)
        self._asking: set[int] = set()  # circuits whose probe is being requested
        self._mark: int | None = None  # changes were read up to here; None: read everything
        self._loaded_at = 0
        self._learnt: set[int] = set()  # circuits updated by `learn` since the last read began

    @property
    def is_on(self) -> bool:
        return self._rules.threshold > 0

    async def load(self) -> None:
        """Reads the circuits at the start, without publishing events for them."""
        if self.is_on:
            self._loaded_at = self._clock.now()
            self._mark, found = await self._store.list_changed_circuits(None, MOST_KNOWN)
            for circuit in reversed(found):  # the first ones are forgotten last
                self._circuits.put(circuit.circuit, circuit)

    async def run_once(self) -> int:
        now = self._clock.now()
        since = self._mark if 0 <= now - self._loaded_at < RELOAD else None
        self._learnt.clear()
        mark, found = await self._store.list_changed_circuits(since, MOST_KNOWN)
        if since is not None and len(found) >= MOST_KNOWN:
            self._mark = None  # there may be more changes: read everything
            return now
        changed = {one.circuit: one if one.failures else None for one in reversed(found)}
        if since is None:
            self._loaded_at = now
            changed = dict.fromkeys(self._circuits.numbers() - changed.keys()) | changed
        # A circuit that was written during the read may be newer or older than what was read: it is read again.
        is_sure = self._learnt.isdisjoint(changed)
        self._put((number, circuit) for number, circuit in changed.items() if number not in self._learnt)
        if is_sure:
            self._mark = mark
        return self._clock.now() + (DAY if is_sure and not self._shared else REFRESH)

    def states(self) -> Counter[CircuitState]:
        """Returns the number of known circuits by state."""
        return self._circuits.count()

    # For the attempt runner

    def holds(self, claim: Claim) -> bool:
        """Returns whether `ask` must be called before this attempt is sent."""
        if not self._circuits or not isinstance(claim.spec, HttpJob):
            return False
        circuit = self._circuits.get(circuit_of(claim.tenant, claim.spec.payload.url))
        return not lets_through(circuit, claim.execution_id)

    async def ask(self, claim: Claim) -> Circuit | None:
        """Returns None if the attempt may be sent, perhaps as the probe of its target; otherwise the open circuit."""
        assert isinstance(claim.spec, HttpJob)
        number = circuit_of(claim.tenant, claim.spec.payload.url)
        circuit, now = self._circuits.get(number), self._clock.now()
        if circuit is None or number in self._asking or not may_probe(circuit, now, self._rules):
            return circuit
        self._asking.add(number)
        try:
            decided = await apply_one(self._store, TakeProbe(now, number, claim.execution_id, self._rules))
        except DuetimeError as error:
            log.warning("no probe can be requested now", url=circuit.url, error=str(error))
            return circuit
        finally:
            self._asking.discard(number)
        self.learn([(number, decided)])
        return None if lets_through(decided, claim.execution_id) else decided

    # For the recorder

    def count(self, now: int, results: Iterable[tuple[Claim, AttemptEnd]]) -> CountEnds | None:
        """Returns the command to write together with these results; mostly None."""
        if not self.is_on:
            return None
        known = self._circuits
        ends = tuple(
            counted
            for claim, end in results
            if (known or end.state is not State.COMPLETED)
            and (counted := end_of(claim, end)) is not None
            and (not counted.is_up or counted.circuit in known)
        )
        return CountEnds(now, ends, self._rules) if ends else None

    def learn(self, found: Sequence[tuple[int, Circuit | None]]) -> None:
        """Updates circuits to their current state in the store; None: closed."""
        self._learnt.update(number for number, _ in found)
        self._put(sorted(found, key=lambda it: it[1] is not None))  # removals first: they make room

    def _put(self, found: Iterable[tuple[int, Circuit | None]]) -> None:
        for number, circuit in found:
            self._publish(self._circuits.put(number, circuit), circuit)

    def _publish(self, before: Circuit | None, after: Circuit | None) -> None:
        opened_before = None if before is None else before.opened_at
        if after is not None and after.opened_at is not None and after.opened_at != opened_before:
            data: dict[str, object] = {"circuit": after.text, "url": after.url, "failures": after.failures}
            log.warning("a circuit is open: its executions are skipped", tenant=after.tenant, **data)
            self._events.publish("circuit.opened", after.opened_at, after.tenant, data)
        elif before is not None and opened_before is not None and (after is None or after.opened_at is None):
            data = {"circuit": before.text, "url": before.url}
            log.info("a circuit is closed", tenant=before.tenant, **data)
            self._events.publish("circuit.closed", self._clock.now(), before.tenant, data)
