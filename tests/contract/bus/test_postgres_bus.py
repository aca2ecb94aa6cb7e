"""Hints between nodes: each reaches the others and not its sender, and a bus reconnects by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from duetime.bus.local import LocalBus
from duetime.bus.postgres import CHANNEL, PostgresBus
from duetime.domain.hint import MOST_CANCELS, Hint
from patience import PATIENCE_SECONDS
from samples import NOW
from store.postgres_server import connected, server_url
from store.proxy import Proxy


class Listener:
    def __init__(self, url: str = "") -> None:
        self.bus = PostgresBus(url or server_url())
        self.received_hints: list[Hint] = []
        self._news = asyncio.Event()

    def receive(self, hint: Hint) -> None:
        self.received_hints.append(hint)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def listening(one: Listener, other: Listener) -> AsyncIterator[tuple[Listener, Listener]]:
    """Two nodes that receive each other."""
    for listener in (one, other):
        await listener.bus.start(listener.receive)
    try:
        await _acquaint(one, other)
        yield one, other
    finally:
        for listener in (one, other):
            await listener.bus.stop()


@pytest.fixture
async def two() -> AsyncIterator[tuple[Listener, Listener]]:
    async with listening(Listener(), Listener()) as both:
        yield both


async def _acquaint(one: Listener, other: Listener) -> None:
    """Hints are lost until both listen: sends hints until one is received."""
    for speaker, listener in ((one, other), (other, one)):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not listener.received_hints:
                speaker.bus.send(Hint(waiting_at=0))
                await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # hints that are still on their way
    one.received_hints.clear()
    other.received_hints.clear()


async def test_a_hint_reaches_the_other_node_and_not_its_sender(two: tuple[Listener, Listener]):
    one, other = two
    one.bus.send(Hint(due_at=NOW, due_until=NOW + 5, cancel=("x",)))
    await other.until(lambda: len(other.received_hints) == 1)
    assert other.received_hints == [Hint(due_at=NOW, due_until=NOW + 5, cancel=("x",))]
    other.bus.send(Hint(waiting_at=3))
    await one.until(lambda: len(one.received_hints) == 1)
    assert one.received_hints == [Hint(waiting_at=3)]


async def test_many_hints_are_merged_into_few(two: tuple[Listener, Listener]):
    one, other = two
    for number in range(5000):
        one.bus.send(Hint(due_at=NOW + number, due_until=NOW + number))
    await other.until(lambda: any(hint.due_until == NOW + 4999 for hint in other.received_hints))
    assert min(hint.due_at for hint in other.received_hints) == NOW
    assert len(other.received_hints) <= 3


async def test_a_bus_reconnects_after_its_connection_was_lost(two: tuple[Listener, Listener]):
    one, other = two
    async with connected(server_url()) as admin:
        ended = await admin.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE query LIKE '%pg_notify%' AND pid <> pg_backend_pid() OR query LIKE 'LISTEN%'"
        )
    assert ended >= 1
    await _acquaint(one, other)
    one.bus.send(Hint(waiting_at=7))
    await other.until(lambda: Hint(waiting_at=7) in other.received_hints)


async def test_a_bus_leaves_a_server_that_ends_its_session_without_closing_the_connection():
    """For a moment after a server ends a connection, the driver itself refuses to send."""
    proxy = Proxy(server_url())
    proxy.hides_hanging_up = True
    async with proxy.serving() as url, listening(Listener(url), Listener()) as (one, other):
        async with connected(server_url()) as admin:
            assert await admin.fetchval(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
                "WHERE query LIKE '%pg_notify%' AND pid <> pg_backend_pid()"
            )
        await _acquaint(one, other)


async def test_an_invalid_hint_is_ignored(two: tuple[Listener, Listener]):
    one, other = two
    async with connected(server_url()) as admin:
        for payload in ("", "hello", '["x"]', '["x", [1, "2"]]', "\u2603"):
            await admin.execute(f"SELECT pg_notify('{CHANNEL}', '{payload}')")
    one.bus.send(Hint(waiting_at=7))
    await other.until(lambda: bool(other.received_hints))
    assert other.received_hints == [Hint(waiting_at=7)]


async def test_an_unreachable_bus_delays_neither_start_nor_stop():
    bus = PostgresBus("postgresql://nobody@127.0.0.1:9/nowhere")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await bus.start(lambda hint: None)
        bus.send(Hint(waiting_at=0))
        await bus.stop()


async def test_a_single_node_sends_no_hints():
    bus, received_hints = LocalBus(), list[Hint]()
    await bus.start(received_hints.append)
    bus.send(Hint(waiting_at=0))
    await bus.stop()
    assert received_hints == []


def test_a_merged_hint_covers_both_hints():
    one = Hint(due_at=5, due_until=9, cancel=("a",))
    other = Hint(due_at=7, due_until=11, waiting_at=3, cancel=("b",))
    assert one.merged(other) == Hint(5, 11, 3, ("a", "b"))
    assert one.merged(Hint()) == one
    many = Hint(cancel=tuple(str(number) for number in range(MOST_CANCELS)))
    assert len(many.merged(other).cancel) == MOST_CANCELS
