"""API keys, and definitions that are encrypted again."""

from __future__ import annotations

import msgspec
import pytest

from contract.store.conftest import MakeStore, Raw
from duetime.domain import commands as c
from duetime.domain.capacity import JOB_OVERHEAD_BYTES, Capacity, Load
from duetime.domain.errors import Conflict, NotFound
from duetime.domain.identity import Role, Tier
from duetime.domain.job import JobSpec
from duetime.ports.store import KeyRecord, Store
from samples import NOW, TENANT, add_job, change_of, job_of, new_id, new_job, new_key, one, spec

FIRST_ID = "00000000-0000-0000-0000-000000000000"


async def key(store: Store, key_id: str = "key-1") -> KeyRecord:
    found = await store.get_key(key_id)
    assert found is not None
    return found


async def test_a_key_is_read_as_it_was_created(store: Store):
    made = new_key(
        name='the "ü" \\ key', user_id="bob", role=Role.ADMIN, tier=Tier.PRO, scopes=("read", "sql"), expires_at=NOW + 5
    )
    assert await one(store, c.AddKey(NOW, made)) is None
    expected = KeyRecord(
        "key-1",
        TENANT,
        "bob",
        made.name,
        Role.ADMIN,
        Tier.PRO,
        ("read", "sql"),
        "00ff",
        NOW,
        "ann",
        NOW + 5,
        None,
        None,
    )
    assert await key(store) == expected
    assert await store.list_keys(TENANT, 10) == [expected]


async def test_a_key_may_have_no_scopes_and_no_expiry(store: Store):
    await one(store, c.AddKey(NOW, new_key(scopes=())))
    found = await key(store)
    assert (found.scopes, found.expires_at) == ((), None)


async def test_an_unknown_key_returns_none(store: Store):
    assert await store.get_key("key-1") is None
    assert await store.list_keys(TENANT, 10) == []


async def test_a_key_id_is_unique_across_tenants(store: Store):
    await one(store, c.AddKey(NOW, new_key()))
    before = await key(store)
    assert isinstance(await one(store, c.AddKey(NOW + 1, new_key(tenant="other", name="mine"))), Conflict)
    assert await key(store) == before
    assert await store.list_keys("other", 10) == []


async def test_keys_are_listed_latest_first_and_of_one_tenant(store: Store):
    for n in range(6):
        await one(store, c.AddKey(NOW + n // 2, new_key(f"key-{n}", "other" if n == 3 else TENANT)))
    assert [found.key_id for found in await store.list_keys(TENANT, 10)] == [
        "key-5",
        "key-4",
        "key-2",
        "key-1",
        "key-0",
    ]
    assert [found.key_id for found in await store.list_keys(TENANT, 2)] == ["key-5", "key-4"]
    assert [found.key_id for found in await store.list_keys("other", 10)] == ["key-3"]


async def test_a_key_is_revoked_once_and_only_by_its_tenant(store: Store):
    await one(store, c.AddKey(NOW, new_key()))
    await one(store, c.AddKey(NOW, new_key("key-2")))
    assert isinstance(await one(store, c.RevokeKey(NOW, "other", "key-1")), NotFound)
    assert isinstance(await one(store, c.RevokeKey(NOW, TENANT, "key-9")), NotFound)
    assert (await key(store)).revoked_at is None
    assert await one(store, c.RevokeKey(NOW + 1, TENANT, "key-1")) is None
    assert await one(store, c.RevokeKey(NOW + 2, TENANT, "key-1")) is None
    assert (await key(store)).revoked_at == NOW + 1
    assert (await key(store, "key-2")).revoked_at is None


async def test_keys_have_the_instant_of_their_last_use(store: Store):
    for n in range(3):
        await one(store, c.AddKey(NOW, new_key(f"key-{n}")))
    assert await one(store, c.TouchKeys(NOW + 5, ("key-0", "key-2", "key-9"))) is None
    assert await one(store, c.TouchKeys(NOW + 7, ("key-2",))) is None
    assert await one(store, c.TouchKeys(NOW + 9, ())) is None
    assert [(await key(store, f"key-{n}")).last_used_at for n in range(3)] == [NOW + 5, None, NOW + 7]


async def test_keys_survive_a_restart(make_store: MakeStore, store: Store):
    await store.apply([c.AddKey(NOW, new_key()), c.RevokeKey(NOW, TENANT, "key-1"), c.TouchKeys(NOW, ("key-1",))])
    before = await key(store)
    await store.stop()
    again = make_store()
    await again.start()
    assert await key(again) == before
    await again.stop()


# Definitions, encrypted again


async def sizes(store: Store) -> Load:
    """Returns the expected load, computed from the definitions."""
    specs = [definition for _, _, _, definition in await store.list_specs(FIRST_ID, 1000)]
    return Load(len(specs), sum(len(msgspec.json.encode(one)) + JOB_OVERHEAD_BYTES for one in specs))


async def test_definitions_of_all_tenants_are_listed_by_id_page_by_page(store: Store):
    made = [(await add_job(store, spec(name=f"{n}"), tenant=["a", "b"][n % 2]), ["a", "b"][n % 2]) for n in range(7)]
    seen: list[tuple[str, str, int, JobSpec]] = []
    after = FIRST_ID
    while page := await store.list_specs(after, 3):
        assert len(page) <= 3
        seen += page
        after = page[-1][0]
    assert seen == [(job_id, tenant, 1, spec(name=f"{n}")) for n, (job_id, tenant) in enumerate(made)]


async def test_a_page_without_readable_definitions_is_not_the_last(store: Store, raw: Raw):
    """Otherwise a rotation would end there, and remove the key that later jobs need."""
    jobs = [await add_job(store, spec(name=f"{n}")) for n in range(6)]
    await raw("""UPDATE jobs SET spec = '{"name": "of a newer version"}' WHERE name IN ('0', '1', '2', '3', '5')""")
    assert await store.list_specs(FIRST_ID, 2) == [(jobs[4], TENANT, 1, spec(name="4"))]
    assert await store.list_specs(jobs[4], 2) == []


async def test_a_definition_is_replaced_and_the_job_stays_as_it_is(store: Store):
    job_id = await add_job(store)
    before = await job_of(store, job_id)
    encrypted = spec(description="encrypted with another key, and longer")
    assert await one(store, c.Reencrypt(((job_id, 1, encrypted),))) == 1
    after = await job_of(store, job_id)
    assert after.spec == encrypted
    assert (after.version, after.updated_at, after.due_at) == (before.version, before.updated_at, before.due_at)
    assert await store.list_specs(FIRST_ID, 10) == [(job_id, TENANT, 1, encrypted)]


@pytest.mark.parametrize("together", [True, False])
async def test_a_definition_changed_meanwhile_is_not_replaced_and_the_load_stays_exact(store: Store, together: bool):
    jobs = sorted([await add_job(store, spec(description="x" * n * 100)) for n in range(5)], reverse=True)
    changed = spec(name="changed")
    await one(store, change_of(jobs[1], changed))
    await one(store, c.PurgeJob(TENANT, jobs[2]))
    encrypted = [spec(description="y" * n * 10) for n in range(6)]
    changes = tuple((job_id, 1, new) for job_id, new in zip([*jobs, new_id()], encrypted, strict=True))
    if together:
        assert await one(store, c.Reencrypt(changes)) == 3
    else:
        assert await store.apply([c.Reencrypt((change,)) for change in changes]) == [1, 0, 0, 1, 1, 0]
    found = {job_id: definition for job_id, _, _, definition in await store.list_specs(FIRST_ID, 10)}
    assert found == {jobs[0]: encrypted[0], jobs[1]: changed, jobs[3]: encrypted[3], jobs[4]: encrypted[4]}
    assert await store.get_load() == await sizes(store)


async def test_a_reencrypt_of_no_definitions_does_nothing(store: Store):
    assert await one(store, c.Reencrypt(())) == 0


async def test_a_reencrypt_succeeds_in_a_full_store(make_store: MakeStore, store: Store):
    """A key must be replaceable at any time."""
    job = new_job()
    await one(store, c.CreateJobs(NOW, (job,)))
    await store.stop()
    full = make_store(Capacity(1, 600))
    await full.start()
    assert await one(full, c.Reencrypt(((job.job_id, 1, spec(description="x" * 1000)),))) == 1
    assert (await full.get_load()).bytes > 1500
    await full.stop()
