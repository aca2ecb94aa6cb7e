"""The audit is bounded: its oldest links are exported and removed, and the rest is verified from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.store.conftest import MakeStore, Raw
from contract.store.test_audit import chain_of_four, entries
from duetime.audit_files import AuditFolder, files_of, verify_files
from duetime.domain import commands as c
from duetime.domain.audit import BEFORE_ALL, FIRST_LINK
from duetime.domain.errors import Conflict
from duetime.domain.instants import DAY, HOUR, SECOND
from duetime.engine.audit_retention import AuditRetention
from duetime.ports.store import AuditPage, Store
from duetime.store.postgres import PostgresStore
from samples import NOW, entry_of, new_key, one, verified

KEPT = 100 * DAY


async def pages_of(store: Store) -> list[AuditPage]:
    return await store.list_audit_pages(BEFORE_ALL, 1000)


async def cut(store: Store, link: int) -> AuditPage:
    """Prunes the only chain up to this link."""
    (page,) = [page for page in await pages_of(store) if page.link == link]
    assert await one(store, c.PruneAudit(NOW + DAY, page.chain, link, page.hash)) == 2 * link
    return page


async def add_entry(store: Store, name: str, at: int = NOW) -> None:
    assert await one(store, c.AddKey(at, new_key(name), entry_of("key.create", name, at))) is None


def in_one_chain(store: Store) -> None:
    if isinstance(store, PostgresStore):
        for connection in store._writer._connections:
            connection._slot = 5


# Up to a checkpoint


async def test_the_remaining_links_are_verified_from_the_checkpoint(store: Store):
    await chain_of_four(store)
    before = await verified(store)
    page = await cut(store, 2)
    assert [found.link for found in await pages_of(store)] == [3, 4]
    assert len(await entries(store)) == 4
    (checkpoint,) = await store.list_audit_checkpoints()
    assert (checkpoint.chain, checkpoint.link, checkpoint.hash) == (page.chain, 2, page.hash)
    assert checkpoint.at == NOW + DAY
    after = await verified(store, before.heads)
    assert (after.broken, after.entries, after.heads) == (None, 4, before.heads)


async def test_a_chain_that_was_pruned_as_a_whole_continues_from_its_checkpoint(make_store: MakeStore):
    store = make_store()
    await store.start()
    await chain_of_four(store)
    heads = (await verified(store)).heads
    await cut(store, 4)
    assert await pages_of(store) == []
    assert (await verified(store, heads)).broken is None
    await store.stop()
    store = make_store()  # without cached state
    await store.start()
    in_one_chain(store)
    await add_entry(store, "next")
    (page,) = await pages_of(store)
    assert page.link == 5
    assert (await verified(store, heads)).broken is None
    await store.stop()


async def test_pruning_up_to_the_same_link_again_changes_nothing(store: Store):
    await chain_of_four(store)
    first, second = (await pages_of(store))[:2]
    await cut(store, 2)
    for page in (first, second):
        assert await one(store, c.PruneAudit(NOW + 2 * DAY, page.chain, page.link, page.hash)) == 0
    (checkpoint,) = await store.list_audit_checkpoints()
    assert (checkpoint.link, checkpoint.at) == (2, NOW + DAY)


async def test_a_chain_can_be_pruned_only_up_to_an_existing_link_with_that_hash(store: Store):
    await chain_of_four(store)
    page = (await pages_of(store))[1]
    for chain, link, hash_hex in (
        (page.chain, 2, FIRST_LINK.hex()),
        (page.chain, 9, page.hash),
        (page.chain + 1, 2, page.hash),
    ):
        assert isinstance(await one(store, c.PruneAudit(NOW, chain, link, hash_hex)), Conflict)
    assert len(await pages_of(store)) == 4
    assert await store.list_audit_checkpoints() == []


CUTS = {
    "a cut beyond the checkpoint": [
        "DELETE FROM audit_links WHERE link = 3",
        "DELETE FROM audit WHERE resource LIKE 'key-3-%'",
    ],
    "no checkpoint": ["DELETE FROM audit_checkpoints"],
    "a checkpoint that was moved on": ["UPDATE audit_checkpoints SET link = 3"],
    "a checkpoint of another hash": [
        "UPDATE audit_checkpoints SET hash = (SELECT hash FROM audit_links WHERE link = 4)"
    ],
}


@pytest.mark.parametrize("harm", CUTS)
async def test_a_cut_without_a_checkpoint_is_detected(store: Store, raw: Raw, harm: str):
    await chain_of_four(store)
    await cut(store, 2)
    for sql in CUTS[harm]:
        await raw(sql)
    assert (await verified(store)).broken is not None


async def test_a_checkpoint_that_contradicts_earlier_heads_is_detected(store: Store):
    """A database is compared in this way with the files of its exported chains."""
    await chain_of_four(store)
    page = await cut(store, 2)
    assert (await verified(store, {page.chain: (2, page.hash)})).broken is None
    found = await verified(store, {page.chain: (2, FIRST_LINK.hex())})
    assert "link 2: its hash was another one before" in str(found.broken)


# By age, and exported first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the exports."""
    made = tmp_path / "exports"
    made.mkdir()
    (made / "in the way").touch()
    return made


def retention(store: Store, folder: Path) -> AuditRetention:
    return AuditRetention(store, AuditFolder(folder), KEPT / SECOND)


async def prune_all(pruning: AuditRetention, now: int) -> None:
    while await pruning.prune(now):
        continue


async def test_links_beyond_the_age_are_exported_and_removed_and_younger_ones_stay(store: Store, folder: Path):
    for day in range(20):
        await add_entry(store, f"key-{day}", NOW + day * DAY)
    heads = (await verified(store)).heads
    now = NOW + KEPT + 12 * DAY + HOUR
    await prune_all(retention(store, folder), now)
    kept = [int(found.resource.removeprefix("key-")) for found in await entries(store)]
    chains = {page.chain for page in await pages_of(store)}
    assert set(kept) >= set(range(13, 20))
    if len(chains) == 1:  # several chains of few entries: one that begins late enough is not pruned yet
        assert kept == list(range(13, 20))
    assert (await verified(store, heads)).broken is None
    exported = verify_files(files_of(folder))
    assert (exported.broken, exported.entries + len(kept)) == (None, 20)
    found = {it.chain: (it.link, it.hash) for it in await store.list_audit_checkpoints()}
    assert exported.heads == found, "the files end where the database goes on"


async def test_a_chain_is_not_pruned_until_its_oldest_link_exceeds_the_age_by_a_week(store: Store, folder: Path):
    in_one_chain(store)
    for day in range(9):
        await add_entry(store, f"key-{day}", NOW + day * DAY)
    await prune_all(retention(store, folder), NOW + KEPT + 7 * DAY)
    assert len(await entries(store)) == 9
    assert files_of(folder) == []
    await prune_all(retention(store, folder), NOW + KEPT + 7 * DAY + 1)
    assert len(await entries(store)) == 1
    assert len(files_of(folder)) == 1


async def test_a_long_chain_is_pruned_page_by_page_into_consecutive_files(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("duetime.engine.audit_retention.LINKS", 4)
    in_one_chain(store)
    for n in range(11):
        await add_entry(store, f"key-{n}", NOW + n * DAY)
    pruning = retention(store, folder)
    left = []
    while await pruning.prune(NOW + KEPT + 10 * DAY):
        left.append(len(await entries(store)))
    assert sorted(set(left), reverse=True) == [11, 7, 3, 1]
    exported = verify_files(files_of(folder))
    assert (exported.broken, exported.entries, len(files_of(folder))) == (None, 10, 3)


async def test_links_that_could_not_be_exported_are_not_removed(store: Store, folder: Path):
    await chain_of_four(store)
    with pytest.raises(OSError, match="in the way"):
        await prune_all(retention(store, folder / "in the way"), NOW + 2 * KEPT)
    assert len(await entries(store)) == 8
    assert await store.list_audit_checkpoints() == []


async def test_a_chain_that_was_altered_is_neither_exported_nor_removed(store: Store, raw: Raw, folder: Path):
    """An operator will want to inspect these entries."""
    await chain_of_four(store)
    await raw("UPDATE audit SET entry = replace(entry, '\"ann\"', '\"bob\"') WHERE resource = 'key-2-0'")
    await prune_all(retention(store, folder), NOW + 2 * KEPT)
    assert len(await entries(store)) == 8
    assert files_of(folder) == []


async def test_an_export_without_its_prune_is_repeated(store: Store, folder: Path):
    await chain_of_four(store)
    for link in (2, 4):
        pages = [page for page in await pages_of(store) if page.link <= link]
        lines = [b"{}"] * len(pages)
        await AuditFolder(folder).save(pages[0].chain, 1, link, lines)
    await prune_all(retention(store, folder), NOW + 2 * KEPT)
    (path,) = [path for path in files_of(folder) if path.name.endswith("-000000000004.jsonl")]
    exported = verify_files([path])
    assert (exported.broken, exported.entries) == (None, 8)
