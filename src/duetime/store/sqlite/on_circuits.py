"""Commands on circuits: count ends, take a probe, close one."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.domain import breaker
from duetime.domain import commands as c
from duetime.domain.breaker import Circuit
from duetime.domain.errors import no_circuit
from duetime.store.sqlite.statements import Statements, page


class CircuitCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def count_ends(self, command: c.CountEnds) -> list[tuple[int, Circuit | None]]:
        ended = {row[0] for row in self._db.rows("list_ended", ends=page(command.ends))}
        ends = [end for place, end in enumerate(command.ends) if place in ended]
        known = self._read({end.circuit for end in ends})
        counted = breaker.count(known, ends, command.rules)
        self._write([circuit for circuit in counted.values() if circuit is not None], command.now)
        self._close([number for number, circuit in counted.items() if circuit is None], command.now)
        tenants = {circuit.tenant for number, circuit in counted.items() if circuit is not None and number not in known}
        counted.update(dict.fromkeys(self._forget(sorted(tenants))))
        return list(counted.items())

    def _forget(self, tenants: list[str]) -> list[int]:
        """Removes circuits beyond the limit of these tenants, which have new ones. Returns their ids."""
        if not tenants:
            return []
        most = breaker.MOST_OF_TENANT + breaker.MOST_FORGOTTEN
        return [
            row[0]
            for tenant, count in self._db.rows("count_circuits", tenants=page(tenants), most=most)
            if (limit := breaker.beyond(count))
            for row in self._db.rows("forget_circuits", tenant=tenant, limit=limit)
        ]

    def take_probe(self, command: c.TakeProbe) -> Circuit | None:
        circuit = self._read([command.circuit]).get(command.circuit)
        if circuit is None or not circuit.failures:
            return None
        taken = breaker.take_probe(circuit, command.execution_id, command.now, command.rules)
        if taken != circuit:
            self._write([taken], command.now)
        return taken

    def close_circuit(self, command: c.CloseCircuit) -> None:
        circuit = self._read([command.circuit]).get(command.circuit)
        if circuit is None or not circuit.failures or circuit.tenant != command.tenant:
            raise no_circuit(command.circuit)
        self._close([command.circuit], command.now)
        self._db.note(command.audit, breaker.audited(circuit))

    def _read(self, circuits: Iterable[int]) -> dict[int, Circuit]:
        return {row[0]: Circuit(*row) for row in self._db.rows("get_circuits", circuits=page(list(circuits)))}

    def _write(self, circuits: list[Circuit], now: int) -> None:
        if circuits:
            self._db.run("count_change_of_circuits")
            self._db.run("set_circuits", circuits=page(circuits), now=now)

    def _close(self, circuits: list[int], now: int) -> None:
        if circuits:
            self._db.run("count_change_of_circuits")
            self._db.run("close_circuits", circuits=page(circuits), now=now)
