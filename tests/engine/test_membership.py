"""Membership: which shards a node owns by its own view, and when it gives them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.instants import LATEST, SECOND
from duetime.domain.lease import AFTER_EXPIRY, Standing, View, runs_housekeeping
from duetime.engine.membership import Membership
from duetime.registry.embedded import EmbeddedRegistry
from duetime.registry.memory import MemoryRegistry
from duetime.testing import HandClock
from engine.stage import until
from patience import PATIENCE_SECONDS

TTL, MARGIN = 5.0, 1.0


class Line(MemoryRegistry):
    """A registry whose calls can fail: the call is not made, or its response is lost."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock, TTL)
        self.cut: Collection[str] = ()
        self.answer_lost: Collection[str] = ()
        self.before: Callable[[str], None] = lambda call: None  # called before the call is made
        self.after: Callable[[str], None] = lambda call: None  # called before the response returns
        self.calls: list[str] = []
        self.clear = asyncio.Event()  # calls wait until it is set
        self.clear.set()

    async def _ask(self, call: str, deed: Callable[[], Any]) -> Any:
        self.calls.append(call)
        self.before(call)
        await self.clear.wait()
        if call in self.cut:
            raise ConnectionError("the line is cut")
        answer = await deed()
        self.after(call)
        if call in self.answer_lost:
            raise TimeoutError("no answer")
        return answer

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        return await self._ask("join", lambda: MemoryRegistry.join(self, node, name, roles))  # type: ignore[no-any-return]

    async def renew(self, node: int) -> View:
        return await self._ask("renew", lambda: MemoryRegistry.renew(self, node))  # type: ignore[no-any-return]

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        return await self._ask("take", lambda: MemoryRegistry.take(self, node, shards))  # type: ignore[no-any-return]

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        await self._ask("release", lambda: MemoryRegistry.release(self, node, shards))

    async def leave(self, node: int) -> None:
        await self._ask("leave", lambda: MemoryRegistry.leave(self, node))


class Node(Membership):
    """A node that records its callbacks."""

    def __init__(self, registry: Any, clock: HandClock, node: int, name: str = "", roles: str = "timer") -> None:
        self.gained: list[Mapping[int, int]] = []
        self.lost: list[Mapping[int, int]] = []
        self.trusted: list[bool] = []
        self.ended = 0
        super().__init__(
            registry, clock, node, name or f"n{node}", roles.split(), margin_seconds=MARGIN,
            on_gained=self.gained.append, on_lost=self.lost.append, on_fenced=self._note_end,
            on_trusted=lambda: self.trusted.append(self.is_trusted()),
        )  # fmt: skip

    def _note_end(self) -> None:
        self.ended += 1


@pytest.fixture
def line(clock: HandClock) -> Line:
    return Line(clock)


async def test_the_first_heartbeat_joins_and_takes_everything(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    assert (node.standing, node.owned) == (Standing.JOINED, {})
    assert await node.run_once() == clock.now() + 1000
    assert node.standing is Standing.TRUSTED
    assert node.owned == dict.fromkeys(range(SHARDS), 1)
    assert node.gained == [node.owned]
    assert runs_housekeeping(node.owned)
    assert line.calls == ["join", "take"]


async def test_an_idle_heartbeat_is_one_call(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    line.calls.clear()
    for _ in range(10):
        clock.advance(1)
        await node.run_once()
    assert line.calls == ["renew"] * 10
    assert (len(node.gained), node.lost) == (1, [])
    assert node.view is not None
    assert node.view.now == clock.now()


async def test_a_second_node_owns_its_share_after_two_heartbeats(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    assert second.owned == {}
    clock.advance(1)
    await first.run_once()
    await second.run_once()
    assert (len(first.owned), len(second.owned)) == (32, 32)
    assert not first.owned.keys() & second.owned.keys()
    assert set(second.owned.values()) == {2}
    assert first.lost == [dict.fromkeys(range(32, 64), 1)]
    assert runs_housekeeping(first.owned)


async def test_shards_are_dropped_before_they_are_released_in_the_registry(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    seen: list[int] = []
    line.before = lambda call: seen.append(len(first.owned)) if call == "release" else None
    await first.run_once()
    assert seen == [32]


async def test_a_node_without_the_timer_role_has_a_lease_and_no_shards(line: Line, clock: HandClock):
    node = Node(line, clock, 1, roles="api worker")
    await node.run_once()
    assert (node.standing, node.owned, line.calls) == (Standing.TRUSTED, {}, ["join"])


async def test_trust_ends_without_any_task_of_the_node(line: Line, clock: HandClock):
    """A suspended process notices at its first check, although none of its tasks has run."""
    node = Node(line, clock, 1)
    await node.run_once()
    clock.advance(TTL - MARGIN - 0.001)
    assert len(node.owned) == SHARDS
    assert len(node.owned_now(clock.monotonic())) == SHARDS
    assert node.is_trusted()
    clock.advance(0.001)
    assert node.owned == node.owned_now(clock.monotonic()) == {}
    assert node.standing is Standing.DOUBTFUL
    assert not node.is_trusted()


async def test_trust_counts_from_the_sending_of_the_renewal(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    clock.advance(1)
    line.before = lambda call: clock.advance(1.5) if call == "renew" else None
    line.after = lambda call: clock.advance(1.5) if call == "renew" else None
    await node.run_once()
    clock.advance(0.999)
    assert len(node.owned) == SHARDS
    clock.advance(0.001)
    assert node.owned == {}


async def test_a_failed_heartbeat_is_retried_soon_and_shown_as_a_failure(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    line.cut = ["renew"]
    clock.advance(1)
    with capture_logs() as logs:
        assert await node.run_once() == clock.now() + 250
        await node.run_once()
    assert node.failure == "ConnectionError: the line is cut"
    assert [entry["log_level"] for entry in logs] == ["warning"]  # once, not at each try
    assert len(node.owned) == SHARDS  # still trusted
    line.cut = []
    await node.run_once()
    assert node.failure is None


async def test_shards_are_dropped_in_doubt_and_gained_again_by_a_renewal(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    mine = node.owned
    line.cut = ["renew"]
    clock.advance(TTL - MARGIN)
    await node.run_once()
    assert (node.owned, node.lost) == ({}, [mine])
    line.cut = []
    clock.advance(MARGIN / 2)
    await node.run_once()
    assert (node.standing, node.owned, node.gained) == (Standing.TRUSTED, mine, [mine, mine])


async def test_shards_are_reported_as_gained_again_after_an_unnoticed_doubt(line: Line, clock: HandClock):
    """No heartbeat failed: the process was suspended, dropped its timers when it checked its lease, and was renewed."""
    node = Node(line, clock, 1)
    await node.run_once()
    mine = node.owned
    clock.advance(TTL - MARGIN)
    assert node.owned == {}
    await node.run_once()
    assert (node.lost, node.gained) == ([mine], [mine, mine])


async def test_on_trusted_is_called_on_a_node_without_shards(line: Line, clock: HandClock):
    """A node with the role worker may hold waiting claims, and gains no shards."""
    node = Node(line, clock, 1, roles="worker")
    await node.run_once()
    assert node.trusted == [True]
    clock.advance(1)
    await node.run_once()
    assert node.trusted == [True]
    clock.advance(TTL - MARGIN)
    assert not node.is_trusted()
    await node.run_once()
    assert (node.trusted, node.gained) == ([True, True], [])


async def test_a_refused_renewal_fences_this_node(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    mine = node.owned
    clock.advance(TTL)
    with capture_logs() as logs:
        assert await node.run_once() == LATEST
    assert "join again" in logs[0]["event"]
    assert (node.standing, node.owned, node.lost, node.ended) == (Standing.LOST, {}, [mine], 1)
    line.calls.clear()
    assert await node.run_once() == LATEST
    assert (line.calls, node.ended) == ([], 1)
    await node.leave()
    assert line.calls == []


async def test_a_restarted_node_takes_its_shards_at_once_at_a_later_epoch(line: Line, clock: HandClock):
    before = Node(line, clock, 1, "a")
    await before.run_once()
    after = Node(line, clock, 2, "a")
    await after.run_once()
    assert after.owned == dict.fromkeys(range(SHARDS), 2)
    clock.advance(1)
    await before.run_once()
    assert (before.ended, before.owned) == (1, {})


async def test_the_shards_of_a_leaving_node_are_taken_within_one_heartbeat(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    for _ in range(3):
        await first.run_once()
        await second.run_once()
    mine = first.owned
    await first.leave()
    assert (first.owned, first.lost[-1], first.standing) == ({}, mine, Standing.LOST)
    assert first.ended == 0  # no node has to join again
    await second.run_once()
    assert len(second.owned) == SHARDS
    await first.leave()
    assert line.calls.count("leave") == 1


@pytest.mark.parametrize("expired", [False, True])
async def test_a_heartbeat_in_flight_gains_nothing_after_the_node_has_left(line: Line, clock: HandClock, expired: bool):
    node = Node(line, clock, 1)
    await node.start()
    await until(lambda: len(node.owned) == SHARDS and clock.waiting() == 1)
    line.clear.clear()
    clock.advance(1)
    await until(lambda: line.calls[-1] == "renew")
    leaving = asyncio.create_task(node.leave())
    await until(lambda: node.owned == {})
    clock.advance(TTL if expired else 0)
    line.clear.set()
    await leaving
    assert (node.owned, len(node.gained), len(node.lost), node.ended) == ({}, 1, 1, 0)
    assert line.calls == ["join", "take", "renew", "leave"]
    assert (await line.view()).expired == (1,)


async def test_a_failed_leave_does_not_stop_the_stop(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    line.cut = ["leave"]
    with capture_logs() as logs:
        await node.leave()
    assert [entry["log_level"] for entry in logs] == ["info", "warning"]
    assert node.owned == {}


async def test_a_join_whose_response_was_lost_is_repeated(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    line.answer_lost = ["join"]
    await node.run_once()
    assert (node.standing, node.owned) == (Standing.JOINED, {})
    line.answer_lost = []
    await node.run_once()
    assert len(node.owned) == SHARDS


async def test_a_take_whose_response_was_lost_shows_in_the_next_view(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    line.answer_lost = ["take"]
    await node.run_once()
    assert node.owned == {}
    await node.run_once()
    assert node.owned == dict.fromkeys(range(SHARDS), 1)


async def test_shards_taken_after_the_end_of_trust_are_not_owned(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    line.after = lambda call: clock.advance(TTL - MARGIN) if call == "take" else None
    await node.run_once()
    assert (node.owned, node.gained) == ({}, [])
    line.after = lambda call: None
    await node.run_once()
    assert len(node.owned) == SHARDS


async def test_released_shards_are_not_owned_although_the_view_still_shows_them(line: Line, clock: HandClock):
    """The release may still be in flight, and take effect right after the view was read."""
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    line.cut = ["release"]
    await first.run_once()
    assert len(first.owned) == 32
    await first.run_once()
    assert len(first.owned) == 32
    await second.leave()
    await first.run_once()
    assert len(first.owned) == 32  # although it should own all: the result of its releases is unknown
    line.cut = []
    await first.run_once()
    assert [first.owned[shard] for shard in (0, 31, 32, 63)] == [1, 1, 2, 2]


async def test_a_late_release_never_gives_a_shard_two_owners(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    line.cut = ["release"]
    await first.run_once()  # gives up 32 to 63; the response is lost
    await second.leave()
    await first.run_once()  # a view that still shows them as its own, and that it should own all
    await MemoryRegistry.release(line, 1, dict.fromkeys(range(32, 64), 1))  # now the release arrives
    third = Node(line, clock, 3)
    await third.run_once()
    assert len(third.owned) == 32
    assert not first.owned.keys() & third.owned.keys()


async def test_a_dead_node_is_replaced_as_soon_as_its_lease_expires(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    clock.advance(0.6)
    await first.run_once()
    clock.advance(0.1)
    await second.run_once()  # and dies
    died_at, next_at = clock.now(), clock.now() + 300
    while len(first.owned) < SHARDS:
        clock.set(next_at)
        next_at = await first.run_once()
    assert clock.now() - died_at == TTL * SECOND + AFTER_EXPIRY


async def test_a_node_that_took_too_few_shards_retries_soon(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await MemoryRegistry.join(line, 2, "b", ["worker"])

    def take_some(call: str) -> None:
        if call == "take":
            taking = MemoryRegistry.take(line, 2, [0, 1])
            with pytest.raises(StopIteration):
                taking.send(None)

    line.before = take_some
    assert await node.run_once() == clock.now() + 250
    assert len(node.owned) == SHARDS - 2


async def test_a_single_node_owns_all_shards_for_ever(clock: HandClock):
    node = Node(EmbeddedRegistry(), clock, 5)
    assert await node.run_once() == LATEST
    clock.advance(1_000_000)
    assert node.owned == dict.fromkeys(range(SHARDS), 5)
    await node.leave()
    assert node.owned == {}


async def test_the_loop_sends_heartbeats_until_the_node_leaves(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.start()
    for calls in (2, 3, 4, 5):
        await until(lambda calls=calls: len(line.calls) == calls and clock.waiting() == 1)  # type: ignore[misc]
        clock.advance(1 if calls < 5 else 0)
    assert line.calls == ["join", "take", "renew", "renew", "renew"]
    node.wake()  # a hint
    await until(lambda: len(line.calls) == 6)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await node.leave()
    assert line.calls[-1] == "leave"
    with pytest.raises(StaleWrite):
        await MemoryRegistry.renew(line, 1)
