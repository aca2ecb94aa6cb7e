"""The garbage collector runs while nothing is due, and has something to do."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from duetime.process import collector
from duetime.process.collector import MIDDLE, MIDDLE_NEEDS, YOUNG, YOUNG_NEEDS, Collector
from patience import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("young", "middle", "quiet_for", "collected"),
    [
        (YOUNG, 0, YOUNG_NEEDS, 0),
        (YOUNG - 1, MIDDLE, MIDDLE_NEEDS, None),  # too little garbage
        (YOUNG, 0, YOUNG_NEEDS - 1, None),  # a job is due soon
        (10 * YOUNG, 0, 0, None),  # requests are being sent
        (YOUNG, MIDDLE, MIDDLE_NEEDS, 1),
        (YOUNG, MIDDLE, MIDDLE_NEEDS - 1, 0),  # no time for more than the youngest
    ],
)
def test_a_collection_needs_garbage_and_time(young: int, middle: int, quiet_for: int, collected: int | None):
    assert Collector(lambda: quiet_for).collect(young, middle) == collected


class Node:
    """An object that refers to itself: only the collector removes it."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage_is_removed_before_the_interpreter_would_do_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collector, "CHECK_SECONDS", 0)
    thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000, *thresholds[1:])
    try:
        node = Node()
        removed, kept = asyncio.Event(), [Node() for _ in range(YOUNG)]
        weakref.finalize(node, removed.set)
        del node
        running = asyncio.create_task(Collector(lambda: 1000).run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await removed.wait()
        running.cancel()
        assert len(kept) == YOUNG
    finally:
        gc.set_threshold(*thresholds)
