"""On-finish commands are applied in the commit of the end, or not at all."""

from __future__ import annotations

import msgspec

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.audit import own_entry
from duetime.domain.capacity import Capacity
from duetime.domain.errors import Conflict, InsufficientStorage
from duetime.domain.execution import AttemptEnd, Claim, Outcome
from duetime.domain.job import JobStatus, RetryPolicy, Webhooks
from duetime.domain.on_finish import on_finish_commands
from duetime.domain.states import ErrorType, State
from duetime.ports.store import JobQuery, JobRecord, Store
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    execution,
    fire,
    job_of,
    new_job,
    one,
    spec,
    verified,
)
from snapshot import snapshot

FAILURE = Outcome(ErrorType.HTTP_ERROR, "404", 404)
TOLD = "https://told.example/"
OTHER_IDS = 1 << 60  # different from those of the samples


def following(claim: Claim, state: State = State.COMPLETED, command: c.Command | None = None) -> c.OnFinish:
    """By default: the job is paused."""
    command = command or c.PauseJob(NOW, TENANT, claim.job_id, "duetime", "x")
    return c.OnFinish(claim.execution_id, claim.attempt, claim.token, state, command)


def creating(**fields: object) -> c.CreateJobs:
    job = new_job(spec("immediate", **fields), owner="")
    return c.CreateJobs(NOW, (job,), audit=(own_entry(NOW, TENANT, "job.create", job.job_id, None),))


async def running(store: Store, node: int, owner: str = "bea", **fields: object) -> Claim:
    job_id = await add_job(store, spec("every 1m", retry_policy=RetryPolicy(max_retries=0), **fields), owner=owner)
    await add_execution(store, job_id)
    (claim,) = await claim_waiting(store, node, NOW)
    return claim


async def made(store: Store, name: str) -> list[JobRecord]:
    return [job for job in await store.list_jobs(JobQuery(TENANT, limit=100)) if job.spec.name == name]


async def together(store: Store, node: int, attempts: list[AttemptEnd], *commands: c.Command) -> list[object]:
    refused, *answers = await store.apply([c.Finish(node, NOW, tuple(attempts)), *commands])
    assert isinstance(refused, list)
    return answers


async def test_an_on_finish_command_is_applied_with_the_end(store: Store, node: int):
    claim = await running(store, node)
    assert await together(store, node, [ended(claim)], following(claim)) == [JobStatus.PAUSED]
    assert (await job_of(store, claim.job_id)).status is JobStatus.PAUSED


async def test_an_on_finish_command_is_not_applied_if_the_end_differs_or_was_refused(store: Store, node: int):
    claim = await running(store, node)
    before = await snapshot(store)
    stale = msgspec.structs.replace(ended(claim), token=7)
    assert await together(store, node, [stale], following(claim)) == [None]
    assert await together(store, node, [], following(claim)) == [None]
    assert await snapshot(store) == before
    others = [
        following(claim, State.FAILED),
        following(msgspec.structs.replace(claim, attempt=2)),
        following(msgspec.structs.replace(claim, token=2)),
        following(msgspec.structs.replace(claim, execution_id=claim.job_id)),
    ]
    assert await together(store, node, [ended(claim)], *others) == [None] * 4
    assert (await job_of(store, claim.job_id)).status is JobStatus.PENDING


async def test_an_on_finish_command_is_applied_once_however_often_the_batch_is_sent(store: Store, node: int):
    claim = await running(store, node)
    await together(store, node, [ended(claim)], following(claim, command=creating(name="word")))
    assert await one(store, following(claim, command=creating(name="word"))) is None, "the end was of another commit"
    await together(store, node, [ended(claim)], following(claim, command=creating(name="word")))
    assert len(await made(store, "word")) == 1


async def test_an_on_finish_command_sent_twice_in_one_commit_is_applied_once(store: Store, node: int):
    claim = await running(store, node)
    finish = c.Finish(node, NOW, (ended(claim),))
    first, second = (following(claim, command=creating(name="word")) for _ in range(2))
    answers = await store.apply([finish, first, finish, second])
    assert answers[2] == [claim.execution_id]
    assert len(await made(store, "word")) == 1


async def test_the_outcome_of_an_attempt_of_a_cancelled_execution_applies_no_command(store: Store, node: int):
    job_id = await add_job(store, spec("every 1m"))
    await add_execution(store, job_id)
    (claim,) = await claim_waiting(store, node, NOW)
    await one(store, c.CancelExecution(NOW, TENANT, claim.execution_id))
    again = ended(claim, Outcome(ErrorType.HTTP_ERROR, "503", 503))
    assert again.state is State.RETRYING
    follows = [following(claim, State.RETRYING), following(claim, State.CANCELLED)]
    assert await together(store, node, [again], *follows) == [None, JobStatus.PAUSED]


async def test_a_notification_without_an_owner_gets_the_owner_of_the_ended_job(store: Store, node: int):
    first, second = await running(store, node, "bea"), await running(store, node, "cid")
    answers = await together(
        store, node, [ended(first), ended(second)],
        following(first, command=creating(name="one")), following(second, command=creating(name="two")),
    )  # fmt: skip
    assert answers == [None, None]
    assert [job.owner for job in await made(store, "one")] == ["bea"]
    assert [job.owner for job in await made(store, "two")] == ["cid"]
    assert (await verified(store)).entries == 2
    assert (await verified(store)).broken is None


async def test_a_refused_on_finish_command_does_not_affect_the_end_and_the_other_commands(store: Store, node: int):
    claim = await running(store, node)
    taken = creating(name="taken", key="k")
    await one(store, creating(name="taken", key="k"))
    answers = await together(
        store, node, [ended(claim)],
        following(claim, command=taken), following(claim, command=creating(name="good")), following(claim),
    )  # fmt: skip
    assert isinstance(answers[0], Conflict)
    assert answers[1:] == [None, JobStatus.PAUSED]
    assert len(await made(store, "good")) == 1
    assert (await execution(store, claim.execution_id)).state is State.COMPLETED


async def test_a_full_store_still_writes_the_end(make_store: MakeStore):
    store = make_store(Capacity(most_jobs=1))
    await store.start()
    try:
        node = int(await one(store, c.StartNode(NOW, "node-1")))
        claim = await running(store, node)
        words = [following(claim, command=creating(name="word")) for _ in range(3)]
        answers = await together(store, node, [ended(claim)], *words)
        assert [type(answer) for answer in answers] == [InsufficientStorage] * 3
        assert (await execution(store, claim.execution_id)).state is State.COMPLETED
        assert await made(store, "word") == []
        assert (await store.get_load()).jobs == 1
    finally:
        await store.stop()


async def test_a_thousand_notifications_of_one_page_are_stored(store: Store, node: int):
    job_id = await add_job(store, spec("on_demand", webhooks=Webhooks(on_failure=TOLD), overlap="allow"))
    for _ in range(5):
        await add_execution(store, job_id)
    claims = await claim_waiting(store, node, NOW)
    ends = [ended(claim, FAILURE) for claim in claims]
    words = [
        word
        for number in range(0, 1000, 5)
        for place, (claim, end) in enumerate(zip(claims, ends, strict=True))
        for word in on_finish_commands(claim, end, NOW, (OTHER_IDS + number + place << 4).to_bytes(10, "big"))
    ]
    assert set(map(str, await together(store, node, ends, *words))) == {"None"}
    assert await store.count_jobs(JobQuery(TENANT)) == 1001
    _, sent = await fire(store, node, NOW)
    assert len(sent) == 1000
