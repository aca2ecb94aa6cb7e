"""An offline rotation while a node runs: both write, neither blocks the other, and no definition is lost."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from duetime.domain import commands as c
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import encrypt_job, key_id_of, list_values
from duetime.operate.rotate import FIRST_ID, rotate_file
from duetime.store import StoreUnusable
from duetime.store.sqlite import SqliteStore
from duetime.store.sqlite.connection import migrate_folder, open_connection
from duetime.store.sqlite.handover import set_mark
from duetime.store.sqlite.offline import OfflineSqlite
from duetime.vault.aes import AesVault
from duetime.vault.key_file import KeyFile
from samples import NOW, TENANT, URL, new_job, one, spec


def secret_job(vault: AesVault) -> c.NewJob:
    return encrypt_job(new_job(spec(payload=HttpRequest(URL, headers={"A": "s3cret"}))), vault)


async def test_all_secrets_are_encrypted_again_while_a_node_runs_and_writes(tmp_path: Path):
    store, offline = SqliteStore(tmp_path), OfflineSqlite(tmp_path)
    node = AesVault(file=KeyFile(tmp_path))
    node.start()
    await store.start()
    try:
        jobs = [secret_job(node) for _ in range(450)]
        assert await one(store, c.CreateJobs(NOW, tuple(jobs))) is None
        running = await one(store, c.StartNode(NOW, "node-1"))
        await offline.start()
        stop = asyncio.Event()

        async def write() -> int:
            made = 0
            while not stop.is_set():
                assert await one(store, c.CreateJobs(NOW, (secret_job(node),))) is None
                made += 1
            return made

        writing = asyncio.create_task(write())
        done = await rotate_file(offline, KeyFile(tmp_path), lambda seen: None)
        stop.set()
        made = await writing
        assert made > 0
        specs = await store.list_specs(FIRST_ID, 10_000)
        assert len(specs) == 450 + made
        assert {key_id_of(text) for *_, spec in specs for text in list_values(spec.payload)} <= {
            done.key_id, *done.kept
        }  # fmt: skip
        assert {node.decrypt(tenant, id, spec.payload.headers["A"]) for id, tenant, _, spec in specs} == {"s3cret"}
        assert {version for _, _, version, _ in specs} == {1}
        assert await one(store, c.ClaimExecutions(running, NOW, 1, (TENANT,))) == []  # the node was not fenced
        kept = await store.get_job(jobs[0].tenant, jobs[0].job_id)
        assert kept is not None
        assert key_id_of(kept.spec.payload.headers["A"]) == done.key_id
    finally:
        await offline.stop()
        await store.stop()


async def test_a_job_that_was_changed_since_it_was_read_is_not_replaced(tmp_path: Path):
    store, offline = SqliteStore(tmp_path), OfflineSqlite(tmp_path)
    await store.start()
    job = new_job()
    await one(store, c.CreateJobs(NOW, (job,)))
    await offline.start()
    try:
        other = spec(description="other")
        assert await offline.apply([c.Reencrypt(((job.job_id, 2, other),))]) == [0]
        assert await offline.apply([c.Reencrypt(((job.job_id, 1, other),))]) == [1]
        ((_, _, version, found),) = await store.list_specs(FIRST_ID, 10)
        assert (version, found) == (1, other)
    finally:
        await offline.stop()
        await store.stop()


async def test_a_folder_without_a_database_is_refused_and_none_is_created(tmp_path: Path):
    offline = OfflineSqlite(tmp_path)
    with pytest.raises(StoreUnusable, match=r"holds no duetime\.db"):
        await offline.start()
    await offline.stop()
    assert os.listdir(tmp_path) == []


async def test_a_database_of_another_version_is_refused(tmp_path: Path):
    open_connection(tmp_path, writer=True).close()
    (tmp_path / "duetime.db").touch()
    offline = OfflineSqlite(tmp_path)
    with pytest.raises(StoreUnusable, match="bring it up to date with `duetime migrate`"):
        await offline.start()
    await offline.stop()


async def test_a_folder_whose_jobs_are_elsewhere_is_refused(tmp_path: Path):
    migrate_folder(tmp_path)
    connection = open_connection(tmp_path, writer=True)
    set_mark(connection, "host/duetime", NOW)
    connection.close()
    offline = OfflineSqlite(tmp_path)
    with pytest.raises(StoreUnusable, match="on its way to the database duetime on host"):
        await offline.start()
    await offline.stop()
