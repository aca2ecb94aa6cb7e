"""The world of the simulation: one clock set by hand, one store, one registry, and machines with random faults.

Every call of a machine to the store or the registry waits in a queue. A random source decides which call is next,
which one is late or fails, and whose response is late. Calls run one at a time, each when no task has anything to do.
So the same seed always gives the same interleaving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from cluster.checker import AcknowledgedJob, shown
from duetime.domain import commands as c
from duetime.domain.errors import InvalidSchedule, Overloaded
from duetime.domain.ids import SHARDS, make_id, shard_of
from duetime.domain.job import JobSpec
from duetime.ports.store import Store
from duetime.registry.memory import MemoryRegistry
from samples import new_job, spec
from simulation.diary import Diary, acknowledged
from simulation.machine import CommonClock, Machine
from simulation.turns import turn

TTL = 5.0
STEP = 0.25
CALL_SECONDS = 1.5  # after which a call to the registry is given up
OP_SECONDS = 5.0  # after which one to the store is, if nothing was written
TURNS = 48  # of the event loop, at most: more than any chain of callbacks between two waits
MOST_CALLS = 2000  # at one instant: many times what there are
NAMES = ("n0", "n1", "n2", "n3")
STALLS = 0.02
REGISTRY = frozenset({"join", "renew", "take", "release", "leave"})


def turn_by(clock: CommonClock) -> Callable[[], None]:
    """Makes the event loop's timeouts follow the clock: the speed of the simulation must not change its history.

    Returns a function that restores the time of the event loop.
    """
    loop = asyncio.get_running_loop()
    own, began_at = loop.time, loop.time()
    loop.time = lambda: began_at + clock.monotonic()  # type: ignore[method-assign]

    def undo() -> None:
        loop.time = own  # type: ignore[method-assign]

    return undo


class Call:
    """A call in flight: first the request (`deed`), then the response."""

    def __init__(self, machine: Machine, what: str, deed: Callable[[], Any]) -> None:
        self.machine = machine
        self.what = what
        self.deed: Callable[[], Any] | None = deed
        self.fate: str | None = None
        self.not_before = 0
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: Any = None


class World:
    def __init__(self, seed: int, store: Store) -> None:
        self.rng = Random(seed)
        self.clock = CommonClock()
        self.store = store
        self.registry = MemoryRegistry(self.clock, TTL)
        self.diary = Diary(self.clock)
        self.machines: dict[str, Machine] = {}
        self.jobs: list[AcknowledgedJob] = []
        self.has_skew = False
        self.stalls = STALLS  # the share of writes before which a machine is suspended: after its check of the lease
        self.refused_fires = 0
        self.is_troubled = True
        self._before = asyncio.all_tasks()
        self._real_time = turn_by(self.clock)
        self._dead: list[Machine] = []  # an event loop keeps no reference to its tasks
        self._resumes: list[tuple[int, Machine]] = []
        self._calls: list[Call] = []
        self._fenced: dict[int, tuple[int, int]] = {}  # shard: (epoch, node)
        self._epochs = [0] * SHARDS

    # Calls of machines

    async def ask(self, machine: Machine, what: str, deed: Callable[[], Any]) -> Any:
        call = Call(machine, what, deed)
        self._calls.append(call)
        return await call.answer

    async def apply(self, commands: Sequence[c.Command], decided_at: int) -> list[Any]:
        results = await self.store.apply(commands)
        for command, result in zip(commands, results, strict=True):
            self.diary.decided(command, result, decided_at)
            if isinstance(command, c.FenceShards) and result is None:
                for shard, epoch in command.shards:
                    assert epoch >= self._fenced.get(shard, (0, 0))[0], f"shard {shard} was fenced with an older epoch"
                    self._fenced[shard] = (epoch, command.node)
            if isinstance(command, c.Fire):
                self._check_fire(command, result)
        return results

    def _check_fire(self, command: c.Fire, result: Any) -> None:
        if not isinstance(result, c.Fired):
            self.refused_fires += 1
            return
        epochs = dict(command.epochs)
        for move in command.moves:
            if move.job_id not in result.stale_jobs:
                shard = shard_of(move.job_id)
                mine, latest = (epochs.get(shard), command.node), self._fenced.get(shard)
                assert mine == latest, f"STALE: a fire of shard {shard} at {mine} was accepted, fenced at {latest}"

    # Time

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            for at, machine in list(self._resumes):
                if at <= self.clock.now():
                    self._resumes.remove((at, machine))
                    if not machine.is_dead:
                        machine.go_on()
            await self.settle()
            epochs = [holding.epoch for holding in (await self.registry.view()).shards]
            assert all(now >= before for now, before in zip(epochs, self._epochs, strict=True)), "an epoch shrank"
            self._epochs = epochs

    async def settle(self) -> None:
        """Runs all that can run, one after the other, until there is nothing left to do at this instant."""
        for _ in range(MOST_CALLS):
            await self._let_all_run()
            now = self.clock.now()
            ready = [call for call in self._calls if call.not_before <= now and self._may_go_on(call)]
            if not ready:
                return
            await self._go_on(self.rng.choice(ready))
        raise AssertionError(f"after {MOST_CALLS} calls at one instant still more: a machine asks in a circle")

    async def _let_all_run(self) -> None:
        """Runs all tasks until each waits for the clock or for a call."""
        for _ in range(TURNS):
            if not await turn() and not await turn():
                return

    def _may_go_on(self, call: Call) -> bool:
        """Returns whether a call may continue. A response waits for a suspended machine. A request of a suspended or
        killed machine was sent before that, or never."""
        machine = call.machine
        return machine.clock.running.is_set() or (call.deed is not None and call.fate == "sent")

    async def _go_on(self, call: Call) -> None:
        now = self.clock.now()
        if call.deed is None:
            self._calls.remove(call)
            if call.answer.done():
                pass  # the caller was cancelled, and ignores the result
            elif isinstance(call.result, BaseException):
                call.answer.set_exception(call.result)
            else:
                call.answer.set_result(call.result)
            return
        if call.fate is None:
            call.fate, wait = self._decide(call)
            call.not_before = now + round(wait * 1000)
            if call.not_before > now or not self._may_go_on(call):
                return
        deed, call.deed = call.deed, None
        if call.fate == "fails":
            call.result = self._failure(call)
            return
        try:
            call.result = await deed()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 (it is the answer)
            call.result = error
        call.not_before = now + (round(self.rng.uniform(0, 3) * 1000) if call.fate == "answered late" else 0)
        if call.machine.is_dead:
            self._calls.remove(call)

    def _decide(self, call: Call) -> tuple[str, float]:
        machine, rng = call.machine, self.rng
        if call.what == "apply" and self.is_troubled and rng.random() < self.stalls:
            machine.stop()
            self._resumes.append((self.clock.now() + round(rng.uniform(0.5, 3) * TTL * 1000), machine))
            return "done", 0
        if machine.is_cut_off:
            if call.what == "apply" and rng.random() < 0.3:  # the result is in doubt for a while
                return "answered late", 0
            return "fails", CALL_SECONDS if call.what in REGISTRY else rng.choice([STEP, OP_SECONDS])
        if rng.random() >= machine.trouble:
            return "done", 0
        return rng.choice([("late", rng.uniform(0, 4)), ("answered late", 0), ("fails", rng.choice([STEP, 1]))])

    def _failure(self, call: Call) -> Exception:
        if call.what in REGISTRY:
            return TimeoutError("no answer from the registry")
        return Overloaded("the database can't be reached, nothing was changed; try again")

    # Faults

    def start(self, name: str) -> None:
        self.kill(name)
        self.machines[name] = Machine(self, name)

    def kill(self, name: str) -> None:
        machine = self.machines.pop(name, None)
        if machine is not None:
            self._cut_loose(machine, by_then=8.0)
            machine.kill()
            self._dead.append(machine)

    def stop(self, machine: Machine) -> None:
        self._cut_loose(machine, by_then=0.5)
        machine.stop()

    def _cut_loose(self, machine: Machine, by_then: float) -> None:
        """Some of the requests that the machine was about to send were sent and arrive later; the others never do."""
        for call in self._calls:
            if call.machine is machine and call.deed is not None and self.rng.random() < 0.5:
                call.fate = "sent"
                call.not_before = self.clock.now() + round(self.rng.uniform(0, by_then) * 1000)

    def disturb(self) -> None:
        """Causes or ends one fault."""
        rng = self.rng
        name = rng.choice(NAMES)
        machine = self.machines.get(name)
        what = rng.choice(["start", "kill", "leave", "stop", "stop", "go on", "trouble", "cut", "heal", "jump"])
        if what == "start" or machine is None or machine.is_dead:
            self.start(name)
        elif what == "kill":
            self.kill(name)
        elif what == "leave" and machine.is_up and machine.clock.running.is_set():
            machine.leave()
        elif what == "stop":
            self.stop(machine)
        elif what == "go on":
            machine.go_on()
        elif what == "trouble":
            machine.trouble = rng.choice([0.1, 0.3, 0.6])
        elif what == "cut":
            machine.is_cut_off = True
        elif what == "heal":
            machine.is_cut_off, machine.trouble = False, 0.0
        elif what == "jump" and self.has_skew:
            machine.clock.skew = rng.choice([0, -30_000, -3_000, -500, 500, 3_000, 30_000])

    def calm(self) -> None:
        """Ends all faults."""
        self.is_troubled = False
        for name in NAMES:
            machine = self.machines.get(name)
            if machine is None or machine.is_dead or machine.is_leaving:
                self.start(name)
            else:
                machine.is_cut_off, machine.trouble, machine.clock.skew = False, 0.0, 0
                machine.go_on()

    async def end(self) -> None:
        """Ends all tasks, and restores the time of the event loop."""
        self._real_time()
        while others := asyncio.all_tasks() - self._before:
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=1)

    # Users

    async def create(self, job: JobSpec) -> None:
        try:
            made = new_job(job, now=self.clock.now(), job_id=make_id(self.clock.now(), self.rng.randbytes(10)))
        except InvalidSchedule:
            return  # the job would never be due
        (answer,) = await self.store.apply([c.CreateJobs(self.clock.now(), (made,))])
        assert answer is None, answer
        self.jobs.append(acknowledged(made, self.clock.now()))
        up = [machine for machine in self.machines.values() if machine.is_up]
        if up and made.due_at is not None and self.rng.random() < 0.7:
            self.rng.choice(up).engine.term.due_hint(made.due_at)
            await self._let_all_run()  # else it would run while the next job is stored, for as long as that takes

    def some_job(self, most_seconds: float) -> JobSpec:
        """Returns a one-off job, or one that recurs for a while."""
        rng, now = self.rng, self.clock.now()
        url = f"https://t{rng.randrange(3)}.example/run"
        end_at = shown(now + round(rng.uniform(0.3, 1) * most_seconds * 1000))
        overlap = rng.choice(["skip", "allow", "queue_one", "queue_all"])
        match rng.randrange(4):
            case 0:
                return spec(f"every {rng.randint(1, 5)}s", url=url, end_at=end_at, overlap=overlap)
            case 1:
                return spec(f"*/{rng.randint(1, 5)} * * * * *", url=url, end_at=end_at, overlap=overlap)
            case _:
                return spec(shown(now + round(rng.uniform(0, most_seconds) * 1000)), url=url)
