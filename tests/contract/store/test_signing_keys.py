"""Signing keys that tenants rotate, and how many API keys a tenant may have."""

from __future__ import annotations

import asyncio

import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.errors import Conflict
from duetime.domain.grants import ENDED_KEPT, KeyLimits
from duetime.domain.instants import DAY
from duetime.domain.signing import SigningState
from duetime.ports.store import Store
from samples import NOW, TENANT, new_key, one


def rotate(now: int = NOW, tenant: str = TENANT, overlap: int = DAY) -> c.RotateSigningKey:
    return c.RotateSigningKey(now, tenant, overlap, "ann")


async def states(store: Store, tenant: str | None = None, since: int = 0, after: str = "") -> list[SigningState]:
    return await store.list_signing_states(tenant, since, after, 100)


async def test_a_tenant_that_never_rotated_has_no_state(store: Store):
    assert await states(store) == await states(store, TENANT) == []


async def test_a_rotation_returns_the_next_version_and_reads_return_the_same(store: Store):
    first = await one(store, rotate())
    assert first == SigningState(TENANT, 2, NOW + DAY, NOW, "ann")
    assert await states(store, TENANT) == [first]
    second = await one(store, rotate(NOW + DAY))
    assert second == SigningState(TENANT, 3, NOW + 2 * DAY, NOW + DAY, "ann")
    assert await states(store) == [second]


async def test_only_a_rotation_without_overlap_is_accepted_during_another_rotation(store: Store):
    await one(store, rotate())
    assert isinstance(await one(store, rotate(NOW + DAY - 1)), Conflict)
    assert (await states(store))[0].version == 2
    assert await one(store, rotate(NOW + 1, overlap=0)) == SigningState(TENANT, 3, NOW + 1, NOW + 1, "ann")


@pytest.mark.usefixtures("several_connections")
async def test_one_of_several_concurrent_rotations_is_applied(store: Store):
    answers = await asyncio.gather(*(one(store, rotate()) for _ in range(12)))
    assert sorted(isinstance(answer, Conflict) for answer in answers) == [False] + [True] * 11
    assert (await states(store))[0].version == 2


async def test_states_are_listed_by_tenant_and_by_their_change(store: Store):
    for n in range(5):
        await one(store, rotate(NOW + n, f"t{n}"))
    assert [state.tenant for state in await states(store, since=NOW + 2)] == ["t2", "t3", "t4"]
    assert [state.tenant for state in await states(store, since=NOW + 2, after="t2")] == ["t3", "t4"]
    assert [state.tenant for state in await store.list_signing_states(None, 0, "", 2)] == ["t0", "t1"]
    assert [state.tenant for state in await states(store, "t4")] == ["t4"]


async def test_a_rotation_survives_a_restart(make_store: MakeStore, store: Store):
    state = await one(store, rotate())
    await store.stop()
    again = make_store()
    await again.start()
    assert await states(again) == [state]
    await again.stop()


LIMITS = KeyLimits(keys=4, users=2)


def add(key_id: str, now: int = NOW, user_id: str = "ann", tenant: str = TENANT, **fields: object) -> c.AddKey:
    return c.AddKey(now, new_key(key_id, tenant, user_id=user_id, **fields), None, LIMITS)  # type: ignore[arg-type]


@pytest.mark.usefixtures("several_connections")
async def test_keys_added_concurrently_stay_within_the_limit(store: Store):
    answers = await asyncio.gather(*(one(store, add(f"key-{n}")) for n in range(12)))
    assert sum(answer is None for answer in answers) == 4
    assert sum(isinstance(answer, Conflict) for answer in answers) == 8
    assert len(await store.list_keys(TENANT, 100)) == 4
    assert await one(store, add("another", tenant="other")) is None


@pytest.mark.usefixtures("several_connections")
async def test_users_of_keys_added_concurrently_stay_within_the_limit(store: Store):
    answers = await asyncio.gather(*(one(store, add(f"key-{n}", user_id=f"user-{n}")) for n in range(12)))
    assert sum(answer is None for answer in answers) == 2
    known = (await store.list_keys(TENANT, 100))[0].user_id
    assert await one(store, add("one more", user_id=known)) is None


async def test_keys_added_in_one_batch_are_counted_together(store: Store):
    answers = await store.apply([add(f"key-{n}") for n in range(6)])
    assert [answer is None for answer in answers] == [True] * 4 + [False] * 2


async def test_revoked_and_expired_keys_do_not_count(store: Store):
    for n in range(4):
        await one(store, add(f"key-{n}", expires_at=NOW + 10 if n == 0 else None))
    assert isinstance(await one(store, add("key-4", NOW + 9)), Conflict)
    assert await one(store, add("key-4", NOW + 10)) is None
    assert isinstance(await one(store, add("key-5", NOW + 11)), Conflict)
    await one(store, c.RevokeKey(NOW + 12, TENANT, "key-1"))
    assert await one(store, add("key-5", NOW + 12)) is None


async def test_keys_that_are_created_and_revoked_without_end_are_bounded(store: Store):
    for n in range(0, ENDED_KEPT + 40, 20):
        made = [f"key-{m:04}" for m in range(n, n + 20)]
        await store.apply([c.AddKey(NOW + n, new_key(key_id)) for key_id in made])
        await store.apply([c.RevokeKey(NOW + n, TENANT, key_id) for key_id in made])
    await one(store, add("the last", NOW + 10_000))
    left = [key.key_id for key in await store.list_keys(TENANT, 10_000)]
    assert left[0] == "the last"
    assert left[1:] == [f"key-{n:04}" for n in range(ENDED_KEPT + 39, 39, -1)]
