"""Reads of changed circuits since the last read: by an index, with a bounded number for each tenant."""

from __future__ import annotations

import pytest

from contract.store.conftest import Raw
from contract.store.test_circuits import FAILURE, NUMBER, claimed, end_claim, fail, opened, probe
from duetime.domain import breaker
from duetime.domain import commands as c
from duetime.domain.breaker import Circuit, circuit_of
from duetime.domain.execution import Outcome
from duetime.domain.instants import DAY, MINUTE
from duetime.ports.store import Store
from duetime.store.postgres import PostgresStore
from duetime.store.sqlite import SqliteStore
from samples import NOW, TENANT, URL, new_id, one

MANY = 20_000  # so many that a planner does not prefer to read them all


async def latest_mark(store: Store) -> int:
    """Returns a mark after which nothing has changed; other transactions of the server may delay it for a moment."""
    mark = (await store.list_changed_circuits(None, 100)).mark
    while (changes := await store.list_changed_circuits(mark, 100)).circuits:
        mark = changes.mark
    return mark


async def changed(store: Store, mark: int) -> list[Circuit]:
    return (await store.list_changed_circuits(mark, 100)).circuits


async def fail_at(store: Store, node: int, url: str, *, tenant: str = TENANT, now: int = NOW) -> None:
    await end_claim(store, node, await claimed(store, node, tenant, url, now), FAILURE, now=now)


async def test_a_read_without_a_mark_returns_all_failing_circuits(store: Store, node: int):
    await fail(store, node, 3)
    await fail_at(store, node, "https://a.example/", tenant="other")
    found = (await store.list_changed_circuits(None, 10)).circuits
    assert found == await store.list_circuits(None, 10)
    assert len(found) == 2
    assert (await store.list_changed_circuits(None, 1)).circuits == [opened()], "the open ones first"


async def test_a_read_from_a_mark_returns_only_changed_circuits(store: Store, node: int):
    for n in range(5):
        await fail_at(store, node, f"https://{n}.example/")
    mark = await latest_mark(store)
    assert await changed(store, mark) == []
    await fail(store, node)
    assert await changed(store, mark) == [Circuit(NUMBER, TENANT, URL, 1)]
    mark = await latest_mark(store)
    await fail(store, node, 2)
    assert await changed(store, mark) == [opened()]


async def test_a_probe_is_a_change(store: Store, node: int):
    await fail(store, node, 3)
    mark = await latest_mark(store)
    asking = new_id()
    taken = await one(store, probe(asking, NOW + MINUTE))
    assert await changed(store, mark) == [taken]
    mark = await latest_mark(store)
    await one(store, probe(new_id(), NOW + MINUTE))
    assert await changed(store, mark) == [], "one that was not taken is none"


@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_closed_circuit_is_read_once_without_failures(store: Store, node: int, by_hand: bool):
    await fail(store, node, 3)
    mark = await latest_mark(store)
    if by_hand:
        await one(store, c.CloseCircuit(NOW, TENANT, NUMBER))
    else:
        await end_claim(store, node, await claimed(store, node), Outcome(http_status=200))
    assert await changed(store, mark) == [Circuit(NUMBER, TENANT, URL)]
    assert await store.list_circuits(TENANT, 10) == []
    assert await store.get_circuit(NUMBER) is None
    assert await changed(store, await latest_mark(store)) == []


async def test_a_closed_circuit_takes_no_probe_and_can_not_be_closed_again(store: Store, node: int):
    await fail(store, node, 3)
    await one(store, c.CloseCircuit(NOW, TENANT, NUMBER))
    assert await one(store, probe(new_id(), NOW + MINUTE)) is None
    assert isinstance(await one(store, c.CloseCircuit(NOW, TENANT, NUMBER)), Exception)
    assert await fail(store, node, 1) == Circuit(NUMBER, TENANT, URL, 1), "it counts from the start"


async def test_the_row_of_a_closed_circuit_is_pruned(store: Store, node: int, raw: Raw):
    await fail(store, node)
    await one(store, c.CloseCircuit(NOW, TENANT, NUMBER))
    await one(store, c.Prune(0, 0, 0, 10, NOW))
    assert await raw("SELECT count(*) FROM circuits") == [(1,)]
    await one(store, c.Prune(0, 0, 0, 10, NOW + DAY))
    assert await raw("SELECT count(*) FROM circuits") == [(0,)]


# How much is read


async def fill(raw: Raw, tenants: int = 4) -> None:
    """Circuits that have failed, one in six of which is open."""
    await raw(
        f"WITH RECURSIVE n (g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < {MANY}) "
        "INSERT INTO circuits (id, tenant, url, failures, opened_at, next_probe_at, touched_at) "
        f"SELECT g, 't' || (g % {tenants}), 'https://hook.example/' || g, 1 + g % 6, "
        f"CASE WHEN g % 6 = 5 THEN {NOW} END, CASE WHEN g % 6 = 5 THEN {NOW} END, {NOW} + g FROM n"
    )
    await raw("ANALYZE circuits")


async def plan_of(store: Store, raw: Raw, block: str, values: dict[str, object]) -> str:
    """Returns the plan of a read."""
    assert isinstance(store, PostgresStore | SqliteStore)
    sql = store._sql[block]
    text = sql if isinstance(sql, str) else sql.sql
    names = [f":{name}" for name in values] if isinstance(sql, str) else [f"${n + 1}" for n in range(len(sql.names))]
    ordered = list(values.values()) if isinstance(sql, str) else [values[name] for name in sql.names]
    for name, value in zip(names, ordered, strict=True):
        text = text.replace(name, repr(value))
    explain = "EXPLAIN QUERY PLAN " if isinstance(sql, str) else "EXPLAIN "
    return "\n".join(str(row[-1]) for row in await raw(explain + text.rstrip(";\n ")))


@pytest.mark.parametrize(
    ("block", "values", "index"),
    [
        ("list_changed_circuits", {"since": 2**40, "limit": 10_000}, "circuits_changed"),
        ("load_circuits", {"limit": 100}, "circuits_latest"),
        ("list_circuits", {"limit": 100}, "circuits_latest"),
    ],
)
async def test_changed_circuits_are_found_by_an_index_and_not_sorted(
    store: Store, raw: Raw, block: str, values: dict[str, object], index: str
):
    await fill(raw, tenants=200)
    plan = await plan_of(store, raw, block, values)
    assert index in plan, plan
    for word in ("Seq Scan", "Sort", "SCAN circuits\n", "TEMP B-TREE"):
        assert word not in plan, plan


async def test_the_circuits_of_a_tenant_are_found_without_reading_those_of_others(store: Store, raw: Raw):
    await fill(raw, tenants=200)
    plan = await plan_of(store, raw, "list_circuits_of", {"tenant": "t1", "limit": 100})
    assert "circuits_of" in plan, plan


async def test_only_the_changed_one_of_many_circuits_is_read(store: Store, node: int, raw: Raw):
    await fill(raw)
    mark = (await store.list_changed_circuits(None, 10)).mark
    while (changes := await store.list_changed_circuits(mark, MANY + 1)).circuits:
        mark = changes.mark
    await fail(store, node)
    assert await changed(store, mark) == [Circuit(NUMBER, TENANT, URL, 1)]


# The limit of a tenant


def number_at(n: int) -> int:
    return circuit_of(TENANT, f"https://{n}.example/")


async def test_the_oldest_closed_circuit_is_removed_beyond_the_limit_of_a_tenant(
    store: Store, node: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(breaker, "MOST_OF_TENANT", 3)
    await fail(store, node, 3)  # it is open
    await fail_at(store, node, "https://theirs.example/", tenant="other")
    for n in range(2):
        await fail_at(store, node, f"https://{n}.example/", now=NOW + 1 + n)
    assert len(await store.list_circuits(TENANT, 10)) == 3
    answer = await end_claim(store, node, await claimed(store, node, url="https://2.example/"), now=NOW + 3)
    assert dict(answer) == {
        number_at(2): Circuit(number_at(2), TENANT, "https://2.example/", 1),
        number_at(0): None,
    }, "whoever wrote it is told what was forgotten for it"
    assert [circuit.url for circuit in await store.list_circuits(TENANT, 10)] == [
        URL, "https://2.example/", "https://1.example/",
    ]  # fmt: skip
    assert len(await store.list_circuits("other", 10)) == 1


async def test_a_closed_circuit_counts_towards_the_limit_and_is_removed_first(
    store: Store, node: int, raw: Raw, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(breaker, "MOST_OF_TENANT", 2)
    await fail(store, node)
    await one(store, c.CloseCircuit(NOW, TENANT, NUMBER))
    for n in range(2):
        await fail_at(store, node, f"https://{n}.example/", now=NOW + 1 + n)
    assert len(await store.list_circuits(TENANT, 10)) == 2
    assert await raw("SELECT count(*) FROM circuits") == [(2,)]


async def test_new_failures_do_not_evict_open_circuits(store: Store, node: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(breaker, "MOST_OF_TENANT", 1)
    await fail(store, node, 3)
    await fail_at(store, node, "https://0.example/", now=NOW + 9)
    assert await store.list_circuits(TENANT, 10) == [opened()]


async def test_circuits_stored_before_the_limit_existed_are_removed_a_page_at_a_time(store: Store, node: int, raw: Raw):
    await fill(raw, tenants=1)
    await raw(f"UPDATE circuits SET tenant = '{TENANT}'")
    answer = await end_claim(store, node, await claimed(store, node), now=NOW + DAY)
    assert sum(circuit is None for _, circuit in answer) == breaker.MOST_FORGOTTEN
    assert await raw("SELECT count(*) FROM circuits") == [(MANY + 1 - breaker.MOST_FORGOTTEN,)]
    assert await store.get_circuit(NUMBER) is not None
