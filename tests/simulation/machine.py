"""A machine of the simulation: a real engine, with simulated clock, links to store and registry, and targets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from duetime.bus.local import LocalBus
from duetime.domain.commands import Command
from duetime.domain.execution import ErrorType, Outcome
from duetime.domain.lease import View, Writes
from duetime.engine.dispatcher import Limits
from duetime.engine.engine import Engine
from duetime.engine.settings import EngineSettings
from duetime.events import EventHub
from duetime.ports.executor import Attempt
from duetime.testing import SUCCESS, HandClock

if TYPE_CHECKING:
    from simulation.world import World

LIMITS = Limits(capacity=64, concurrency=3, endpoint=2, tenant=3)  # few at once, so that some wait in memory
FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500)


class InOrder(dict[Any, None]):
    """A set in order of insertion: a seed must give the same history, and memory addresses differ from run to run."""

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)


class CommonClock(HandClock):
    def __init__(self) -> None:
        super().__init__()
        self._waiters = InOrder()  # type: ignore[assignment]


class MachineClock:
    """The clock of one machine: its wall clock may be wrong, and no wait ends while the machine is suspended."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.skew = 0  # ms
        self.running = asyncio.Event()
        self.running.set()

    def now(self) -> int:
        return self._clock.now() + self.skew

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        deadline = self.monotonic() + (until - self.now()) / 1000
        while True:
            await self.running.wait()
            if event.is_set():
                return True
            if self.now() >= until or self.monotonic() >= deadline:
                return False
            await self._clock.wait(event, self._clock.now() + 1)


class StoreLink:
    """The link of a machine to the store."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._machine.world.store, name)
        return lambda *arguments: self._machine.ask(name, lambda: method(*arguments))

    def writes(self) -> Writes:
        return self._machine.world.store.writes()

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        world, decided_at = self._machine.world, self._machine.clock.now()
        return await self._machine.ask("apply", lambda: world.apply(commands, decided_at))  # type: ignore[no-any-return]


class RegistryLink:
    """The link of a machine to the registry."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._registry = machine.world.registry
        self.ttl_seconds = self._registry.ttl_seconds

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        return await self._machine.ask("join", lambda: self._registry.join(node, name, roles))  # type: ignore[no-any-return]

    async def renew(self, node: int) -> View:
        return await self._machine.ask("renew", lambda: self._registry.renew(node))  # type: ignore[no-any-return]

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        return await self._machine.ask("take", lambda: self._registry.take(node, shards))  # type: ignore[no-any-return]

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        await self._machine.ask("release", lambda: self._registry.release(node, shards))

    async def leave(self, node: int) -> None:
        await self._machine.ask("leave", lambda: self._registry.leave(node))


class Targets:
    """The targets of a machine: they take time, fail sometimes, and record every request."""

    def __init__(self, machine: Machine, rng: Random) -> None:
        self._machine = machine
        self._rng = rng

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def execute(self, attempt: Attempt) -> Outcome:
        clock, diary = self._machine.clock, self._machine.world.diary
        line = diary.begin(attempt)
        seconds = self._rng.choice([0.0, 0.0, 0.1, 0.5, 2.0])
        if seconds:
            await clock.wait(asyncio.Event(), clock.now() + round(seconds * 1000))
        outcome = FAILURE if self._rng.random() < 0.05 else SUCCESS
        diary.end(line, outcome.http_status)
        return outcome


class Machine:
    """Processes of one name, one after the other. `start`, `kill`, `stop` and `go_on` control them."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.clock = MachineClock(world.clock)
        self.is_dead = False
        self.is_leaving = False
        self.trouble = 0.0  # the share of calls that fail
        self.is_cut_off = False
        self._tasks: list[asyncio.Task[None]] = [asyncio.ensure_future(self._live())]

    async def _live(self) -> None:
        while True:
            targets = Targets(self, self.world.rng)
            self.engine = Engine(
                StoreLink(self), RegistryLink(self), LocalBus(), targets, self.clock, EventHub(),
                EngineSettings(node_name=self.name, limits=LIMITS, drain_seconds=0, reconcile_interval_seconds=30),
                jitter=self.world.rng.random, random_bytes=self.world.rng.randbytes,
            )  # fmt: skip
            try:
                await self.engine.start()
            except Exception:  # noqa: BLE001 (it could not start: the world starts it again)
                await self.clock.wait(asyncio.Event(), self.clock.now() + 1000)
            else:
                return

    async def ask(self, what: str, deed: Callable[[], Any]) -> Any:
        return await self.world.ask(self, what, deed)

    @property
    def is_up(self) -> bool:
        """Returns whether it has joined and was not stopped."""
        return self._tasks[0].done() and not self.is_dead and not self.is_leaving

    def stop(self) -> None:
        """SIGSTOP."""
        self.clock.running.clear()

    def go_on(self) -> None:
        self.clock.running.set()

    def leave(self) -> None:
        """Simulates SIGTERM to a running process."""
        self.is_leaving = True
        self._tasks.append(asyncio.ensure_future(self._leave()))

    async def _leave(self) -> None:
        await self.engine.stop()
        self.is_dead = True

    def kill(self) -> None:
        """Simulates kill -9: none of its tasks continues. Calls that it has sent may still arrive."""
        self.is_dead = True
        self.clock.running.clear()
