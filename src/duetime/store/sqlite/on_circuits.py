"""Commands on circuits: count ends, take a probe, close one."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.domain import breaker
from duetime.domain import commands as c
from duetime.domain.breaker import Circuit
from duetime.domain.errors import NotFound
from duetime.store.sqlite.statements import Statements, page


class CircuitCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def count_ends(self, command: c.CountEnds) -> list[tuple[int, Circuit | None]]:
        ended = {row[0] for row in self._db.rows("list_ended", ends=page(command.ends))}
        ends = [end for place, end in enumerate(command.ends) if place in ended]
        known = self._read({end.circuit for end in ends})
        counted = list(breaker.count(known, ends, command.rules).items())
        self._write([circuit for _, circuit in counted if circuit is not None], command.now)
        self._db.run("remove_circuits", circuits=page([number for number, circuit in counted if circuit is None]))
        return counted

    def take_probe(self, command: c.TakeProbe) -> Circuit | None:
        circuit = self._read([command.circuit]).get(command.circuit)
        if circuit is None:
            return None
        taken = breaker.take_probe(circuit, command.execution_id, command.now, command.rules)
        if taken != circuit:
            self._write([taken], command.now)
        return taken

    def close_circuit(self, command: c.CloseCircuit) -> None:
        circuit = self._read([command.circuit]).get(command.circuit)
        if circuit is None or circuit.tenant != command.tenant:
            raise NotFound(f"there is no circuit {command.circuit:016x}")
        self._db.run("remove_circuits", circuits=page([command.circuit]))
        self._db.note(command.audit, {"url": circuit.url, "state": circuit.state, "failures": circuit.failures})

    def _read(self, circuits: Iterable[int]) -> dict[int, Circuit]:
        return {row[0]: Circuit(*row) for row in self._db.rows("get_circuits", circuits=page(list(circuits)))}

    def _write(self, circuits: list[Circuit], now: int) -> None:
        self._db.run("set_circuits", circuits=page(circuits), now=now)
