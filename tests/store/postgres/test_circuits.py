"""Circuits that several transactions change at once: a reader misses no change."""

from __future__ import annotations

import asyncpg

from contract.store.test_circuits import NUMBER, fail
from duetime.domain.breaker import Circuit
from duetime.store.postgres import PostgresStore
from samples import TENANT, URL


async def test_a_change_that_is_committed_after_a_later_one_is_read(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    """The mark is taken while the first is under way, and after the second was committed."""
    await fail(store, node)
    await session.execute("BEGIN")
    await session.execute("UPDATE circuits SET failures = 2, changed_in = pg_current_xact_id()")
    await fail(store, node, tenant="other")
    mark = (await store.list_changed_circuits(None, 100)).mark
    await session.execute("COMMIT")
    assert Circuit(NUMBER, TENANT, URL, 2) in (await store.list_changed_circuits(mark, 100)).circuits
