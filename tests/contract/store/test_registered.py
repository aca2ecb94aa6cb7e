"""Subscriptions and connections of a tenant; and commands that are attached to another command."""

from __future__ import annotations

import asyncio

import pytest

from duetime.domain import commands as c
from duetime.domain.errors import Conflict, NotFound
from duetime.domain.job import JobStatus
from duetime.domain.subscriptions import MOST_SUBSCRIPTIONS
from duetime.ports.store import ConnectionRecord, JobQuery, Store, SubscriptionRecord
from samples import NOW, TENANT, add_job, job_of, new_id, new_job, one, spec

HOOK = "https://told.example/hook"


def subscription(tenant: str = TENANT, subscription_id: str | None = None) -> c.AddSubscription:
    events = ("execution.failed", "job.paused")
    return c.AddSubscription(NOW, tenant, subscription_id or new_id(), HOOK, events, "ann")


def connection(tenant: str = TENANT, url: str = "encrypted:1:k:x", now: int = NOW) -> c.PutConnection:
    return c.PutConnection(now, tenant, "reports", url, "db.example:5432/app", "ann")


async def test_a_subscription_is_read_as_it_was_created_and_only_by_its_tenant(store: Store):
    added = subscription()
    assert await one(store, added) is None
    assert await one(store, subscription("globex")) is None
    expected = SubscriptionRecord(added.subscription_id, TENANT, HOOK, ("execution.failed", "job.paused"), NOW, "ann")
    assert await store.list_subscriptions(TENANT, 10) == [expected]
    assert len(await store.list_subscriptions(None, 10)) == 2


async def test_a_subscription_is_removed_by_its_tenant_and_by_no_other(store: Store):
    added = subscription()
    await one(store, added)
    assert isinstance(await one(store, c.RemoveSubscription("globex", added.subscription_id)), NotFound)
    assert await one(store, c.RemoveSubscription(TENANT, added.subscription_id)) is None
    assert isinstance(await one(store, c.RemoveSubscription(TENANT, added.subscription_id)), NotFound)
    assert await store.list_subscriptions(TENANT, 10) == []


async def test_the_subscriptions_of_a_tenant_are_limited(store: Store):
    for _ in range(MOST_SUBSCRIPTIONS):
        assert await one(store, subscription()) is None
    assert isinstance(await one(store, subscription()), Conflict)
    assert await one(store, subscription("globex")) is None


async def test_a_connection_is_read_as_it_was_last_stored_and_only_by_its_tenant(store: Store):
    assert await one(store, connection()) is None
    assert await one(store, connection(url="encrypted:1:k:y", now=NOW + 1)) is None
    expected = ConnectionRecord(TENANT, "reports", "encrypted:1:k:y", "db.example:5432/app", NOW + 1, "ann")
    assert await store.get_connection(TENANT, "reports") == expected
    assert await store.list_connections(TENANT, 10) == [expected]
    assert await store.get_connection("globex", "reports") is None
    assert await store.list_connections("globex", 10) == []


async def test_the_connections_of_a_tenant_are_limited(store: Store):
    def put(name: str, tenant: str = TENANT, url: str = "encrypted:1:k:x") -> c.PutConnection:
        return c.PutConnection(NOW, tenant, name, url, "db.example:5432/app", "ann", limit=2)

    assert [await one(store, put("a")), await one(store, put("b"))] == [None, None]
    refused = await one(store, put("c"))
    assert isinstance(refused, Conflict)
    assert "TENANT_CONNECTIONS_LIMIT" in refused.message
    assert await one(store, put("b", url="encrypted:1:k:y")) is None, "one that is there can be changed"
    assert await one(store, put("c", "globex")) is None
    assert await one(store, c.RemoveConnection(TENANT, "a")) is None
    assert await one(store, put("c")) is None
    assert [record.name for record in await store.list_connections(TENANT, 10)] == ["b", "c"]


@pytest.mark.usefixtures("several_connections")
async def test_connections_that_are_stored_concurrently_are_counted_too(store: Store):
    put = [c.PutConnection(NOW, TENANT, f"c{n}", "encrypted:1:k:x", "db.example", "ann", limit=2) for n in range(6)]
    answers = await asyncio.gather(*(store.apply([command]) for command in put))
    assert sum(isinstance(answer, Conflict) for (answer,) in answers) == 4
    assert len(await store.list_connections(TENANT, 10)) == 2


async def test_a_removed_connection_is_not_found(store: Store):
    await one(store, connection())
    assert isinstance(await one(store, c.RemoveConnection("globex", "reports")), NotFound)
    assert await one(store, c.RemoveConnection(TENANT, "reports")) is None
    assert isinstance(await one(store, c.RemoveConnection(TENANT, "reports")), NotFound)
    assert await store.get_connection(TENANT, "reports") is None


async def test_a_reencrypted_url_replaces_only_the_one_that_was_read(store: Store):
    await one(store, connection())
    assert await one(store, c.ReencryptConnection(TENANT, "reports", "encrypted:1:k:old", "encrypted:1:k:z")) is False
    assert await one(store, c.ReencryptConnection(TENANT, "reports", "encrypted:1:k:x", "encrypted:1:k:z")) is True
    found = await store.get_connection(TENANT, "reports")
    assert found is not None
    assert found.url == "encrypted:1:k:z"


def pause(job_id: str) -> c.PauseJob:
    return c.PauseJob(NOW, TENANT, job_id, "ann", "because")


async def names(store: Store) -> list[str]:
    return [job.spec.name for job in await store.list_jobs(JobQuery(TENANT, order="asc"))]


async def test_commands_attached_to_a_command_are_applied_with_it(store: Store):
    job_id = await add_job(store)
    word = c.CreateJobs(NOW, (new_job(spec(name="word")),))
    assert await one(store, c.WithNotifications(pause(job_id), (word,))) == c.Carried(JobStatus.PAUSED, ())
    assert await names(store) == ["report", "word"]


async def test_commands_attached_to_a_refused_command_are_not_applied(store: Store):
    word = c.CreateJobs(NOW, (new_job(spec(name="word")),))
    assert isinstance(await one(store, c.WithNotifications(pause(new_id()), (word,))), NotFound)
    assert await names(store) == []


async def test_a_refused_attached_command_affects_neither_its_command_nor_the_others(store: Store):
    job_id = await add_job(store, spec(key="taken"))
    words = tuple(c.CreateJobs(NOW, (new_job(spec(name=name, key=name)),)) for name in ("taken", "free"))
    carried = await one(store, c.WithNotifications(pause(job_id), words))
    assert (carried.answer, [type(error) for error in carried.refused]) == (JobStatus.PAUSED, [Conflict])
    assert (await job_of(store, job_id)).status is JobStatus.PAUSED
    assert await names(store) == ["report", "free"]
