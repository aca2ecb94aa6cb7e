"""Places on an event loop: a cancelled wait keeps no place, and stuck places of one tenant do not delay another."""

from __future__ import annotations

import asyncio

import pytest

from duetime.places import Places


async def test_a_tenant_below_its_share_is_admitted_although_others_are_stuck():
    places = Places(2, most=10)
    for _ in range(2):
        await places.enter("hostile")
    waiting = asyncio.create_task(places.enter("hostile"))
    await places.enter("other")
    assert not waiting.done()
    for tenant in ("other", "hostile"):
        places.leave(tenant)
    await waiting


async def test_a_cancelled_wait_takes_no_place():
    places = Places(1, most=1)
    await places.enter("a")
    gave_up, next_one = asyncio.create_task(places.enter("a")), asyncio.create_task(places.enter("a"))
    await asyncio.sleep(0)
    gave_up.cancel()
    places.leave("a")  # before the cancelled one has run
    with pytest.raises(asyncio.CancelledError):
        await gave_up
    await next_one


async def test_a_wait_cancelled_at_its_turn_returns_the_place():
    places = Places(1, most=1)
    await places.enter("a")
    late = asyncio.create_task(places.enter("a"))
    await asyncio.sleep(0)
    places.leave("a")  # the turn of `late` has come
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    async with places.of("a"):
        pass
