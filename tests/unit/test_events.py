"""The hub: who follows hears what happens, is told of holes, and is let go at once when the node stops."""

from __future__ import annotations

import asyncio

import pytest

from duetime import events
from duetime.events import Event, EventHub

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


async def test_a_flood_of_one_tenant_takes_no_event_from_another_that_comes_back() -> None:
    hub = EventHub(kept=100)
    for number in range(10):
        hub.publish("job.created", 0, "quiet", {"number": number})
    for number in range(1000):
        hub.publish("job.created", 0, "loud", {"number": number})
    resumed = hub.follow("quiet", 1)
    told = [await anext(resumed) for _ in range(9)]
    assert [event.data["number"] for event in told if event] == list(range(1, 10))
    loud = hub.follow("loud", 10)
    assert await anext(loud) is None, "its own flood made a hole for itself"
    first = await anext(loud)
    assert first is not None
    assert first.data["number"] == 910
    for follower in (resumed, loud):
        await follower.aclose()


async def test_one_who_missed_nothing_of_its_tenant_is_told_of_no_hole() -> None:
    hub = EventHub(kept=10)
    for _ in range(100):
        hub.publish("job.created", 0, "loud", {})
    hub.publish("job.created", 0, "quiet", {"number": 1})
    resumed = hub.follow("quiet", 50)
    event = await anext(resumed)
    assert event is not None
    assert event.data["number"] == 1
    await resumed.aclose()


async def test_an_event_costs_only_those_who_follow_its_tenant() -> None:
    looked_at = 0

    class Counted(asyncio.Queue[Event | None]):
        def qsize(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return super().qsize()

    hub = EventHub()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(events.asyncio, "Queue", Counted)
        followers = [hub.follow("loud", None) for _ in range(99)] + [hub.follow("quiet", None)]
        waiting = [asyncio.ensure_future(anext(follower)) for follower in followers]
        await asyncio.sleep(0)
    hub.publish("job.created", 0, "quiet", {})
    assert looked_at == 1
    assert (await waiting[-1]) is not None
    hub.close()
    await asyncio.gather(*waiting[:-1], return_exceptions=True)
