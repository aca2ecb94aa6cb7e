"""The engine: its services put together, started in order and stopped in the order that loses nothing."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from duetime.domain.commands import Release, StartNode, StopNode
from duetime.engine.claimer import Claimer
from duetime.engine.dispatcher import Dispatcher, Limits
from duetime.engine.reconciler import Reconciler
from duetime.engine.recorder import Recorder
from duetime.engine.retention import Retention
from duetime.engine.service import Service
from duetime.engine.timer import Timer
from duetime.engine.worker import Worker
from duetime.ports.clock import Clock
from duetime.ports.executor import Executor
from duetime.ports.store import Store
from duetime.telemetry.events import EventHub

log = structlog.get_logger()


class EngineSettings(msgspec.Struct, frozen=True):
    node_name: str = "node-1"
    limits: Limits = Limits()
    drain_seconds: float = 30.0
    reconcile_interval_seconds: float = 300.0
    reconcile_batch: int = 100
    history_seconds: float = 30 * 86_400.0
    history_most: int = 10_000_000


class Engine:
    def __init__(
        self, store: Store, executor: Executor, clock: Clock, events: EventHub, settings: EngineSettings,
        chance: Callable[[], float] = random.random,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:  # fmt: skip
        self._store = store
        self._executor = executor
        self._clock = clock
        self._events = events
        self._settings = settings
        self._chance = chance
        self._entropy = entropy
        self.services: list[Service] = []
        self.node = 0

    async def start(self) -> None:
        """Join, take over what an earlier self left, then let time run."""
        await self.join()
        for service in self.services:
            await service.start()

    async def join(self) -> None:
        """All of `start` but the loops: tests turn them by hand."""
        settings = self._settings
        (node,) = await self._store.apply([StartNode(self._clock.now(), settings.node_name)])
        self.node = int(node)
        await self._executor.start()
        recorder = Recorder(self._store, self._clock, self.node, self._events)
        self.dispatcher = Dispatcher(settings.limits, lambda run: worker.attempt(run), lambda run: worker.drop(run))
        worker = Worker(self._executor, recorder, self._clock, self._chance, lambda id: id in self.dispatcher.cancelled)
        self.timer = Timer(self._store, self._clock, self.node, self.dispatcher, self._entropy)
        self.claimer = Claimer(self._store, self._clock, self.node, self.dispatcher)
        self.recorder = recorder
        self.reconciler = Reconciler(
            self._store, self._clock, self.node, self.claimer, settings.reconcile_interval_seconds,
            settings.reconcile_batch,
        )  # fmt: skip
        self.retention = Retention(self._store, self._clock, settings.history_seconds, settings.history_most)
        recorder.recorded = self.dispatcher.recorded
        recorder.is_busy = lambda: self.dispatcher.running() > 0
        recorder.waiting_hint = self.dispatcher.waiting_hint = self.claimer.hint
        self.services = [recorder, self.reconciler, self.claimer, self.timer, self.retention]

    async def stop(self) -> None:
        """Stop timers, stop the reconciler, drain; what is not drained is released, not lost.

        A step that fails (a full disk, say) is logged, and the next one taken: what it could not write is taken over
        at the next start.
        """
        for service in (self.timer, self.reconciler, self.claimer, self.retention):
            await service.stop()
        never_started, lanes = await self.dispatcher.drain(self._settings.drain_seconds)
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        if never_started:
            log.warning("runs were given back unstarted: the drain timeout is over", count=len(never_started))
            await self._try(self._store.apply([Release(self.node, self._clock.now(), tuple(never_started))]))
        await self._try(self.recorder.stop())
        await self._try(self._executor.stop())
        await self._try(self._store.apply([StopNode(self._clock.now(), self.node)]))

    async def _try(self, step: Coroutine[Any, Any, object]) -> None:
        try:
            await step
        except Exception as error:  # noqa: BLE001 (the steps that follow matter more)
            log.error("a step of the stop failed", error=f"{type(error).__name__}: {error}")

    def stop_waiting(self) -> None:
        """Cut a drain short: somebody is in a hurry."""
        self.dispatcher.stop_waiting()

    def health(self) -> dict[str, str]:
        """Each service: healthy, or what went wrong in its last turn."""
        return {service.name: service.failure or "healthy" for service in self.services}
