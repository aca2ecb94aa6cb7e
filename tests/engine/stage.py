"""An engine on a real store. The test controls the clock and the targets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from duetime.bus.local import LocalBus
from duetime.domain import commands as c
from duetime.domain.instants import SECOND
from duetime.domain.job import JobSpec
from duetime.engine.dispatcher import Limits
from duetime.engine.engine import Engine
from duetime.engine.settings import EngineSettings
from duetime.events import EventHub
from duetime.ports.archive import AuditArchive
from duetime.ports.bus import Bus
from duetime.ports.registry import Registry
from duetime.ports.store import ExecutionRecord, JobRecord, Store
from duetime.ports.vault import Vault
from duetime.registry.embedded import EmbeddedRegistry
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.measured_store import measured
from duetime.testing import HandClock, ScriptedExecutor
from patience import PATIENCE_SECONDS
from samples import TENANT, executions_of, job_of, new_job, one

TURNS = 8  # of the event loop: more than any chain of callbacks between two waits of the engine
MOST_PAGES = 500  # more than any test has at one instant: beyond that, the timer makes no progress


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition is true, while the event loop runs. Fails if it never is."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 (conditions of many kinds: there is no event for all)
            await asyncio.sleep(0)


class Stage:
    def __init__(self, store: Store, clock: HandClock, executor: ScriptedExecutor) -> None:
        self.store = store
        self.clock = clock
        self.executor = executor
        self.events = EventHub()
        self.registry: Registry = EmbeddedRegistry()
        self.bus: Bus = LocalBus()
        self.vault: Vault | None = None
        self.archive: AuditArchive | None = None
        self.telemetry = Telemetry()
        self.engine: Engine

    @property
    def measured(self) -> Store:
        """The store as the parts of a node have it: it emits what is written."""
        return measured(self.store, self.telemetry)

    def make_engine(self, limits: Limits | None = None, store: Store | None = None, **settings: Any) -> Engine:
        self.engine = Engine(
            store or self.measured, self.registry, self.bus, self.executor, self.clock, self.events,
            EngineSettings(limits=limits or Limits(), **settings), jitter=lambda: 1.0, vault=self.vault,
            archive=self.archive, telemetry=self.telemetry,
        )  # fmt: skip
        return self.engine

    async def join(self, limits: Limits | None = None, store: Store | None = None, **settings: Any) -> Engine:
        """Starts an engine whose services the test runs step by step."""
        engine = self.make_engine(limits, store, **settings)
        await engine.join()
        return engine

    async def add_job(self, job: JobSpec, **fields: Any) -> str:
        """Creates a job as the API does: writes it, then sends the hint."""
        made = new_job(job, now=self.clock.now(), **fields)
        assert await one(self.store, c.CreateJobs(self.clock.now(), (made,))) is None
        self.engine.term.timer.hint(made.due_at)
        return made.job_id

    async def turn_timer(self) -> int:
        """Runs the timer until nothing more is due now. Returns the instant of its next turn."""
        for _ in range(MOST_PAGES):
            if next_at := await self.engine.term.timer.run_once():
                await self.settle()
                return next_at
        raise AssertionError(f"after {MOST_PAGES} turns the timer is still due at once: what it fires is refused")

    async def settle(self) -> None:
        """Runs attempts until each has ended or is held by the executor, and records the results."""
        await self.let_run()
        await self.engine.term.recorder.run_once()
        await self.let_run()

    async def let_run(self) -> None:
        quiet = 0
        while quiet < TURNS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.engine.term.dispatcher.running() == self.executor.running() else 0

    async def tick(self) -> None:
        """Runs all services until none has anything to do at this instant."""
        while True:
            begun = len(self.executor.attempts)
            await self.turn_timer()
            await self.engine.term.claimer.run_once()
            await self.settle()
            if len(self.executor.attempts) == begun:
                return

    async def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Advances the clock in steps, and runs the engine at each step."""
        end = self.clock.now() + round(seconds * SECOND)
        while self.clock.now() < end:
            self.clock.set(min(self.clock.now() + round(step * SECOND), end))
            await self.tick()

    async def job(self, job_id: str) -> JobRecord:
        return await job_of(self.store, job_id)

    async def executions(self, job_id: str) -> list[ExecutionRecord]:
        return await executions_of(self.store, job_id)

    async def states(self, job_id: str) -> list[str]:
        return [str(e.state) for e in await self.executions(job_id)]

    async def apply(self, command: c.Command) -> Any:
        return await one(self.store, command)

    async def cancel_execution(self, execution_id: str) -> None:
        """Cancels as the API does: marks the execution in the store, then notifies the node."""
        await self.apply(c.CancelExecution(self.clock.now(), TENANT, execution_id))
        self.engine.term.dispatcher.cancel(execution_id)
