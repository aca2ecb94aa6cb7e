"""Commands on circuits: count ends, take a probe, close one."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from duetime.domain import breaker
from duetime.domain import commands as c
from duetime.domain.breaker import Circuit
from duetime.domain.errors import no_circuit
from duetime.domain.ids import instant_of
from duetime.store.postgres.statements import Statements


class CircuitCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def count_ends(self, command: c.CountEnds) -> list[tuple[int, Circuit | None]]:
        ends = await self._that_hold(command.ends)
        if not ends:
            return []
        named = sorted({end.circuit: end for end in ends}.items())
        rows = await self._db.rows(
            "lock_circuits", circuits=[number for number, _ in named], tenants=[end.tenant for _, end in named],
            urls=[end.url for _, end in named], now=command.now,
        )  # fmt: skip
        counted = breaker.count({row["id"]: _circuit(row) for row in rows}, ends, command.rules)
        await self._write([circuit for circuit in counted.values() if circuit is not None], command.now)
        await self._close([number for number, circuit in counted.items() if circuit is None], command.now)
        counted.update(dict.fromkeys(await self._forget(sorted({row["tenant"] for row in rows if row["is_new"]}))))
        return sorted(counted.items())

    async def _forget(self, tenants: Sequence[str]) -> list[int]:
        """Removes circuits beyond the limit of these tenants, which have new ones. Returns their ids."""
        if not tenants:
            return []
        most = breaker.MOST_OF_TENANT + breaker.MOST_FORGOTTEN
        return [
            row["id"]
            for tenant, count in await self._db.rows("count_circuits", tenants=tenants, most=most)
            if (limit := breaker.beyond(count))
            for row in await self._db.rows("forget_circuits", tenant=tenant, limit=limit)
        ]

    async def _that_hold(self, ends: Sequence[breaker.End]) -> list[breaker.End]:
        """Returns the ends that were stored; drops those refused because a newer claim had replaced theirs."""
        ids = [end.execution_id for end in ends]
        rows = await self._db.rows(
            "list_ended", ids=ids, ats=list(map(instant_of, ids)), attempts=[end.attempt for end in ends],
            tokens=[end.token for end in ends], states=[end.state for end in ends],
        )  # fmt: skip
        held = {row[0] for row in rows}
        return [end for place, end in enumerate(ends, 1) if place in held]

    async def take_probe(self, command: c.TakeProbe) -> Circuit | None:
        row = await self._db.row("lock_circuit", circuit=command.circuit)
        if row is None:
            return None
        circuit = _circuit(row)
        taken = breaker.take_probe(circuit, command.execution_id, command.now, command.rules)
        if taken != circuit:
            await self._write([taken], command.now)
        return taken

    async def close_circuit(self, command: c.CloseCircuit) -> None:
        row = await self._db.row("lock_circuit", circuit=command.circuit)
        circuit = None if row is None else _circuit(row)
        if circuit is None or circuit.tenant != command.tenant:
            raise no_circuit(command.circuit)
        await self._close([command.circuit], command.now)
        self._db.note(command.audit, breaker.audited(circuit))

    async def _close(self, circuits: Sequence[int], now: int) -> None:
        if circuits:
            await self._db.run("close_circuits", circuits=circuits, now=now)

    async def _write(self, circuits: Sequence[Circuit], now: int) -> None:
        await self._db.run(
            "set_circuits", now=now, circuits=[one.circuit for one in circuits],
            failures=[one.failures for one in circuits], opened_ats=[one.opened_at for one in circuits],
            next_probe_ats=[one.next_probe_at for one in circuits], probes=[one.probe for one in circuits],
        )  # fmt: skip


def _circuit(row: asyncpg.Record) -> Circuit:
    return Circuit(*row[:7])
