"""What needs a clock turned by hand or two requests in one moment: the application on a real store, in this process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from duetime.api.actions import list_coming
from duetime.api.batch import _Batch
from duetime.api.context import ApiContext
from duetime.api.create import create_job
from duetime.domain.errors import Conflict
from duetime.store.sqlite import SqliteStore
from duetime.telemetry.events import EventHub
from duetime.testing import HandClock

T = TypeVar("T")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def context(tmp_path: Path, clock: HandClock) -> AsyncIterator[ApiContext]:
    store = SqliteStore(tmp_path)
    await store.start()
    yield ApiContext(
        store, clock, EventHub(), os.urandom, lambda at: None, lambda at: None, lambda execution_id: False, dict
    )
    await store.stop()


def body(schedule: str) -> bytes:
    return json.dumps({"name": "x", "schedule": schedule, "payload": {"url": "http://example.org"}}).encode()


async def test_a_repeat_is_answered_the_same_though_its_instant_has_passed(
    context: ApiContext, clock: HandClock
) -> None:
    once = body("2026-01-01T00:10:00Z")
    first = await create_job(context, once, "key")
    clock.advance(3600)
    assert await create_job(context, once, "key") == first


async def test_the_second_of_two_at_once_is_told_to_come_back(context: ApiContext) -> None:
    far = body("2099-01-01T00:00:00Z")
    first, second = await asyncio.gather(
        create_job(context, far, "key"), create_job(context, far, "key"), return_exceptions=True
    )
    assert isinstance(first, bytes)
    assert isinstance(second, Conflict)
    assert "under way" in str(second)
    assert await create_job(context, far, "key") == first


async def turns_of_others(work: Coroutine[Any, Any, T]) -> tuple[int, T]:
    """How often others were on the loop while the work was done, and what came of it."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    turns = 0
    result = await work
    counting.cancel()
    return turns, result


class TestBatch:
    async def test_lines_that_are_refused_let_others_have_their_turn(self, context: ApiContext) -> None:
        batch = _Batch(context)
        bad = [json.dumps({**json.loads(body("every 1h")), "timezone": f"Nowhere/{number}"}) for number in range(2000)]
        turns, _ = await turns_of_others(batch.add("\n".join(bad).encode()))
        assert turns >= 5
        assert (await batch.finish()).refused_count == 2000

    async def test_what_is_said_of_refused_lines_is_bounded(self, context: ApiContext) -> None:
        batch = _Batch(context)
        headers = {f"bad name {number} {'x' * 100}": "x" for number in range(500)}
        wordy = json.loads(body("every 1h"))
        wordy["payload"]["headers"] = headers
        for _ in range(3):
            await batch.add(json.dumps(wordy).encode())
        await batch.add(b"\n".join([b"{"] * 2997 + [body("every 1h")] + [b"{"] * 2))
        result = await batch.finish()
        assert (result.created_count, result.refused_count) == (1, 3002)
        assert [item.index for item in result.refused] == list(range(1000))
        assert result.also_refused == [*range(1000, 3000), 3001, 3002]
        assert len(msgspec.json.encode(result)) < 400_000


class TestComing:
    async def test_far_instants_let_others_have_their_turn(self, context: ApiContext) -> None:
        made = json.loads(await create_job(context, body("0 0 29 2 1"), None))
        record = await context.store.get_job("default", made["job_id"])
        assert record is not None
        turns, coming = await turns_of_others(list_coming(record, 150))
        assert len(coming) == 150
        assert turns >= 3
