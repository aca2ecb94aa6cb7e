"""The breaker: knows the circuits that have failed lately, says which runs must not be sent, and counts their ends.

What holds is in the store; here is what this node knows of it. Where others write too, it is read anew all the time; a
node that is alone has written all there is. The rules are `domain.breaker`'s. A URL that is well costs a look into a
dict, and nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from duetime.domain.breaker import Circuit, Rules, circuit_of, end_of, lets_through, may_probe
from duetime.domain.commands import CountEnds, TakeProbe
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import Attempted, Run
from duetime.domain.instants import DAY, SECOND
from duetime.domain.job import HttpJob
from duetime.domain.states import State
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store
from duetime.telemetry.events import EventHub

REFRESH = SECOND // 2
MOST_KNOWN = 10_000  # circuits: the open ones, and then those that failed last

log = structlog.get_logger()


class Breaker(Service):
    """`shared`: there may be other nodes."""

    def __init__(self, store: Store, clock: Clock, events: EventHub, rules: Rules, *, shared: bool) -> None:
        super().__init__("breaker", clock)
        self._store = store
        self._events = events
        self._rules = rules
        self._shared = shared
        self._circuits: dict[int, Circuit] = {}
        self._asking: set[int] = set()  # circuits of which a probe is being taken
        self._learnt = 0  # how often something was

    @property
    def is_on(self) -> bool:
        return self._rules.threshold > 0

    async def load(self) -> None:
        """What there is at the start: nobody is told of it as news."""
        if self.is_on:
            self._circuits = {one.circuit: one for one in await self._store.list_circuits(None, MOST_KNOWN)}

    async def run_once(self) -> int:
        learnt = self._learnt
        found = {one.circuit: one for one in await self._store.list_circuits(None, MOST_KNOWN)}
        if self._learnt != learnt:  # what was written meanwhile may be newer than what was read
            return self._clock.now()
        before, self._circuits = self._circuits, found
        for number in before.keys() | found.keys():
            self._tell(before.get(number), found.get(number))
        return self._clock.now() + (REFRESH if self._shared else DAY)

    # What the worker asks

    def holds(self, run: Run) -> bool:
        """Whether this run must not be sent before `ask` was asked."""
        if not self._circuits or not isinstance(run.spec, HttpJob):
            return False
        circuit = self._circuits.get(circuit_of(run.tenant, run.spec.payload.url))
        return not lets_through(circuit, run.execution_id)

    async def ask(self, run: Run) -> Circuit | None:
        """None if it may be sent, maybe as the one that tries the target again; else the circuit that is open."""
        assert isinstance(run.spec, HttpJob)
        number = circuit_of(run.tenant, run.spec.payload.url)
        circuit, now = self._circuits.get(number), self._clock.now()
        if circuit is None or number in self._asking or not may_probe(circuit, now, self._rules):
            return circuit
        self._asking.add(number)
        try:
            (answer,) = await self._store.apply([TakeProbe(now, number, run.execution_id, self._rules)])
        except DuetimeError as error:
            answer = error
        finally:
            self._asking.discard(number)
        if isinstance(answer, DuetimeError):
            log.warning("who tries a target again can't be decided now", url=circuit.url, error=str(answer))
            return circuit
        self.learn([(number, answer)])
        return None if lets_through(answer, run.execution_id) else answer

    # What the recorder tells

    def count(self, now: int, results: Iterable[tuple[Run, Attempted]]) -> CountEnds | None:
        """What is to be written with these results; mostly nothing."""
        if not self.is_on:
            return None
        known = self._circuits
        ends = tuple(
            end
            for run, attempted in results
            if (known or attempted.state is not State.COMPLETED)
            and (end := end_of(run, attempted)) is not None
            and (end.state is not State.COMPLETED or end.circuit in known)
        )
        return CountEnds(now, ends, self._rules) if ends else None

    def learn(self, found: Sequence[tuple[int, Circuit | None]]) -> None:
        """Circuits as they stand in the store now; None: closed."""
        self._learnt += 1
        for number, circuit in found:
            before = self._circuits.pop(number, None)
            if circuit is not None:
                self._circuits[number] = circuit
            self._tell(before, circuit)
        while len(self._circuits) > MOST_KNOWN:
            self._circuits.pop(next(iter(self._circuits)))

    def _tell(self, before: Circuit | None, after: Circuit | None) -> None:
        opened_before = None if before is None else before.opened_at
        if after is not None and after.opened_at is not None and after.opened_at != opened_before:
            data: dict[str, object] = {"circuit": after.text, "url": after.url, "failures": after.failures}
            log.warning("a circuit is open: its runs are skipped", tenant=after.tenant, **data)
            self._events.publish("circuit.opened", after.opened_at, after.tenant, data)
        elif before is not None and opened_before is not None and (after is None or after.opened_at is None):
            data = {"circuit": before.text, "url": before.url}
            log.info("a circuit is closed", tenant=before.tenant, **data)
            self._events.publish("circuit.closed", self._clock.now(), before.tenant, data)
