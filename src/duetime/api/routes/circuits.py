"""/api/v1/circuits: targets that failed, whether they are called for now, and closing a circuit."""

from __future__ import annotations

import re

from litestar import Controller, delete, get

from duetime.api.context import ApiContext
from duetime.api.views import instant_or_none
from duetime.domain.audit import entry
from duetime.domain.breaker import Circuit
from duetime.domain.commands import CloseCircuit
from duetime.domain.errors import NotFound
from duetime.domain.identity import Caller, Right
from duetime.wire.circuits import CircuitList, CircuitMessage, CircuitView

MOST_LISTED = 1000
_CIRCUIT = re.compile(r"[0-7][0-9a-f]{15}")


class CircuitController(Controller):
    path = "/circuits"
    tags = ("circuits",)

    @get("/", summary="Targets that failed since they last succeeded; open circuits first", right=Right.READ)
    async def list_circuits(self, context: ApiContext, caller: Caller) -> CircuitList:
        found = await context.store.list_circuits(caller.tenant, MOST_LISTED)
        return CircuitList([_view(circuit, caller) for circuit in found])

    @delete("/{circuit:str}", summary="Close a circuit: its target is called again", status_code=200, right=Right.ADMIN)
    async def close_circuit(self, context: ApiContext, caller: Caller, circuit: str) -> CircuitMessage:
        if _CIRCUIT.fullmatch(circuit) is None:
            raise NotFound(f"there is no circuit '{circuit[:64]}'; GET /api/v1/circuits lists them")
        now = context.clock.now()
        noted = entry(caller, now, "circuit.close", circuit)
        await context.apply(CloseCircuit(now, caller.tenant, int(circuit, 16), noted))
        context.engine.circuits_hint()
        return CircuitMessage(circuit, "Circuit closed. Its failures are forgotten, and its target is called again.")


def _view(circuit: Circuit, caller: Caller) -> CircuitView:
    return CircuitView(
        circuit.text, circuit.url if caller.is_admin else _origin(circuit.url), circuit.state, circuit.failures,
        instant_or_none(circuit.opened_at), instant_or_none(circuit.next_probe_at),
    )  # fmt: skip


def _origin(url: str) -> str:
    end = url.find("/", 8)  # after the slashes of http:// or https://
    return url if end < 0 else f"{url[:end]}/…"
