"""Alert channels, and the room that is reserved for notices of alerts."""

from __future__ import annotations

import asyncio

import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.capacity import Capacity
from duetime.domain.channels import Kind
from duetime.domain.endpoints import NOTICES
from duetime.domain.errors import Conflict, InsufficientStorage, NotFound, QuotaExceeded
from duetime.domain.instants import HOUR
from duetime.domain.job import JobType
from duetime.domain.limits import ALL_USERS, Limit, Quota
from duetime.domain.notices import MOST_AN_HOUR, create_notices, make_notice
from duetime.domain.subscriptions import notification
from duetime.ports.store import ChannelRecord, JobQuery, Store
from samples import NOW, TENANT, fire, new_job, one


def channel(tenant: str = TENANT, name: str = "ops", url: str = "encrypted:1:k:x", **others: object) -> c.PutChannel:
    fields = {"now": NOW, "kind": Kind.WEBHOOK, "shown": "https://hook.example/…", "created_by": "ann"} | others
    return c.PutChannel(tenant=tenant, name=name, url=url, **fields)  # type: ignore[arg-type]


def notices(*channels: str, tenant: str = TENANT, now: int = NOW, number: int = 1) -> c.CreateJobs:
    notice = make_notice(channels or ("ops",), "Late", "3 jobs are late.", severity="critical", status="firing")
    return create_notices(tenant, notice, now, (number << 24).to_bytes(10, "big"))


async def test_a_channel_is_read_as_it_was_last_stored_and_only_by_its_tenant(store: Store):
    assert await one(store, channel()) is None
    assert await one(store, channel(url="encrypted:1:k:y", kind=Kind.APPRISE, shown="slack://…", now=NOW + 1)) is None
    expected = ChannelRecord(TENANT, "ops", Kind.APPRISE, "encrypted:1:k:y", "slack://…", NOW + 1, "ann")
    assert await store.get_channel(TENANT, "ops") == expected
    assert await store.list_channels(TENANT, 10) == [expected]
    assert await store.list_channels(None, 10) == [expected]
    assert await store.get_channel("globex", "ops") is None
    assert await store.list_channels("globex", 10) == []


async def test_the_channels_of_a_tenant_are_limited(store: Store):
    assert [await one(store, channel(name=name, limit=2)) for name in "ab"] == [None, None]
    refused = await one(store, channel(name="c", limit=2))
    assert isinstance(refused, Conflict)
    assert "TENANT_CHANNELS_LIMIT" in refused.message
    assert await one(store, channel(name="b", url="encrypted:1:k:y", limit=2)) is None, "one that is there can change"
    assert await one(store, channel("globex", "c", limit=2)) is None
    assert await one(store, c.RemoveChannel(TENANT, "a")) is None
    assert await one(store, channel(name="c", limit=2)) is None
    assert [record.name for record in await store.list_channels(TENANT, 10)] == ["b", "c"]


@pytest.mark.usefixtures("several_connections")
async def test_channels_that_are_stored_concurrently_are_counted_too(store: Store):
    answers = await asyncio.gather(*(store.apply([channel(name=f"c{n}", limit=2)]) for n in range(6)))
    assert sum(isinstance(answer, Conflict) for (answer,) in answers) == 4
    assert len(await store.list_channels(TENANT, 10)) == 2


async def test_a_removed_channel_is_not_found(store: Store):
    await one(store, channel())
    assert isinstance(await one(store, c.RemoveChannel("globex", "ops")), NotFound)
    assert await one(store, c.RemoveChannel(TENANT, "ops")) is None
    assert isinstance(await one(store, c.RemoveChannel(TENANT, "ops")), NotFound)
    assert await store.get_channel(TENANT, "ops") is None


async def test_a_reencrypted_url_replaces_only_the_one_that_was_read(store: Store):
    await one(store, channel())
    assert await one(store, c.ReencryptChannel(TENANT, "ops", "encrypted:1:k:old", "encrypted:1:k:z")) is False
    assert await one(store, c.ReencryptChannel("globex", "ops", "encrypted:1:k:x", "encrypted:1:k:z")) is False
    assert await one(store, c.ReencryptChannel(TENANT, "ops", "encrypted:1:k:x", "encrypted:1:k:z")) is True
    found = await store.get_channel(TENANT, "ops")
    assert found is not None
    assert found.url == "encrypted:1:k:z"


async def test_a_notice_is_a_job_for_each_of_its_channels_that_nodes_claim(store: Store):
    node = await one(store, c.StartNode(NOW, "a"))
    assert await one(store, notices("ops", "mail", "ops")) is None
    records = await store.list_jobs(JobQuery(TENANT, type=JobType.NOTICE))
    assert sorted(record.spec.payload.channels for record in records) == [("mail",), ("ops",)]
    await fire(store, node, NOW, *(record.job_id for record in records), claim=False)
    assert await one(store, c.ClaimExecutions(node, NOW, 10, ("globex",), only=(NOTICES,))) == []
    claims = await one(store, c.ClaimExecutions(node, NOW, 10, (TENANT,), only=(NOTICES,)))
    assert sorted(claim.spec.payload.channels for claim in claims) == [("mail",), ("ops",)]
    assert {claim.endpoint for claim in claims} == {NOTICES}


async def test_a_full_store_takes_notices_and_nothing_else(make_store: MakeStore):
    store = make_store(Capacity(most_jobs=2))
    await store.start()
    await one(store, c.CreateJobs(NOW, (new_job(), new_job())))
    mixed = [c.CreateJobs(NOW, (new_job(),)), notices("ops", "mail"), c.CreateJobs(NOW, (new_job(),))]
    answers = await store.apply(mixed)
    assert [type(answer) for answer in answers] == [InsufficientStorage, type(None), InsufficientStorage]
    assert (await store.get_load()).jobs == 4, "they are counted"
    word = notification(TENANT, "ann", "https://x.example", "n", "execution.failed", {}, NOW, bytes(10))
    assert isinstance(await one(store, word), InsufficientStorage), "other notifications have no room of their own"
    await store.stop()


async def test_notices_have_a_quota_of_their_own_for_each_tenant(store: Store):
    used_up = Quota(TENANT, ALL_USERS, Limit("notifications", 1, HOUR))
    assert await one(store, c.CreateJobs(NOW, (new_job(),), quota=used_up)) is None
    assert isinstance(await one(store, c.CreateJobs(NOW, (new_job(),), quota=used_up)), QuotaExceeded)
    many = [notices(*(f"c{n}" for n in range(20)), number=number) for number in range(1, MOST_AN_HOUR // 20 + 2)]
    answers = [await one(store, command) for command in many]
    assert [type(answer) for answer in answers] == [type(None)] * (MOST_AN_HOUR // 20) + [QuotaExceeded]
    assert await one(store, notices("ops", tenant="globex", number=10_000)) is None


async def test_a_notice_is_written_beside_another_command_or_with_it_refused(store: Store):
    """As an alert's transition writes it: in the same commit."""
    carried = await one(store, c.WithNotifications(channel(), (notices(),)))
    assert (carried.answer, carried.refused) == (None, ())
    refused = await one(store, c.WithNotifications(c.RemoveChannel(TENANT, "nobody"), (notices(number=2),)))
    assert isinstance(refused, NotFound)
    assert await store.count_jobs(JobQuery(TENANT, type=JobType.NOTICE)) == 1
