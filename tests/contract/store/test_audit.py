"""The audit: one entry for each change and none for a refused command, in chains in which every change is detected."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from contract.store.conftest import MakeStore, Raw
from duetime.domain import commands as c
from duetime.domain.audit import BEFORE_ALL, FIRST_LINK, Entry, digest, link
from duetime.domain.capacity import Capacity
from duetime.domain.errors import (
    Conflict,
    DuetimeError,
    IdempotencyKeyReused,
    InsufficientStorage,
    NotFound,
    PreconditionFailed,
    QuotaExceeded,
)
from duetime.domain.execution import Outcome
from duetime.domain.identity import LOCAL
from duetime.domain.instants import DAY, MINUTE
from duetime.domain.job import RetryPolicy
from duetime.domain.limits import Limit, Quota
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import AuditQuery, Store
from duetime.store.postgres import PostgresStore
from samples import (
    ANN,
    NOW,
    TENANT,
    add_execution,
    add_job,
    change_of,
    claim_waiting,
    ended,
    entry_of,
    finish,
    fire,
    new_id,
    new_job,
    new_key,
    one,
    spec,
    verified,
)


async def entries(store: Store, **query: Any) -> list[Entry]:
    """Oldest first."""
    found = await store.list_audit(AuditQuery(**{"tenant": TENANT, "limit": 1000} | query))
    return [record.entry for record in found][::-1]


async def actions(store: Store) -> list[str]:
    return [found.action for found in await entries(store)]


def create(job: c.NewJob, **fields: Any) -> c.CreateJobs:
    return c.CreateJobs(NOW, (job,), audit=(entry_of("job.create", job.job_id),), **fields)


async def a_dead_letter(store: Store, node: int) -> str:
    job_id = await add_job(store, spec(retry_policy=RetryPolicy(max_retries=0)))
    _, (claim,) = await fire(store, node, NOW + MINUTE, job_id)
    await finish(store, node, NOW + MINUTE, ended(claim, Outcome(ErrorType.BLOCKED_TARGET)))
    return claim.execution_id


# One entry for each change


async def test_each_command_that_changes_something_writes_exactly_its_entry(store: Store, node: int):
    dead, waiting = await a_dead_letter(store, node), await add_execution(store, await add_job(store))
    job, run_id = new_job(), new_id()
    job_id = job.job_id

    def noted(action: str, resource: str = job_id) -> Entry:
        return entry_of(action, resource, before={"was": 1}, after={"is": action})

    commands: list[c.Command] = [
        c.CreateJobs(NOW, (job,), audit=(noted("job.create"),)),
        change_of(job_id, spec("every 2m"), audit=noted("job.change")),
        change_of(job_id, spec("every 3m"), 2, replan=True, due_at=NOW + MINUTE, audit=noted("job.change again")),
        c.PauseJob(NOW, TENANT, job_id, "ann", "", noted("job.pause")),
        c.ResumeJob(NOW, TENANT, job_id, 4, NOW + MINUTE, None, noted("job.resume")),
        c.AddExecution(NOW, TENANT, job_id, run_id, Trigger.MANUAL, noted("job.run")),
        c.CancelExecution(NOW, TENANT, waiting, noted("execution.cancel", waiting)),
        c.Redrive(NOW, TENANT, ((dead, new_id()),), noted("dead_letters.redrive", "")),
        c.CancelJob(NOW, TENANT, job_id, audit=noted("job.cancel")),
        c.PurgeJob(TENANT, job_id, audit=noted("job.purge")),
        c.AddKey(NOW, new_key(), noted("key.create", "key-1")),
        c.RevokeKey(NOW, TENANT, "key-1", noted("key.revoke", "key-1")),
    ]
    expected = []
    for command in commands:
        answer = await one(store, command)
        assert not isinstance(answer, DuetimeError), answer
        written = getattr(command, "audit")  # noqa: B009 (not every command has one)
        expected += written if isinstance(written, tuple) else [written]
        assert await entries(store) == expected
    assert (await verified(store)).broken is None


async def test_entries_of_one_commit_are_one_page_in_their_order(store: Store):
    job = new_job()
    answers = await store.apply(
        [
            create(job),
            c.PauseJob(NOW, TENANT, job.job_id, "ann", "", entry_of("job.pause", job.job_id)),
            c.ResumeJob(NOW, TENANT, job.job_id, 2, NOW + MINUTE, None, entry_of("job.resume", job.job_id)),
            c.PurgeJob(TENANT, job.job_id, audit=entry_of("job.purge", job.job_id)),
        ]
    )
    assert not any(isinstance(answer, DuetimeError) for answer in answers)
    (page,) = await store.list_audit_pages(BEFORE_ALL, 10)
    assert [json.loads(text)[5] for _, _, text in page.rows] == ["job.create", "job.pause", "job.resume", "job.purge"]
    assert await actions(store) == ["job.create", "job.pause", "job.resume", "job.purge"]


async def test_a_batch_can_write_one_entry_or_one_per_job(store: Store):
    jobs = tuple(new_job() for _ in range(3))
    batch = entry_of("job.create", after={"jobs": [job.job_id for job in jobs]})
    assert await one(store, c.CreateJobs(NOW, jobs, audit=(batch,))) is None
    each = tuple(new_job() for _ in range(3))
    single = tuple(entry_of("job.create", job.job_id) for job in each)
    assert await one(store, c.CreateJobs(NOW, each, audit=single)) is None
    assert await entries(store) == [batch, *single]


async def test_a_purge_of_several_pages_records_the_cancellation_and_one_purge(store: Store):
    job_id = await add_job(store)
    for n in range(5):
        await add_execution(store, job_id, NOW + n)
    purge = c.PurgeJob(TENANT, job_id, 2, entry_of("job.purge", job_id))
    answers = [await one(store, purge)]
    (ended,) = await entries(store)
    assert (ended.actor, ended.action, ended.resource) == ("ann", "job.cancel", job_id)
    assert (ended.before, ended.after) == ({"status": "PENDING"}, {"status": "CANCELLED", "reason": "purge"})
    while answers[-1]:
        assert await entries(store) == [ended]
        answers.append(await one(store, purge))
    assert answers == [True, True, False]
    gone = [ended, purge.audit]
    assert sorted(await entries(store), key=lambda it: it.action) == gone
    assert isinstance(await one(store, purge), NotFound)
    assert sorted(await entries(store), key=lambda it: it.action) == gone


async def test_an_action_of_duetime_itself_has_its_own_entry(store: Store):
    job_id = await add_job(store)
    assert await one(store, c.PauseJob(NOW + 5, TENANT, job_id, "duetime", "it fails again and again")) == "PAUSED"
    assert await one(store, c.PauseJob(NOW + 6, TENANT, job_id, "duetime", "it fails again and again")) == "PAUSED"
    after = {"status": "PAUSED", "reason": "it fails again and again"}
    assert await entries(store) == [
        Entry(NOW + 5, TENANT, "duetime", "engine", "", "job.pause", job_id, {"status": "PENDING"}, after)
    ]


async def test_other_commands_of_the_engine_write_no_entry(store: Store, node: int):
    job_id = await add_job(store)
    _, (claim,) = await fire(store, node, NOW + MINUTE, job_id)
    await finish(store, node, NOW + MINUTE, ended(claim))
    await one(store, c.Prune(NOW + DAY, NOW, NOW, 100))
    await one(store, c.TouchKeys(NOW, ("key-1",)))
    await one(store, c.TakeRequests(NOW, Quota(TENANT, "ann", Limit("requests", 5, DAY)), 2))
    await one(store, c.Reencrypt(((job_id, 1, spec(description="x")),)))
    assert await entries(store) == []


async def test_the_store_fills_in_the_values_before_and_after(store: Store, node: int):
    job_id = await add_job(store)
    waiting = await add_execution(store, job_id, NOW)
    (claim,) = await claim_waiting(store, node, NOW, 1)
    assert claim.execution_id == waiting
    later = await add_execution(store, job_id, NOW + 1)
    await store.apply([c.PauseJob(NOW, TENANT, job_id, "ann", "a holiday", entry_of("job.pause", job_id))])
    await store.apply([c.ResumeJob(NOW, TENANT, job_id, 2, NOW + MINUTE, None, entry_of("job.resume", job_id))])
    await store.apply([c.CancelExecution(NOW, TENANT, waiting, entry_of("execution.cancel", waiting))])
    await store.apply([c.CancelExecution(NOW, TENANT, later, entry_of("execution.cancel", later))])
    await store.apply([c.CancelJob(NOW, TENANT, job_id, audit=entry_of("job.cancel", job_id))])
    assert [(found.before, found.after) for found in await entries(store)] == [
        ({"status": "PENDING"}, {"status": "PAUSED", "reason": "a holiday"}),
        ({"status": "PAUSED"}, {"status": "PENDING"}),
        ({"state": State.RUNNING}, {"state": State.RUNNING, "cancel_requested": True}),
        ({"state": State.QUEUED}, {"state": State.CANCELLED}),
        ({"status": "PENDING"}, {"status": "CANCELLED"}),
    ]


async def test_the_entry_of_a_redrive_names_the_redriven_executions(store: Store, node: int):
    dead, gone, new = await a_dead_letter(store, node), new_id(), new_id()
    command = c.Redrive(NOW, TENANT, ((dead, new), (gone, new_id())), entry_of("dead_letters.redrive"))
    assert await one(store, command) == [(dead, new)]
    assert [found.after for found in await entries(store)] == [{"executions": [{"dead": dead, "new": new}]}]


# No entry without a change


async def test_a_command_that_changes_nothing_writes_no_entry(store: Store, node: int):
    paused, cancelled = await add_job(store), await add_job(store)
    record = c.IdempotencyRecord(TENANT, "k", "f", "the answer")
    await store.apply(
        [
            c.PauseJob(NOW, TENANT, paused, "ann", "", entry_of("kept")),
            c.CancelJob(NOW, TENANT, cancelled, audit=entry_of("kept")),
            c.AddKey(NOW, new_key(), entry_of("kept")),
            c.RevokeKey(NOW, TENANT, "key-1", entry_of("kept")),
            c.CreateJobs(NOW, (new_job(),), record, audit=(entry_of("kept"),)),
        ]
    )
    again: list[c.Command] = [
        c.PauseJob(NOW, TENANT, paused, "ann", "", entry_of("lost")),
        c.CancelJob(NOW, TENANT, cancelled, audit=entry_of("lost")),
        c.RevokeKey(NOW, TENANT, "key-1", entry_of("lost")),
        c.CreateJobs(NOW, (new_job(),), record, audit=(entry_of("lost"),)),
        c.Redrive(NOW, TENANT, ((new_id(), new_id()),), entry_of("lost")),
    ]
    expected = ["PAUSED", [], None, "the answer", []]
    assert [await one(store, command) for command in again] == expected  # each alone
    assert await store.apply(again) == expected  # and in one commit
    assert await actions(store) == ["kept"] * 5


async def test_a_refused_command_writes_no_entry(store: Store, node: int):
    await add_job(store, spec(key="taken"))
    job_id, cancelled = await add_job(store), await add_job(store)
    await one(store, c.CancelJob(NOW, TENANT, cancelled))
    running = await add_execution(store, job_id)
    await claim_waiting(store, node, NOW)
    over = await add_execution(store, cancelled_later := await add_job(store))
    await one(store, c.CancelJob(NOW, TENANT, cancelled_later))
    await one(store, c.AddKey(NOW, new_key()))
    quota = Quota(TENANT, "ann", Limit("jobs", 1, DAY))
    await one(store, c.CreateJobs(NOW, (new_job(),), c.IdempotencyRecord(TENANT, "k", "f", "r"), quota))
    lost = entry_of("lost")
    commands: list[tuple[c.Command, type[DuetimeError]]] = [
        (c.CreateJobs(NOW, (new_job(spec(key="taken")),), audit=(lost,)), Conflict),
        (c.CreateJobs(NOW, (new_job(), new_job(spec(key="taken"))), audit=(lost, lost)), Conflict),
        (c.CreateJobs(NOW, (new_job(),), quota=quota, audit=(lost,)), QuotaExceeded),
        (c.CreateJobs(NOW, (new_job(),), c.IdempotencyRecord(TENANT, "k", "g", "r"), audit=(lost,)),
         IdempotencyKeyReused),
        (change_of(job_id, spec(), 7, audit=lost), PreconditionFailed),
        (change_of(job_id, spec(key="taken"), audit=lost), Conflict),
        (change_of(cancelled, spec(), 2, audit=lost), Conflict),
        (change_of(new_id(), spec(), audit=lost), NotFound),
        (change_of(job_id, spec(), replan=True, due_at=2**70, audit=lost), Conflict),  # after all other writes
        (c.PauseJob(NOW, TENANT, cancelled, "ann", "", lost), Conflict),
        (c.PauseJob(NOW, "other", job_id, "ann", "", lost), NotFound),
        (c.ResumeJob(NOW, TENANT, job_id, 1, None, None, lost), Conflict),
        (c.CancelJob(NOW, "other", job_id, audit=lost), NotFound),
        (c.PurgeJob(TENANT, job_id, audit=lost), Conflict),
        (c.AddExecution(NOW, TENANT, cancelled, new_id(), Trigger.MANUAL, lost), Conflict),
        (c.CancelExecution(NOW, TENANT, over, lost), Conflict),
        (c.CancelExecution(NOW, "other", running, lost), NotFound),
        (c.AddKey(NOW, new_key(), lost), Conflict),
        (c.RevokeKey(NOW, "other", "key-1", lost), NotFound),
    ]  # fmt: skip
    expected = [refusal for _, refusal in commands]
    assert [type(await one(store, command)) for command, _ in commands] == expected  # each alone
    assert [type(answer) for answer in await store.apply([command for command, _ in commands])] == expected
    assert await entries(store) == []
    assert await store.list_audit_pages(BEFORE_ALL, 10) == []


async def test_a_create_without_room_writes_no_entry(make_store: MakeStore):
    store = make_store(Capacity(most_jobs=1))
    await store.start()
    kept = new_job()
    answers = await store.apply([create(kept), create(new_job()), create(new_job())])
    assert [type(answer) for answer in answers] == [type(None), InsufficientStorage, InsufficientStorage]
    assert [found.resource for found in await entries(store)] == [kept.job_id]
    await store.stop()


async def test_refused_creates_in_a_shared_commit_write_no_entry(store: Store):
    await add_job(store, spec(key="taken"))
    jobs = [new_job(spec(key="taken") if n in (2, 5) else None) for n in range(8)]
    answers = await store.apply([create(job) for job in jobs])
    assert [isinstance(answer, Conflict) for answer in answers] == [n in (2, 5) for n in range(8)]
    kept = [job.job_id for n, job in enumerate(jobs) if n not in (2, 5)]
    assert [found.resource for found in await entries(store)] == kept
    assert (await verified(store)).entries == 6


async def test_a_refused_create_does_not_duplicate_entries_of_its_commit(store: Store):
    """Changes of another instant or user are another page: the first may be committed when the next is refused."""
    quotas = [Quota(TENANT, user, Limit("jobs", 2, DAY)) for user in ("ann", "bob")]
    jobs = [new_job() for _ in range(6)]
    creates = [create(job, quota=quotas[n // 3]) for n, job in enumerate(jobs)]
    answers = await store.apply(creates)
    assert [isinstance(answer, QuotaExceeded) for answer in answers] == [False, False, True, False, False, True]
    await add_job(store, spec(key="taken"))
    more = [create(new_job()), c.CreateJobs(NOW + 1, (new_job(spec(key="taken")),), audit=(entry_of("lost"),))]
    assert isinstance((await store.apply(more))[1], Conflict)
    kept = [jobs[n].job_id for n in (0, 1, 3, 4)] + [more[0].jobs[0].job_id]
    assert [found.resource for found in await entries(store)] == kept


async def test_a_refused_command_removes_only_its_own_entry(store: Store):
    await add_job(store, spec(key="taken"))
    first, refused, last = new_job(), new_job(spec(key="taken")), new_job()
    paused = c.PauseJob(NOW, TENANT, first.job_id, "ann", "", entry_of("job.pause", first.job_id))
    answers = await store.apply([create(first), paused, create(refused), create(last)])
    assert [type(answer).__name__ for answer in answers] == ["NoneType", "JobStatus", "Conflict", "NoneType"]
    assert [found.resource for found in await entries(store)] == [first.job_id, first.job_id, last.job_id]


@pytest.mark.usefixtures("several_connections")
async def test_each_of_many_concurrent_callers_writes_its_entry(store: Store):
    await add_job(store, spec(key="taken"))
    jobs = [new_job(spec(key="taken") if n % 10 == 0 else None) for n in range(300)]
    answers = await asyncio.gather(*(one(store, create(job)) for job in jobs))
    kept = {job.job_id for job, answer in zip(jobs, answers, strict=True) if answer is None}
    assert len(kept) == 270
    found = [entry.resource for entry in await entries(store)]
    assert len(found) == 270
    assert set(found) == kept
    assert (await verified(store)).broken is None


# Reads


async def some_entries(store: Store) -> list[Entry]:
    """Entries of three users, of two kinds, at ten instants; one in ten is of another tenant."""
    other = LOCAL
    made = []
    for n in range(20):
        caller = other if n % 10 == 9 else ANN
        actor = ["ann", "bob", "cy"][n % 3]
        fields = {"caller": caller, "after": {"n": n, "text": 'ü "\\ \n'}}
        entry = entry_of(["key.create", "key.revoke"][n % 2], f"key-{n % 4}", NOW + n // 2, **fields)
        entry = Entry(entry.at, entry.tenant, actor, "jwt", f"request-{n}", *entry_fields(entry))
        assert await one(store, c.AddKey(NOW, new_key(f"id-{n}", entry.tenant), entry)) is None
        made.append(entry)
    return made


def entry_fields(entry: Entry) -> tuple[Any, ...]:
    return entry.action, entry.resource, entry.before, entry.after


@pytest.mark.parametrize(
    "filters",
    [
        {}, {"actor": "bob"}, {"action": "key.create"}, {"resource": "key-2"}, {"since": NOW + 3}, {"until": NOW + 3},
        {"since": NOW + 2, "until": NOW + 5}, {"actor": "ann", "action": "key.revoke", "resource": "key-1"},
        {"actor": "nobody"}, {"action": "key"}, {"resource": ""}, {"since": NOW + 99}, {"until": NOW},
        {"resource": "' OR 1 = 1 --"}, {"actor": "' OR 1 = 1 --"},
    ],
    ids=str,
)  # fmt: skip
async def test_entries_are_filtered_latest_first_and_of_one_tenant(store: Store, filters: dict[str, Any]):
    made = await some_entries(store)
    for tenant in (TENANT, "default", "nobody"):
        expected = [
            entry
            for entry in made
            if entry.tenant == tenant
            and filters.get("actor") in (None, entry.actor)
            and filters.get("action") in (None, entry.action)
            and filters.get("resource") in (None, entry.resource)
            and filters.get("since", 0) <= entry.at < filters.get("until", 2**60)
        ]
        assert await entries(store, tenant=tenant, **filters) == expected


@pytest.mark.parametrize("limit", [1, 4, 100])
async def test_pages_of_entries_are_together_the_whole_list(store: Store, limit: int):
    made = [entry for entry in await some_entries(store) if entry.tenant == TENANT]
    seen: list[Entry] = []
    numbers: list[int] = []
    before = None
    while page := await store.list_audit(AuditQuery(TENANT, limit=limit, before=before)):
        assert len(page) <= limit
        seen += [record.entry for record in page]
        numbers += [record.number for record in page]
        before = numbers[-1]
    assert seen == made[::-1]
    assert numbers == sorted(set(numbers), reverse=True)


async def test_the_entry_of_a_job_created_in_a_batch_is_found_by_the_jobs_id(store: Store):
    jobs, others = tuple(new_job() for _ in range(3)), tuple(new_job() for _ in range(3))
    batch, theirs = (entry_of("job.create", after={"jobs": [job.job_id for job in page]}) for page in (jobs, others))
    await store.apply([c.CreateJobs(NOW, jobs, audit=(batch,)), c.CreateJobs(NOW, others, audit=(theirs,))])
    job_id = jobs[1].job_id
    await store.apply([c.PauseJob(NOW, TENANT, job_id, "ann", "", entry_of("job.pause", job_id, after=1, before=2))])
    await store.apply([c.PurgeJob(TENANT, jobs[0].job_id, audit=entry_of("job.purge", jobs[0].job_id))])
    assert [found.action for found in await entries(store, resource=job_id)] == ["job.create", "job.pause"]
    assert [found.action for found in await entries(store, resource=jobs[0].job_id)] == ["job.create", "job.purge"]
    assert await entries(store, resource=others[2].job_id) == [theirs]
    assert await entries(store, resource=job_id, tenant="default") == []
    assert await entries(store, resource=new_id()) == []


async def test_an_entry_may_hold_any_text(store: Store):
    text = 'NUL \x00 and \\u0000, a "quote", a \u2028, 🕰 and a backslash \\'
    made = entry_of("key.create", "key-1", before={text: [None, 1.5, True]}, after=text)
    await store.apply(
        [c.AddKey(NOW, new_key(), made), c.AddKey(NOW, new_key("key-2"), entry_of("key.create", "key-2"))]
    )
    assert (await entries(store))[0] == made
    assert await entries(store, actor="ann", action="key.create", resource="key-1", since=NOW, until=NOW + 1) == [made]
    assert len(await entries(store, actor="ann", action="key.create", since=NOW)) == 2
    assert (await verified(store)).broken is None


# The chains


async def pages_of(store: Store) -> dict[int, list[Any]]:
    chains: dict[int, list[Any]] = {}
    for page in await store.list_audit_pages(BEFORE_ALL, 10_000):
        chains.setdefault(page.chain, []).append(page)
    return chains


async def test_every_page_is_linked_to_the_page_before_it(store: Store):
    for n in range(10):
        keys = [c.AddKey(NOW, new_key(f"{n}-{m}"), entry_of("key.create", f"{n}-{m}")) for m in range(1 + n % 3)]
        await store.apply(keys)
    chains = await pages_of(store)
    for pages in chains.values():
        before = FIRST_LINK
        for number, page in enumerate(pages, 1):
            assert page.link == number
            before = link(before, digest([text for _, _, text in page.rows]))
            assert page.hash == before.hex()
    assert sum(len(page.rows) for pages in chains.values() for page in pages) == 19
    found = await verified(store)
    assert (found.broken, found.entries) == (None, 19)
    assert found.heads == {chain: (pages[-1].link, pages[-1].hash) for chain, pages in chains.items()}


async def test_pages_can_be_listed_from_any_place(store: Store):
    for n in range(7):
        await one(store, c.AddKey(NOW, new_key(f"{n}"), entry_of("key.create", f"{n}")))
    pages = await store.list_audit_pages(BEFORE_ALL, 100)
    assert [(page.chain, page.link) for page in pages] == sorted((page.chain, page.link) for page in pages)
    for n, page in enumerate(pages):
        assert await store.list_audit_pages((page.chain, page.link), 2) == pages[n + 1 : n + 3]


async def test_a_reopened_store_continues_its_chains(make_store: MakeStore):
    heads: dict[int, tuple[int, str]] = {}
    for n in range(4):
        store = make_store()
        await store.start()
        await one(store, c.AddKey(NOW, new_key(f"{n}"), entry_of("key.create", f"{n}")))
        found = await verified(store, heads)
        assert (found.broken, found.entries) == (None, n + 1)
        heads = found.heads
        await store.stop()


A, B = "key-2-0", "key-2-1"
TAMPERED = {
    "a changed entry": [f"UPDATE audit SET entry = replace(entry, '\"ann\"', '\"bob\"') WHERE resource = '{A}'"],
    "a changed instant": [f"UPDATE audit SET entry = replace(entry, '{NOW}', '{NOW + 1}') WHERE resource = '{A}'"],
    "a removed entry": [f"DELETE FROM audit WHERE resource = '{A}'"],
    "a removed page": ["DELETE FROM audit WHERE resource LIKE 'key-2-%'", "DELETE FROM audit_links WHERE link = 2"],
    "a removed first page": [
        "DELETE FROM audit WHERE resource LIKE 'key-1-%'",
        "DELETE FROM audit_links WHERE link = 1",
    ],
    "a removed last page": [
        "DELETE FROM audit WHERE resource LIKE 'key-4-%'",
        "DELETE FROM audit_links WHERE link = 4",
    ],
    "everything removed": ["DELETE FROM audit", "DELETE FROM audit_links"],
    "a removed link": ["DELETE FROM audit_links WHERE link = 2"],
    "a removed last link": ["DELETE FROM audit_links WHERE link = 4"],
    "removed entries": ["DELETE FROM audit"],
    "a changed hash": ["UPDATE audit_links SET hash = (SELECT hash FROM audit_links WHERE link = 2) WHERE link = 3"],
    "swapped entries": [
        f"UPDATE audit SET resource = CASE resource WHEN '{A}' THEN '{B}' ELSE '{A}' END,"
        f" entry = replace(replace(replace(entry, '{A}', '#'), '{B}', '{A}'), '#', '{B}')"
        f" WHERE resource IN ('{A}', '{B}')"
    ],
    "another tenant": [f"UPDATE audit SET tenant = 'other' WHERE resource = '{A}'"],
    "another resource": [f"UPDATE audit SET resource = 'other' WHERE resource = '{A}'"],
}


async def chain_of_four(store: Store) -> None:
    """Four pages of two entries, in one chain."""
    if isinstance(store, PostgresStore):
        for connection in store._writer._connections:
            connection._slot = 5
    for n in range(1, 5):
        keys = [f"key-{n}-{m}" for m in range(2)]
        await store.apply([c.AddKey(NOW, new_key(key), entry_of("key.create", key)) for key in keys])


@pytest.mark.parametrize("tampering", TAMPERED)
async def test_tampering_is_detected(store: Store, raw: Raw, tampering: str):
    await chain_of_four(store)
    before = await verified(store)
    assert (before.broken, before.entries, [link for link, _ in before.heads.values()]) == (None, 8, [4])
    for sql in TAMPERED[tampering]:
        await raw(sql)
    assert (await verified(store, before.heads)).broken is not None
    if not tampering.startswith(("a removed last page", "everything")):  # these are detected only by earlier heads
        assert (await verified(store)).broken is not None


async def test_an_entry_that_no_link_covers_is_detected(store: Store, raw: Raw, backend: str):
    """It would be listed like any other."""
    await chain_of_four(store)
    forged = entry_of("job.purge", "key-9").text
    at = "(chain, link, position, number, tenant" if backend == "postgres" else "(number, tenant"
    for link_number in (9, 5):
        place = f"5, {link_number}, 1, 1000, " if backend == "postgres" else f"{link_number << 20}, "
        await raw("DELETE FROM audit WHERE resource = 'key-9'")
        await raw(f"INSERT INTO audit {at}, resource, entry) VALUES ({place}'{TENANT}', 'key-9', '{forged}')")
        assert (await entries(store, resource="key-9"))[0].action == "job.purge"
        assert (await verified(store, page=2)).broken is not None
