"""A gathered page is bounded and fair, its counts are right, and positions in the log say what is lost."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain import event_log
from duetime.domain.event_log import (
    BURST_EVENTS,
    EVERY_TENANT,
    LEAST_EVENTS,
    OMITTED,
    PAGE_EVENTS,
    SUSTAINED_EVENTS,
    Allowance,
    Event,
    EventPages,
    EventRow,
    GatheredPage,
    LoggedEvents,
    StoredEvent,
    end_of,
    first_unread,
    id_of,
    is_lost,
    number_of,
    pages_of,
)

NOW = 1_767_225_600_000


def event(tenant: str, number: int = 0, kind: str = "job.created") -> Event:
    return Event(kind, NOW, tenant, {"number": number}, "ann")


def read(row: EventRow) -> list[StoredEvent]:
    return msgspec.json.decode(row.events, type=list[StoredEvent])


def gathered(tenants: list[str], room: int) -> dict[str, list[StoredEvent]]:
    page = GatheredPage()
    page.set_room(room)
    for number, tenant in enumerate(tenants):
        page.add(event(tenant, number))
    return {row.tenant: read(row) for row in page.rows(NOW)}


def test_a_page_holds_each_event_with_its_owner() -> None:
    page = GatheredPage()
    assert not page
    page.add(event("a", 1))
    page.add(event("b", 2))
    page.add(event("a", 3))
    assert page
    rows = page.rows(NOW)
    assert [row.tenant for row in rows] == ["a", "b"]
    assert read(rows[0]) == [StoredEvent("job.created", NOW, {"number": n}, "ann") for n in (1, 3)]
    assert [row.size for row in rows] == [len(row.events.encode()) for row in rows]


def test_what_has_no_room_is_counted_by_kind_and_comes_last() -> None:
    page = GatheredPage()
    page.set_room(2)
    for kind in ("job.created", "job.paused", "job.created", "job.created", "job.purged"):
        page.add(event("a", kind=kind))
    page.count("a", "execution.completed", 7)
    (row,) = page.rows(NOW + 1)
    *kept, omitted = read(row)
    assert [one.kind for one in kept] == ["job.created", "job.paused"]
    kinds = {"job.created": 2, "job.purged": 1, "execution.completed": 7}
    assert omitted == StoredEvent(OMITTED, NOW + 1, {"count": 10, "kinds": kinds}, None)


def test_a_flood_of_one_tenant_takes_no_event_of_another() -> None:
    found = gathered(["loud"] * 100 + ["quiet"] * 3 + ["loud"] * 100, room=10)
    assert [one.data for one in found["quiet"]] == [{"number": n} for n in (100, 101, 102)]
    *kept, omitted = found["loud"]
    assert [one.data["number"] for one in kept] == list(range(7))
    assert omitted.data["count"] == 193


@given(st.lists(st.sampled_from("abcde"), max_size=60), st.integers(1, 20))
def test_each_event_is_kept_or_counted(tenants: list[str], room: int) -> None:
    found = gathered(tenants, room)
    kept = {tenant: [one for one in events if one.kind != OMITTED] for tenant, events in found.items()}
    counted = {
        tenant: sum(one.data["count"] for one in events if one.kind == OMITTED) for tenant, events in found.items()
    }  # type: ignore[misc]
    assert {tenant: len(kept[tenant]) + counted[tenant] for tenant in found} == Counter(tenants)
    assert sum(map(len, kept.values())) <= room
    for tenant, events in kept.items():  # those that are kept are the first
        assert [one.data["number"] for one in events] == [n for n, one in enumerate(tenants) if one == tenant][
            : len(events)
        ]
    share = room // max(1, len(found))
    assert all(len(kept[tenant]) >= min(share, number) for tenant, number in Counter(tenants).items())


def test_the_number_of_tenants_whose_events_are_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MOST_COUNTED_TENANTS", 3)
    found = gathered([str(number) for number in range(10)], room=2)
    assert sorted(found) == ["", "0", "1", "2", "3", "4"]
    assert found[EVERY_TENANT] == []


def test_an_id_has_a_page_and_a_place() -> None:
    assert PAGE_EVENTS + 1 < event_log.PLACES
    assert end_of(NOW) < 2**53, "a number in JavaScript"
    assert number_of(id_of(NOW, 5)) == number_of(end_of(NOW)) == NOW
    assert (first_unread(id_of(NOW, 5)), first_unread(end_of(NOW))) == (NOW, NOW + 1)


@pytest.mark.parametrize(
    ("position", "lost"),
    [
        (0, False),
        (42, True),  # of an earlier version
        (end_of(NOW), False),
        (end_of(NOW - 1), True),
        (id_of(NOW, 0), True),  # the rest of that page may be gone
        (end_of(NOW + 9), False),
        (end_of(NOW + 10), True),  # later than the last page
    ],
)
def test_a_position_before_what_is_kept_or_after_the_last_page_is_lost(position: int, lost: bool) -> None:
    # Pages up to NOW were pruned; the last one is NOW + 9.
    assert is_lost(position, EventPages(NOW + 9, NOW, [])) is lost


def test_an_idle_log_loses_no_position() -> None:
    assert not is_lost(end_of(NOW), EventPages(NOW, NOW, []))
    assert not is_lost(end_of(0) * 0, EventPages(0, 0, []))


def test_pages_of_a_tenant_have_ids_and_a_gap_where_all_tenants_have_one() -> None:
    stored = [StoredEvent("x", NOW, {}, None), StoredEvent("y", NOW, {}, None)]
    rows = [
        LoggedEvents(7, "", []),
        LoggedEvents(7, "a", stored),
        LoggedEvents(9, "", []),
        LoggedEvents(8, "a", stored),
    ]
    found = [
        (number, [None if one is None else (one.kind, one.id) for one in events]) for number, events in pages_of(rows)
    ]
    assert found == [
        (7, [("x", id_of(7, 0)), ("y", id_of(7, 1)), None]),
        (8, [("x", id_of(8, 0)), ("y", id_of(8, 1))]),
        (9, [None]),
    ]


def test_a_node_may_write_a_burst_and_then_a_steady_number() -> None:
    allowance = Allowance(0.0)
    pages = 0
    while (room := allowance.room(0.0)) == PAGE_EVENTS:
        allowance.take(room)
        pages += 1
    assert pages == BURST_EVENTS // PAGE_EVENTS
    assert room == LEAST_EVENTS
    assert allowance.room(1.0) == SUSTAINED_EVENTS
    assert allowance.room(10_000.0) == PAGE_EVENTS
    assert allowance.room(9_000.0) == PAGE_EVENTS  # a clock that goes back takes nothing
