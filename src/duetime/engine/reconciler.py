"""The reconciler: finds executions of expired nodes and workers. `domain.execution` decides how each goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog

from duetime.domain.commands import FenceNodes, FenceWorkers, Finish
from duetime.domain.execution import expire, unreadable
from duetime.domain.instants import SECOND
from duetime.engine.execution_events import publish_ends
from duetime.engine.on_finish import Ends, OnFinishCommands
from duetime.engine.pages import Pages
from duetime.engine.service import Service
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.pages import ExpiredClaims
from duetime.ports.store import Store, apply_one, result_of
from duetime.telemetry.debugging import debug
from duetime.telemetry.emitted import AttemptsEnded, TakenOver
from duetime.telemetry.hub import Telemetry

log = structlog.get_logger()

MOST_TOLD = 100  # workers that fall silent together and have an event


class Reconciler(Service):
    """Every node runs it once at its start, for executions of its earlier process. Then one node does it for all.

    `silent_workers()`: with their heartbeats, as of the last look. `on_fenced(ids)`: nodes or workers were fenced.
    `waiting_hint(due_at)`: an execution can be claimed from then on.
    """

    def __init__(
        self, store: Store, clock: Clock, node: int, interval_seconds: float, batch: int,
        runs_housekeeping: Callable[[], bool], expired_nodes: Callable[[], Collection[int]],
        on_finish: OnFinishCommands, telemetry: Telemetry, *, silent_workers: Callable[[], Mapping[int, int]],
        on_fenced: Callable[[Collection[int]], Awaitable[None]], waiting_hint: Callable[[int], None],
        is_clock_right: Callable[[], bool], events: EventHub,
    ) -> None:  # fmt: skip
        super().__init__("reconciler", clock)
        self._store = store
        self._node = node
        self._runs_housekeeping = runs_housekeeping
        self._expired_nodes = expired_nodes
        self._on_finish = on_finish
        self._telemetry = telemetry
        self._interval = int(interval_seconds * SECOND)
        self._pages = Pages(batch)
        self._next_at = 0
        self._is_asked = False
        self._fenced: frozenset[int] = frozenset()  # nodes that the store has fenced for this node
        self._silent_workers = silent_workers
        self._on_fenced = on_fenced
        self._events = events
        self._waiting_hint = waiting_hint
        self._is_clock_right = is_clock_right

    def look_now(self) -> None:
        """Looks for executions to return at once: a worker has left."""
        self._is_asked = True
        self.wake()

    async def run_once(self) -> int:
        now = self._clock.now()
        if not self._is_clock_right():
            return now + SECOND
        is_first = self._next_at == 0
        if self._next_at > now + self._interval:  # the clock was set back
            self._next_at = now
        is_due = (is_first or self._runs_housekeeping()) and (await self._fence_nodes(now) or now >= self._next_at)
        if is_due or self._is_asked:
            self._is_asked = False
            await self._take_over()
            self._next_at = self._clock.now() + self._interval
        # If another node does the housekeeping, `_next_at` stays in the past: returning it would make a busy loop.
        return now + SECOND if self._next_at <= now else min(self._next_at, now + SECOND)

    async def _fence_nodes(self, now: int) -> bool:
        """Fences expired nodes and workers in the store. Returns True if there is a new one."""
        expired = frozenset(self._expired_nodes())
        if news := expired - self._fenced:
            log.warning("nodes have expired or left: their executions are taken over", nodes=sorted(news))
            for node in await apply_one(self._store, FenceNodes(now, tuple(sorted(news)))):
                self._events.publish_to_operator("node.expired", now, {"node": node})
            await self._on_fenced(news)
        self._fenced = expired
        return bool(news) | await self._fence_workers(now)

    async def _fence_workers(self, now: int) -> bool:
        """Fences workers that were found silent and have sent no heartbeat since. Returns True if there is one."""
        silent = tuple(sorted(self._silent_workers().items()))
        if not silent:
            return False
        known = [await self._store.get_worker(worker) for worker, _ in silent[:MOST_TOLD]]
        fenced = await apply_one(self._store, FenceWorkers(now, silent))
        if fenced:
            for one in known:
                if one is not None and one.worker_id in fenced:
                    data: dict[str, object] = {"worker": one.worker_id, "name": one.name}
                    self._events.publish("worker.expired", now, one.tenant, data, one.user_id)
            log.warning("workers were silent for too long: their executions are taken over", workers=fenced)
            await self._on_fenced(fenced)
        return bool(fenced)

    async def _take_over(self) -> None:
        """Ends or returns all executions of expired nodes and workers, a page at a time."""
        returned = 0
        while expired := await self._list_expired():
            now = self._clock.now()
            refused = 0
            for page, following in self._on_finish.pages([(claim, expire(claim, now)) for claim in expired]):
                with self._pages.writing(len(page)):
                    refused += await self._finish(page, following, now)
            returned += len(expired) - refused
            if refused == len(expired):  # another node is doing it
                break
        debug("executions of expired nodes were looked for", found=returned)
        self._telemetry.emit(TakenOver(self._clock.now(), returned))
        if returned:
            log.warning("executions of expired nodes and workers were taken over", count=returned)
            self._waiting_hint(0)

    async def _list_expired(self) -> ExpiredClaims:
        """Returns a page. An execution whose job's definition can't be read becomes a dead letter: the others go on."""
        expired = await self._store.list_expired_claims(self._node, self._pages.size)
        if expired.unreadable:
            now = self._clock.now()
            await self._store.apply(
                [Finish(self._node, now, tuple(unreadable(*claim, now) for claim in expired.unreadable))]
            )
            if not expired:  # an empty page means that no execution is left, which is not known yet
                expired = await self._store.list_expired_claims(self._node, self._pages.size)
        return expired

    async def _finish(self, ends: Ends, with_commands: Ends, now: int) -> int:
        """Writes the ends. Returns how many were refused."""
        following = self._on_finish.commands(with_commands, now)
        finish = Finish(self._node, now, tuple(end for _, end in ends))
        began = self._clock.monotonic()
        answer, *answers = await self._store.apply([finish, *following])
        refused = result_of(finish, answer)
        self._telemetry.emit(AttemptsEnded(now, ends, refused, self._clock.monotonic() - began))
        publish_ends(self._events, [end for _, end in ends if end.execution_id not in refused])
        self._on_finish.publish(ends, following, answers, refused, now)
        return len(refused)
