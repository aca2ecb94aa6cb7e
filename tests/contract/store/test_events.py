"""The log of events: pages become visible in order, once each, and the oldest are removed by age and by size."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from contract.store.conftest import MakeStore, Raw
from duetime.domain import commands as c
from duetime.domain.event_log import EventPages, EventRow, StoredEvent
from duetime.ports.store import Store
from samples import NOW, one

A, B = "acme", "beta"


def row(tenant: str, *names: str) -> EventRow:
    text = "[" + ",".join(f'["job.created",{NOW},{{"name":"{name}"}},"ann"]' for name in names) + "]"
    return EventRow(tenant, len(text), text)


def event(name: str) -> StoredEvent:
    return StoredEvent("job.created", NOW, {"name": name}, "ann")


def page(sequence: int, *rows: EventRow, now: int = NOW, writer: int = 1) -> c.AddEvents:
    return c.AddEvents(writer, sequence, now, rows)


def shown(pages: EventPages) -> list[tuple[int, str, list[object]]]:
    return [(row.number, row.tenant, [one.data["name"] for one in row.events]) for row in pages.rows]


async def test_a_page_is_read_as_it_was_written(store: Store) -> None:
    assert await one(store, page(1, row(A, "é \\u0000", "2"), row(B, "3"))) == NOW
    found = await store.list_events(0, [A, B], 10)
    assert (found.head, found.pruned) == (NOW, 0)
    assert [(row.number, row.tenant) for row in found.rows] == [(NOW, A), (NOW, B)]
    assert [row.events for row in found.rows] == [[event("é \0"), event("2")], [event("3")]]


async def test_the_log_is_empty_at_first(store: Store) -> None:
    assert await store.list_events(0, [A], 10) == EventPages(0, 0, [])


async def test_numbers_grow_even_if_the_clock_does_not(store: Store) -> None:
    assert [await one(store, page(n, row(A, "x"), now=NOW - n)) for n in (1, 2, 3)] == [NOW - 1, NOW, NOW + 1]
    assert await one(store, page(4, row(A, "x"), now=NOW + 500)) == NOW + 500


async def test_a_read_lists_only_the_wanted_tenants_and_whole_pages(store: Store) -> None:
    for number in range(1, 4):
        await one(store, page(number, row(A, f"a{number}"), row(B, f"b{number}"), row("other", "x"), now=NOW + number))
    assert shown(await store.list_events(0, [A, B], 2)) == [
        (NOW + 1, A, ["a1"]), (NOW + 1, B, ["b1"]), (NOW + 2, A, ["a2"]), (NOW + 2, B, ["b2"]),
    ]  # fmt: skip
    assert shown(await store.list_events(NOW + 1, [A], 10, tenant=A)) == [(NOW + 2, A, ["a2"]), (NOW + 3, A, ["a3"])]
    assert (await store.list_events(NOW + 3, [A], 10)).head == NOW + 3


async def test_a_repeated_page_is_added_once(store: Store) -> None:
    first = page(1, row(A, "x"))
    assert [await one(store, first) for _ in range(2)] == [NOW, None]
    assert await store.apply([first, page(2, row(A, "y"))]) == [None, NOW + 1]  # beside others, too
    assert await one(store, page(1, row(A, "z"), writer=2)) == NOW + 2
    assert [names for _, _, names in shown(await store.list_events(0, [A], 10))] == [["x"], ["y"], ["z"]]


async def test_a_page_that_is_repeated_while_it_is_being_written_is_added_once(
    store: Store, several_connections: None
) -> None:
    answers = await asyncio.gather(*(one(store, page(1, row(A, "x"))) for _ in range(8)))
    assert sorted(answers, key=str) == [NOW, *[None] * 7]
    assert len((await store.list_events(0, [A], 10)).rows) == 1


async def test_whoever_has_seen_a_number_finds_no_smaller_one_later(
    make_store: MakeStore, backend: str, several_connections: None
) -> None:
    """Eight writers append at once, half of them inside the group commit; a reader never has to look back."""
    stores = [make_store() for _ in range(3 if backend == "postgres" else 1)]
    for store in stores:
        await store.start()
    is_over = False

    async def write(writer: int) -> None:
        store = stores[writer % len(stores)]
        for sequence in range(1, 26):
            command = page(sequence, row(A, f"{writer}-{sequence}"), writer=writer)
            beside = [] if writer % 2 else [c.StartNode(NOW, f"node-{writer}")]
            await store.apply([command, *beside])

    async def read(store: Store) -> list[tuple[int, str, list[object]]]:
        seen: list[tuple[int, str, list[object]]] = []
        while True:
            was_over = is_over
            seen += shown(await store.list_events(seen[-1][0] if seen else 0, [A], 3))
            if was_over and len(seen) == 200:
                return seen

    readers = [asyncio.create_task(read(store)) for store in stores]
    async with asyncio.timeout(60):
        await asyncio.gather(*(write(writer) for writer in range(8)))
        is_over = True
        found = await asyncio.gather(*readers)
    for store in stores:
        await store.stop()
    for seen in found:
        assert all(before < after for (before, *_), (after, *_) in pairwise(seen))
        for writer in range(8):  # each node's pages are in their order
            own = [name for _, _, (name,) in seen if str(name).startswith(f"{writer}-")]
            assert own == [f"{writer}-{sequence}" for sequence in range(1, 26)]
    assert found[0] == found[-1]


async def test_old_pages_are_pruned_and_the_log_says_up_to_where(store: Store) -> None:
    for number in range(1, 6):
        await one(store, page(number, row(A, "a"), row(B, "b"), now=NOW + number))
    assert await one(store, c.PruneEvents(NOW + 3, 10**9, 3)) == 3
    found = await store.list_events(0, [A, B], 10)
    assert (found.pruned, len(found.rows)) == (NOW + 2, 7), "a page of which a part was removed is not whole"
    assert await one(store, c.PruneEvents(NOW + 3, 10**9, 3)) == 1
    assert await one(store, c.PruneEvents(NOW + 3, 10**9, 3)) == 0
    found = await store.list_events(0, [A], 10)
    assert (found.pruned, found.head, [row.number for row in found.rows]) == (
        NOW + 2,
        NOW + 5,
        [NOW + 3, NOW + 4, NOW + 5],
    )


async def test_the_oldest_pages_are_pruned_if_all_are_too_large(store: Store) -> None:
    size = row(A, "x").size
    for number in range(1, 11):
        await one(store, page(number, row(A, "x"), now=NOW + number))
    assert await one(store, c.PruneEvents(0, 3 * size, 100)) == 7
    found = await store.list_events(0, [A], 10)
    assert (found.pruned, [row.number for row in found.rows]) == (NOW + 7, [NOW + 8, NOW + 9, NOW + 10])


async def test_writers_that_are_gone_are_forgotten(store: Store, raw: Raw) -> None:
    await one(store, page(1, row(A, "x"), now=NOW, writer=1))
    await one(store, page(1, row(A, "x"), now=NOW + 10, writer=2))
    await one(store, c.PruneEvents(NOW + 5, 10**9, 100))
    assert await raw("SELECT writer FROM event_writers") == [(2,)]


@pytest.mark.parametrize("backend", ["postgres"])
async def test_a_page_that_comes_alone_is_not_part_of_a_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that stands still in a group commit would keep the lock on the head, and all other nodes would wait."""

    async def stuck(*_: object, **__: object) -> list[object]:
        raise AssertionError("it was given to the group commit")

    monkeypatch.setattr(store._writer, "submit", stuck)  # type: ignore[attr-defined]
    assert await one(store, page(1, row(A, "x"))) == NOW
