"""The ledger check: finds executions that this node runs by the ledger but does not hold, and returns them.

It should never find one. An execution that is RUNNING on a living node which does not hold it would stay RUNNING until
the node ends. If executions of its job must not overlap, the job would be blocked as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from duetime.domain.execution import expire
from duetime.domain.instants import SECOND
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.recorder import Recorder
from duetime.engine.service import Service
from duetime.engine.unanswered import Unanswered
from duetime.ports.clock import Clock
from duetime.ports.store import Store

INTERVAL = 30 * SECOND
MOST_CLAIMS = 200_000  # read at once: more than any node holds
PAGE = 500

log = structlog.get_logger()


class LedgerCheck(Service):
    """`held()`: further executions that the node holds. `unanswered`: pending writes that may have made claims."""

    def __init__(
        self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher, recorder: Recorder,
        unanswered: Unanswered, held: Callable[[], Collection[str]] = tuple,
    ) -> None:  # fmt: skip
        super().__init__("ledger check", clock)
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._unanswered = unanswered
        self._held = held
        self._missing: frozenset[tuple[str, int]] = frozenset()
        self._looked_at = 0.0

    async def run_once(self) -> int:
        """Finds claims that were missing in this check and in the last one, and returns their executions.

        A claim that was just written is missing until the dispatcher has it, so one check proves nothing. Two checks
        prove nothing either while the write that made the claim is pending. The token distinguishes a claim from a
        later claim of the same execution.
        """
        looks_at = self._clock.monotonic()
        claims = await self._store.list_node_claims(self._node, MOST_CLAIMS)
        others = {*self._recorder.held(), *self._held()}
        missing = frozenset((id, token) for id, token in claims if not self._dispatcher.holds(id) and id not in others)
        lost = {} if self._unanswered.since(self._looked_at) else dict(missing & self._missing)
        self._missing, self._looked_at = missing, looks_at
        ids = sorted(lost)
        for begin in range(0, len(ids), PAGE):
            await self._return(ids[begin : begin + PAGE], lost)
        return self._clock.now() + INTERVAL

    async def _return(self, ids: list[str], lost: dict[str, int]) -> None:
        now = self._clock.now()
        claims = [
            claim for claim in await self._store.get_claims(self._node, ids) if claim.token == lost[claim.execution_id]
        ]
        if claims:
            log.error("executions that this node did not hold were returned", count=len(claims), first=ids[0])
            await self._recorder.record(self._node, [(claim, expire(claim, now)) for claim in claims])
