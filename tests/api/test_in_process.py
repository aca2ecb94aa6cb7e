"""What needs a clock turned by hand or two requests in one moment: the application on a real store, in this process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from duetime.api.context import ApiContext
from duetime.api.create import create_job
from duetime.domain.errors import Conflict
from duetime.store.sqlite import SqliteStore
from duetime.telemetry.events import EventHub
from duetime.testing import HandClock


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
