"""The feed: followers read the log from their positions, share what is read, and learn what they missed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from duetime.domain.event_log import EventPages, LoggedEvents, StoredEvent, end_of, id_of
from duetime.events import EventFeed, Follower, feed

FIRST = 1_767_225_600_000
T, U = "acme", "beta"


class Log:
    """A store with nothing but a log."""

    def __init__(self) -> None:
        self.rows: list[LoggedEvents] = []
        self.head = self.pruned = 0
        self.reads: list[str | None] = []

    def add(self, **counts: int) -> int:
        self.head = max(FIRST, self.head + 1)
        for tenant, count in sorted(counts.items()):
            events = [StoredEvent("x", 0, {"of": f"{tenant} {self.head - FIRST}.{place}"}) for place in range(count)]
            self.rows.append(LoggedEvents(self.head, tenant, events))
        return self.head

    def add_gap(self) -> None:
        self.head = max(FIRST, self.head + 1)
        self.rows.append(LoggedEvents(self.head, "", []))

    def prune(self, number: int) -> None:
        self.pruned = number
        self.rows = [row for row in self.rows if row.number > number]

    async def list_events(
        self, after: int, tenants: Sequence[str], limit: int, tenant: str | None = None
    ) -> EventPages:
        self.reads.append(tenant)
        rows = [row for row in self.rows if row.number > after and row.tenant in tenants]
        numbers = sorted({row.number for row in rows})[:limit]
        return EventPages(self.head, self.pruned, [row for row in rows if row.number in numbers])


class Following:
    def __init__(self) -> None:
        self.woken = 0
        self.follower: Follower

    def wake(self) -> None:
        self.woken += 1

    async def take(self) -> list[object]:
        """Takes until the follower is not woken again."""
        found: list[object] = []
        for _ in range(100):
            if not self.woken:
                break
            self.woken = 0
            found += [None if event is None else event.data["of"] for event in await self.follower.take()]
        assert not self.woken, "it is woken without end"
        return found


async def follow(made: EventFeed, tenant: str = T, after: int | None = None) -> Following:
    following = Following()
    following.follower = await made.follow(tenant, after, following.wake)
    return following


def feed_of(log: Log) -> EventFeed:
    return EventFeed(log)  # type: ignore[arg-type]


async def test_a_follower_gets_what_is_logged_from_now_on() -> None:
    log = Log()
    log.add(acme=3)
    made = feed_of(log)
    following = await follow(made)
    assert await following.take() == []
    log.add(acme=2, beta=1)
    log.add(beta=1)
    await made.read()
    assert await following.take() == ["acme 1.0", "acme 1.1"]
    assert following.follower.position == end_of(log.head), "it has everything up to the last page"


async def test_all_followers_of_a_node_cost_one_read() -> None:
    log = Log()
    made = feed_of(log)
    all_of_them = [await follow(made, tenant) for tenant in [T] * 5 + [U] * 5]
    for one in all_of_them:
        await one.take()
    log.reads.clear()
    log.add(acme=1, beta=1)
    await made.read()
    taken = [await one.take() for one in all_of_them]
    assert taken == [["acme 0.0"]] * 5 + [["beta 0.0"]] * 5
    assert log.reads == [None]


async def test_without_followers_nothing_is_read() -> None:
    log = Log()
    made = feed_of(log)
    following = await follow(made)
    following.follower.close()
    log.reads.clear()
    assert await made.read() is False
    assert (log.reads, made.followers) == ([], 0)


async def test_a_follower_resumes_within_a_page() -> None:
    log = Log()
    first, second = log.add(acme=3), log.add(acme=2)
    made = feed_of(log)
    following = await follow(made, after=id_of(first, 0))
    assert await following.take() == ["acme 0.1", "acme 0.2", "acme 1.0", "acme 1.1"]
    following = await follow(made, after=end_of(second))
    assert await following.take() == []
    following = await follow(made, after=0)
    assert len(await following.take()) == 5


async def test_a_position_that_is_not_kept_gets_a_gap_and_then_what_is_kept() -> None:
    log = Log()
    first, _, _ = log.add(acme=1), log.add(acme=1), log.add(acme=1)
    log.prune(first)
    made = feed_of(log)
    assert await (await follow(made, after=id_of(first, 0))).take() == [None, "acme 1.0", "acme 2.0"]
    assert await (await follow(made, after=42)).take() == [None, "acme 1.0", "acme 2.0"]
    assert await (await follow(made, after=end_of(log.head + 5))).take() == [None]


async def test_a_slow_follower_reads_older_pages_for_itself_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_HELD", 10)
    monkeypatch.setattr(feed, "LEAST_HELD", 10)
    log = Log()
    made = feed_of(log)
    slow, fast = await follow(made), await follow(made)
    expected: list[object] = []
    taken: list[object] = []
    for number in range(50):
        log.add(acme=4)
        expected += [f"acme {number}.{place}" for place in range(4)]
        while await made.read():
            continue
        taken += await fast.take()
    assert taken == expected
    log.reads.clear()
    assert await slow.take() == expected
    assert set(log.reads) == {T}, "in its tenant's turn"


async def test_a_follower_that_is_slower_than_the_window_gets_a_gap() -> None:
    log = Log()
    made = feed_of(log)
    following = await follow(made)
    log.add(acme=1)
    log.prune(log.add(acme=1))
    log.add(acme=1)
    await made.read()
    assert await following.take() == [None, "acme 2.0"]


async def test_a_gap_of_all_tenants_reaches_each_follower() -> None:
    log = Log()
    made = feed_of(log)
    following, other = await follow(made), await follow(made, U)
    log.add(acme=1)
    log.add_gap()
    log.add(acme=1)
    await made.read()
    assert await following.take() == ["acme 0.0", None, "acme 2.0"]
    assert await other.take() == [None]


async def test_a_tenant_that_is_followed_during_a_read_misses_nothing() -> None:
    log = Log()
    made = feed_of(log)
    await follow(made, U)
    joined: list[Following] = []
    read = log.list_events

    async def list_events(after: int, tenants: Sequence[str], limit: int, tenant: str | None = None) -> EventPages:
        if tenant is None and not joined:
            joined.append(following := Following())
            following.follower = await made.follow(T, None, following.wake)
            log.add(acme=1, beta=1)  # seen by a read that does not ask for this tenant
        return await read(after, tenants, limit, tenant)

    log.list_events = list_events  # type: ignore[method-assign]
    await made.read()
    await made.read()
    assert await joined[0].take() == ["acme 0.0"]


async def test_a_long_log_is_read_in_pages() -> None:
    log = Log()
    made = feed_of(log)
    following = await follow(made)
    for _ in range(3 * feed.PAGES):
        log.add(acme=1)
    reads = 1
    while await made.read():
        reads += 1
    assert reads >= 3
    assert len(await following.take()) == 3 * feed.PAGES


async def test_a_closed_feed_ends_its_followers() -> None:
    made = feed_of(Log())
    following = await follow(made)
    following.woken = 0
    made.close()
    assert following.woken == 1
    assert following.follower.is_over
