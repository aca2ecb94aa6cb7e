"""SigningStates: the signing key versions of each tenant, kept in memory because every attempt needs them.

Only tenants that have rotated their key are kept, with little memory each. Changes are read each second if there may be
other nodes; changes by this node apply at once (`learn`).
"""

from __future__ import annotations

from duetime.domain.instants import LATEST, MINUTE, SECOND
from duetime.domain.signing import SigningState, signing_versions
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

PAGE = 1000
MARGIN = MINUTE  # the last minute is read again, because nodes' clocks differ and commits take time


class SigningStates(Service):
    def __init__(self, store: Store, clock: Clock, *, alone: bool) -> None:
        super().__init__("signing", clock)
        self._store = store
        self._alone = alone
        self._of: dict[str, SigningState] = {}
        self._since = 0

    async def run_once(self) -> int:
        newest, after = self._since + MARGIN, ""
        while True:
            page = await self._store.list_signing_states(None, self._since, after, PAGE)
            for state in page:
                self.learn(state)
                newest = max(newest, state.rotated_at)
            if len(page) < PAGE:
                break
            after = page[-1].tenant
        self._since = max(0, newest - MARGIN)
        return LATEST if self._alone else self._clock.now() + SECOND

    def learn(self, state: SigningState) -> None:
        """Stores the state if its version is newer. Versions only grow, so a stale read changes nothing."""
        known = self._of.get(state.tenant)
        if known is None or known.version < state.version:
            self._of[state.tenant] = state

    def versions(self, tenant: str) -> tuple[int, ...]:
        """Returns the versions that sign a request now, newest first."""
        state = self._of.get(tenant)
        return signing_versions(state, 0 if state is None else self._clock.now())
