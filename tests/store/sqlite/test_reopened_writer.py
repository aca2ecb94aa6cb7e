"""A writer whose connection broke opens another: the process and its node continue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from duetime.domain.commands import CreateJobs, StartNode
from duetime.domain.errors import Overloaded
from duetime.store.sqlite import SqliteStore
from samples import NOW, TENANT, add_execution, add_job, claim_waiting, job_of, new_job, one, spec


class Broken:
    """A connection that can no longer commit or roll back."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str) -> object:
        if sql in ("COMMIT", "ROLLBACK"):
            raise apsw.IOError("disk I/O error")
        return self._connection.execute(sql)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def break_writer(store: SqliteStore) -> str:
    """Returns the job whose write failed."""
    store._writer._connection = Broken(store._writer._connection)  # type: ignore[assignment]
    job = new_job(spec())
    with pytest.raises(Overloaded, match="nothing was changed"):
        await store.apply([CreateJobs(NOW, (job,))])
    return job.job_id


async def test_uncommitted_writes_of_the_broken_connection_are_not_stored(store: SqliteStore):
    kept = await add_job(store, spec())
    lost = await break_writer(store)
    assert await store.get_job(TENANT, lost) is None
    assert (await job_of(store, kept)).job_id == kept


async def test_the_node_continues_and_keeps_its_claims(store: SqliteStore):
    node = await one(store, StartNode(NOW, "node-1"))
    first, second = await add_job(store, spec()), await add_job(store, spec())
    await add_execution(store, first)
    (claim,) = await claim_waiting(store, node, NOW)
    await break_writer(store)
    await add_execution(store, second)
    assert await store.list_expired_claims(node, 10) == []
    assert [claimed.job_id for claimed in await claim_waiting(store, node, NOW)] == [second]
    assert claim.job_id == first
