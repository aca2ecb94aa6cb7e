"""The turn gate: a few requests at once, in turns by tenant. A cancelled request keeps no place."""

from __future__ import annotations

import asyncio

import pytest

from duetime.engine.turn_gate import TurnGate
from engine.stage import TURNS


class Crowd:
    def __init__(self, at_once: int) -> None:
        self.gate = TurnGate(at_once)
        self.inside: list[str] = []  # in the order in which they passed
        self.most = 0
        self._now = 0

    def send(self, name: str, go: asyncio.Event) -> asyncio.Task[None]:
        return asyncio.create_task(self._pass(name, go))

    async def _pass(self, name: str, go: asyncio.Event) -> None:
        async with self.gate.turn(name[0]):
            self.inside.append(name)
            self._now += 1
            self.most = max(self.most, self._now)
            try:
                await go.wait()
                await asyncio.sleep(0)
            finally:
                self._now -= 1


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_requests_pass_in_turns_by_tenant_within_the_limit(at_once: int):
    crowd, go = Crowd(at_once), asyncio.Event()
    tasks = [crowd.send(f"a{number}", go) for number in range(50)]
    await settle()
    tasks += [crowd.send(name, go) for name in ("b0", "b1", "c0")]
    await settle()
    go.set()
    await asyncio.gather(*tasks)
    rest = crowd.inside[at_once:]
    assert rest[:5] == [f"a{at_once}", "b0", "c0", f"a{at_once + 1}", "b1"]
    assert (len(crowd.inside), crowd.most) == (53, at_once)


async def test_a_request_cancelled_while_it_waits_takes_no_turn():
    crowd, go = Crowd(1), asyncio.Event()
    first = crowd.send("a0", go)
    await settle()
    waiting, last = crowd.send("a1", go), crowd.send("a2", go)
    await settle()
    waiting.cancel()
    go.set()
    await asyncio.gather(first, last)
    assert crowd.inside == ["a0", "a2"]
    assert waiting.cancelled()


async def test_a_request_cancelled_at_the_moment_of_its_turn_passes_the_turn_on():
    gate, inside = TurnGate(1), []

    async def enter() -> None:
        async with gate.turn("a"):
            inside.append("entered")

    async with gate.turn("a"):
        waiting, last = asyncio.create_task(enter()), asyncio.create_task(enter())
        await settle()
    waiting.cancel()  # its turn has come, but its task has not run yet
    await last
    await settle()
    assert inside == ["entered"]
    assert waiting.cancelled()
    async with asyncio.timeout(5), gate.turn("a"):
        inside.append("free again")
