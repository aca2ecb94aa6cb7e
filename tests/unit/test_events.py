"""The hub: who follows hears what happens, is told of holes, and is let go at once when the node stops."""

from __future__ import annotations

import asyncio

import pytest

from duetime.telemetry.events import EventHub

T = "default"


async def test_close_ends_all_followers_at_once_whatever_still_waits_for_them() -> None:
    hub = EventHub()
    waiting, behind = hub.follow(T, None), hub.follow(T, None)
    ends = [asyncio.ensure_future(anext(follower)) for follower in (waiting, behind)]
    await asyncio.sleep(0)
    for number in range(500):
        hub.publish("job.created", 0, T, {"number": number})
    assert [event.data["number"] for event in await asyncio.gather(*ends) if event] == [0, 0]
    assert hub.followers == 2
    hub.close()
    for follower in (waiting, behind):
        with pytest.raises(StopAsyncIteration):
            await anext(follower)
    assert hub.followers == 0


async def test_close_wakes_who_waits() -> None:
    hub = EventHub()
    follower = hub.follow(T, None)
    waiting = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    hub.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_nobody_follows_a_closed_hub() -> None:
    hub = EventHub()
    hub.publish("job.created", 0, T, {})
    hub.close()
    hub.publish("job.created", 0, T, {})  # what still happens while the node stops
    assert [event async for event in hub.follow(T, 0)] == []
