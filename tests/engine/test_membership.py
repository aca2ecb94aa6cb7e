"""Membership: what a node believes to own, and when it stops believing."""

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
    """A registry whose line can be cut: the call is not made, or its answer is lost."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock, TTL)
        self.cut: Collection[str] = ()
        self.answer_lost: Collection[str] = ()
        self.before: Callable[[str], None] = lambda call: None  # while the call is on its way
        self.after: Callable[[str], None] = lambda call: None  # while the answer is
        self.calls: list[str] = []
        self.clear = asyncio.Event()  # unless it is, calls wait
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
    """One that writes down what it was told."""

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


async def test_a_second_node_has_its_share_after_two_heartbeats(line: Line, clock: HandClock):
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


async def test_what_is_given_up_is_dropped_before_the_registry_hears_of_it(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    seen: list[int] = []
    line.before = lambda call: seen.append(len(first.owned)) if call == "release" else None
    await first.run_once()
    assert seen == [32]


async def test_a_node_without_the_timer_role_lives_and_owns_nothing(line: Line, clock: HandClock):
    node = Node(line, clock, 1, roles="api worker")
    await node.run_once()
    assert (node.standing, node.owned, line.calls) == (Standing.TRUSTED, {}, ["join"])


async def test_trust_ends_by_the_clock_alone(line: Line, clock: HandClock):
    """A process that was stopped finds out at its first look: no task of its own need have run."""
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


async def test_trust_counts_from_the_sending_not_from_the_answer(line: Line, clock: HandClock):
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


async def test_a_heartbeat_that_fails_is_sent_again_soon_and_shown(line: Line, clock: HandClock):
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


async def test_in_doubt_all_is_dropped_and_a_renewal_in_time_gains_it_anew(line: Line, clock: HandClock):
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


async def test_who_looked_while_it_was_in_doubt_is_told_anew(line: Line, clock: HandClock):
    """No heartbeat failed: the process was stopped, dropped its timers as it looked at the lease, and was renewed."""
    node = Node(line, clock, 1)
    await node.run_once()
    mine = node.owned
    clock.advance(TTL - MARGIN)
    assert node.owned == {}
    await node.run_once()
    assert (node.lost, node.gained) == ([mine], [mine, mine])


async def test_a_node_that_owns_nothing_is_told_that_a_doubt_came_to_nothing(line: Line, clock: HandClock):
    """A worker has runs that wait for it, and no shards that it could gain anew."""
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


async def test_a_refused_renewal_is_the_end_of_this_node(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    mine = node.owned
    clock.advance(TTL)
    with capture_logs() as logs:
        assert await node.run_once() == LATEST
    assert "start anew" in logs[0]["event"]
    assert (node.standing, node.owned, node.lost, node.ended) == (Standing.LOST, {}, [mine], 1)
    line.calls.clear()
    assert await node.run_once() == LATEST
    assert (line.calls, node.ended) == ([], 1)
    await node.leave()
    assert line.calls == []


async def test_a_node_that_starts_again_takes_over_at_once_at_a_later_epoch(line: Line, clock: HandClock):
    before = Node(line, clock, 1, "a")
    await before.run_once()
    after = Node(line, clock, 2, "a")
    await after.run_once()
    assert after.owned == dict.fromkeys(range(SHARDS), 2)
    clock.advance(1)
    await before.run_once()
    assert (before.ended, before.owned) == (1, {})


async def test_leaving_hands_over_within_one_heartbeat_of_the_others(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    for _ in range(3):
        await first.run_once()
        await second.run_once()
    mine = first.owned
    await first.leave()
    assert (first.owned, first.lost[-1], first.standing) == ({}, mine, Standing.LOST)
    assert first.ended == 0  # nobody need start anew
    await second.run_once()
    assert len(second.owned) == SHARDS
    await first.leave()
    assert line.calls.count("leave") == 1


@pytest.mark.parametrize("expired", [False, True])
async def test_leaving_while_a_heartbeat_is_under_way_gains_nothing_more(line: Line, clock: HandClock, expired: bool):
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


async def test_a_stop_goes_on_when_leaving_fails(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    await node.run_once()
    line.cut = ["leave"]
    with capture_logs() as logs:
        await node.leave()
    assert [entry["log_level"] for entry in logs] == ["info", "warning"]
    assert node.owned == {}


async def test_a_join_whose_answer_was_lost_is_repeated(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    line.answer_lost = ["join"]
    await node.run_once()
    assert (node.standing, node.owned) == (Standing.JOINED, {})
    line.answer_lost = []
    await node.run_once()
    assert len(node.owned) == SHARDS


async def test_a_take_whose_answer_was_lost_shows_in_the_next_view(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    line.answer_lost = ["take"]
    await node.run_once()
    assert node.owned == {}
    await node.run_once()
    assert node.owned == dict.fromkeys(range(SHARDS), 1)


async def test_a_take_that_is_answered_after_trust_has_ended_is_not_believed(line: Line, clock: HandClock):
    node = Node(line, clock, 1)
    line.after = lambda call: clock.advance(TTL - MARGIN) if call == "take" else None
    await node.run_once()
    assert (node.owned, node.gained) == ({}, [])
    line.after = lambda call: None
    await node.run_once()
    assert len(node.owned) == SHARDS


async def test_what_was_given_up_is_not_believed_although_the_view_still_shows_it(line: Line, clock: HandClock):
    """The release may be on its way still, and take effect right after the view was read."""
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
    assert len(first.owned) == 32  # although it should have all: it can't know what became of the releases
    line.cut = []
    await first.run_once()
    assert [first.owned[shard] for shard in (0, 31, 32, 63)] == [1, 1, 2, 2]


async def test_a_release_that_arrives_late_makes_no_two_believe(line: Line, clock: HandClock):
    first, second = Node(line, clock, 1), Node(line, clock, 2)
    await first.run_once()
    await second.run_once()
    line.cut = ["release"]
    await first.run_once()  # gives up 32 to 63; it seems that this was lost
    await second.leave()
    await first.run_once()  # a view in which they are its own still, and it should have them all
    await MemoryRegistry.release(line, 1, dict.fromkeys(range(32, 64), 1))  # now it arrives
    third = Node(line, clock, 3)
    await third.run_once()
    assert len(third.owned) == 32
    assert not first.owned.keys() & third.owned.keys()


async def test_a_dead_node_is_replaced_when_its_lease_expires_not_a_heartbeat_later(line: Line, clock: HandClock):
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


async def test_who_gets_less_than_it_wanted_looks_again_soon(line: Line, clock: HandClock):
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


async def test_a_node_that_is_alone_owns_everything_for_ever(clock: HandClock):
    node = Node(EmbeddedRegistry(), clock, 5)
    assert await node.run_once() == LATEST
    clock.advance(1_000_000)
    assert node.owned == dict.fromkeys(range(SHARDS), 5)
    await node.leave()
    assert node.owned == {}


async def test_it_beats_by_itself_and_a_leave_ends_the_loop(line: Line, clock: HandClock):
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
