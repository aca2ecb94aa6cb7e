"""Pauses for the garbage collector, and how long claims wait for a place."""

from __future__ import annotations

import gc

from duetime.engine.wait_samples import MOST, WaitSamples
from duetime.process.collector_pauses import CollectorPauses
from duetime.process.loop_lag import LoopLag


def test_each_collection_is_noted_with_its_generation() -> None:
    noted: list[tuple[int, float]] = []
    pauses = CollectorPauses(lambda generation, seconds: noted.append((generation, seconds)))
    gc.disable()
    try:
        pauses.start()
        gc.collect(1)
        gc.collect(0)
        assert not noted, "only when it is drained: a collection may run on any thread"
        pauses.drain()
        pauses.stop()
        gc.collect()
        pauses.drain()
    finally:
        gc.enable()
    assert [generation for generation, _ in noted] == [1, 0]
    assert all(0 <= seconds < 60 for _, seconds in noted)


def test_waits_are_measured_once_and_their_number_is_bounded() -> None:
    noted: list[float] = []
    waits = WaitSamples(noted.append)
    for number in range(MOST + 10):
        waits.begin(str(number))
    assert len(waits.timed) == MOST
    waits.end("0")
    waits.drop("1")
    waits.drop("unknown")
    assert len(noted) == 1
    assert len(waits.timed) == MOST - 2


async def test_the_lag_of_the_loop_is_told_at_each_beat() -> None:
    import asyncio

    told: list[float] = []
    heard = asyncio.Event()

    def note(seconds: float) -> None:
        told.append(seconds)
        heard.set()

    running = asyncio.create_task(LoopLag(note).run())
    async with asyncio.timeout(60):
        await heard.wait()
    running.cancel()
    assert told[0] >= 0
