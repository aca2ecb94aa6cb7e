"""Many nodes, one simulated clock, and random faults: slow, lost or late calls, and nodes that stop, die and return.

At every instant at most one node has trusted ownership of a shard; epochs only grow, and no two nodes share one; and
when there was no fault for a ttl and two heartbeats, every shard is owned. All nodes' clocks run at the same rate,
which the margin is for; the margin is almost zero here, so that it hides no error.

A failure prints its seed. DUETIME_SIMULATIONS=5000 makes it a soak test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from random import Random
from typing import Any

import pytest

from duetime.domain.ids import SHARDS
from duetime.domain.lease import View
from duetime.engine.membership import Membership
from duetime.registry.memory import MemoryRegistry
from duetime.testing import HandClock
from simulation.turns import turn

TTL, BEAT, MARGIN = 5.0, 1.0, 0.01
STEP = 0.1
SLACK = 8 * STEP  # the time of calls that take a turn or two
CALL_SECONDS = 1.5
SETTLE = 12  # turns of the event loop, at most: more than any chain of callbacks between two waits
SEEDS = range(int(os.environ.get("DUETIME_SIMULATIONS", "6")))
LONG_SEEDS = SEEDS if "DUETIME_SIMULATIONS" in os.environ else SEEDS[:3]


class NodeClock:
    """The common clock for a process that may be suspended: none of its waits ends meanwhile."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.running = asyncio.Event()
        self.running.set()

    def now(self) -> int:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        answer = await self._clock.wait(event, until)
        await self.running.wait()
        return answer

    async def sleep(self, seconds: float) -> None:
        await self.wait(asyncio.Event(), self.now() + round(seconds * 1000))


class Network:
    """A connection to the registry that is slow, loses responses, and delivers lost requests late."""

    ttl_seconds = TTL

    def __init__(self, registry: MemoryRegistry, clock: HandClock, mine: NodeClock, rng: Random) -> None:
        self._registry = registry
        self._clock = clock
        self._mine = mine
        self._rng = rng
        self.trouble = 0.0
        self._late: set[asyncio.Task[object]] = set()

    async def _send(self, call: Callable[[], Awaitable[Any]]) -> Any:
        rng = self._rng
        if rng.random() >= self.trouble:
            await self._mine.sleep(rng.choice([0, 0, STEP]))
            answer = await call()
            await self._mine.sleep(rng.choice([0, 0, STEP]))
            return answer
        if rng.random() < 0.7:  # the caller has given up, and the call is executed later
            task = asyncio.ensure_future(self._deliver(call, rng.uniform(0, 2 * TTL)))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        await self._mine.sleep(CALL_SECONDS)
        raise TimeoutError("no answer")

    async def _deliver(self, call: Callable[[], Awaitable[Any]], seconds: float) -> None:
        await self._clock.wait(asyncio.Event(), self._clock.now() + round(seconds * 1000))
        await asyncio.gather(call(), return_exceptions=True)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        return await self._send(lambda: self._registry.join(node, name, roles))  # type: ignore[no-any-return]

    async def renew(self, node: int) -> View:
        return await self._send(lambda: self._registry.renew(node))  # type: ignore[no-any-return]

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        return await self._send(lambda: self._registry.take(node, shards))  # type: ignore[no-any-return]

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        await self._send(lambda: self._registry.release(node, shards))

    async def leave(self, node: int) -> None:
        await self._send(lambda: self._registry.leave(node))

    async def view(self) -> View:
        return await self._registry.view()


class Process:
    starting: asyncio.Task[None]

    def __init__(self, cluster: Cluster, node: int, name: str) -> None:
        self.name = name
        self.clock = NodeClock(cluster.clock)
        self.network = Network(cluster.registry, cluster.clock, self.clock, cluster.rng)
        self.network.trouble = cluster.trouble
        self.membership = Membership(
            self.network, self.clock, node, name, ["timer"], BEAT, MARGIN, on_fenced=lambda: cluster.restart(self)
        )


class Cluster:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = HandClock()
        self.registry = MemoryRegistry(self.clock, TTL)
        self.processes: dict[str, Process] = {}
        self.leaving: list[Process] = []
        self.owners: dict[tuple[int, int], int] = {}  # (shard, epoch): the node that owned it at any time
        self.epochs = [0] * SHARDS
        self.trouble = 0.0
        self._ids = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str) -> None:
        """Starts a process of this name. The previous one, if any, was killed and owns nothing."""
        self.kill(name)
        self._ids += 1
        process = self.processes[name] = Process(self, self._ids, name)
        process.starting = self._spawn(process.membership.start())

    def restart(self, process: Process) -> None:
        if self.processes.get(process.name) is process:
            self.start(process.name)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.starting.cancel()
            if process.membership._task is not None:
                process.membership._task.cancel()

    def leave(self, name: str) -> None:
        process = self.processes.pop(name)
        process.clock.running.set()
        self.leaving.append(process)  # its ownership counts until it has ended
        self._spawn(process.membership.leave())

    def _spawn(self, deed: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(deed)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            for _ in range(SETTLE):
                can_run = await turn()
                self.check_beliefs()
                if not can_run and not await turn():
                    break
            await self.check_epochs()

    def check_beliefs(self) -> None:
        owners: dict[int, int] = {}
        for process in (*self.processes.values(), *self.leaving):
            node = process.membership.node
            for shard, epoch in process.membership.owned.items():
                assert owners.setdefault(shard, node) == node, f"two believe that they own shard {shard}"
                assert self.owners.setdefault((shard, epoch), node) == node, f"two had epoch {epoch} of shard {shard}"

    async def check_epochs(self) -> None:
        epochs = [holding.epoch for holding in (await self.registry.view()).shards]
        assert all(now >= before for now, before in zip(epochs, self.epochs, strict=True))
        self.epochs = epochs

    def disturb(self) -> None:
        """Causes or ends one fault."""
        names = [f"n{number}" for number in range(6)]
        name = self.rng.choice(names)
        process = self.processes.get(name)
        match self.rng.choice(["start", "kill", "leave", "stop", "stop", "go on", "go on", "network"]):
            case "start":
                self.start(name)
            case "kill":
                self.kill(name)
            case "leave" if process is not None:
                self.leave(name)
            case "stop" if process is not None:
                process.clock.running.clear()
            case "go on" if process is not None:
                process.clock.running.set()
            case "network":
                self.set_trouble(self.rng.choice([0.0, 0.2, 0.6]))

    def set_trouble(self, trouble: float) -> None:
        self.trouble = trouble
        for process in self.processes.values():
            process.network.trouble = trouble

    def calm(self) -> None:
        self.set_trouble(0.0)
        for process in self.processes.values():
            process.clock.running.set()
        if not self.processes:
            self.start("n0")

    def shares(self) -> list[int]:
        return [len(process.membership.owned) for process in self.processes.values()]

    async def end(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", LONG_SEEDS)
async def test_at_most_one_node_owns_a_shard_and_each_shard_gets_an_owner(seed: int):
    cluster = Cluster(seed)
    for name in ("n0", "n1", "n2"):
        cluster.start(name)
    try:
        for _ in range(4):
            for _ in range(cluster.rng.randint(3, 25)):
                cluster.disturb()
                await cluster.run(cluster.rng.choice([STEP, 0.5, 1.0, 3.0, 6.0]))
            cluster.calm()
            # A call in flight may take a while to fail, and a late one to arrive.
            await cluster.run(CALL_SECONDS + 2 * TTL)
            await cluster.run(TTL + 2 * BEAT + SLACK)
            assert sum(cluster.shares()) == SHARDS, cluster.shares()
            assert max(cluster.shares()) - min(cluster.shares()) <= 1, cluster.shares()
    finally:
        await cluster.end()


@pytest.mark.parametrize("seed", SEEDS)
async def test_shards_get_a_new_owner_within_a_ttl_after_a_kill_and_within_a_heartbeat_after_a_leave(seed: int):
    cluster = Cluster(seed)
    names = [f"n{number}" for number in range(2 + seed % 5)]
    for name in names:
        cluster.start(name)
    try:
        await cluster.run(4 * BEAT)
        assert sum(cluster.shares()) == SHARDS
        await cluster.run(cluster.rng.randint(0, 9) * STEP)
        for name in cluster.rng.sample(names, cluster.rng.randint(1, len(names) - 1)):
            cluster.kill(name)
        await cluster.run(TTL + SLACK)
        assert sum(cluster.shares()) == SHARDS
        leaver = cluster.rng.choice(list(cluster.processes))
        cluster.start("new")
        await cluster.run(2 * BEAT + SLACK)
        assert min(cluster.shares()) == SHARDS // len(cluster.processes)
        cluster.leave(leaver)
        await cluster.run(BEAT + SLACK)
        assert sum(cluster.shares()) == SHARDS
    finally:
        await cluster.end()
