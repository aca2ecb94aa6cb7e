"""Streams whose credential may end, and requests that a node has reserved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from duetime.api.limiter import HELD_SECONDS, Limiter
from duetime.api.routes import events
from duetime.api.routes.events import while_known
from duetime.domain.commands import Command, TakeRequests
from duetime.domain.errors import RateLimited, Unauthorized
from duetime.domain.identity import LOCAL, Caller, Role, Tier
from duetime.domain.instants import HOUR
from duetime.domain.limits import Limit, TierLimits, reserve
from duetime.testing import HandClock

FREE = Caller("acme", "ann", Role.USER, Tier.FREE, frozenset(), "jwt")


class TestStreams:
    async def read(self, monkeypatch: pytest.MonkeyPatch, known_for: int) -> tuple[list[bytes], bool]:
        """Returns the frames for a credential that passes this many checks, and whether the source was closed."""
        monkeypatch.setattr(events, "KNOWN_SECONDS", 0.0)
        closed, looks = False, 0

        async def frames() -> AsyncGenerator[bytes, None]:
            nonlocal closed
            try:
                for number in range(5):
                    yield b"%d" % number
            finally:
                closed = True

        async def identify() -> Caller:
            nonlocal looks
            looks += 1
            if looks > known_for:
                raise Unauthorized("revoked")
            return LOCAL

        return [frame async for frame in while_known(frames(), identify)], closed

    async def test_a_stream_continues_while_its_credential_is_valid(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert await self.read(monkeypatch, known_for=9) == ([b"0", b"1", b"2", b"3", b"4"], True)

    async def test_a_stream_ends_when_its_credential_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert await self.read(monkeypatch, known_for=2) == ([b"0", b"1"], True)


class SlowToTakeBack:
    """A store that takes a while to return given-back requests to the limit."""

    def __init__(self) -> None:
        self.full_at = 0
        self.arrives = asyncio.Event()
        self.asked = asyncio.Event()

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        answers = []
        for command in commands:
            assert isinstance(command, TakeRequests)
            if command.given_back:
                await self.arrives.wait()
            else:
                self.asked.set()
            quota = command.quota
            granted, self.full_at = reserve(quota.limit, self.full_at, command.now, command.wanted, command.given_back)
            answers.append((granted, self.full_at))
        return answers


async def test_requests_that_are_being_given_back_are_not_refused() -> None:
    store, clock = SlowToTakeBack(), HandClock()
    limiter = Limiter(store, clock, TierLimits({Tier.FREE: Limit("requests", 40, HOUR)}, {}))  # type: ignore[arg-type]
    assert (await limiter.take(FREE)) is not None  # two were reserved, one is left
    for _ in range(38):
        assert (await limiter.take(FREE)) is not None
    (reservation,) = limiter._reservations.values()
    assert reservation.held == 0
    assert (await limiter.take(FREE)) is not None
    with pytest.raises(RateLimited):
        await limiter.take(FREE)
    reservation.held = 1  # as if one had not been used
    clock.advance(HELD_SECONDS)
    limiter._sweep()
    await asyncio.sleep(0)
    store.asked.clear()
    asking = asyncio.create_task(limiter.take(FREE))
    await store.asked.wait()
    await asyncio.sleep(0)
    store.arrives.set()
    assert (await asking) is not None
