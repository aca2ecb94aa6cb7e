"""Chains of jobs: the effect of an end on the jobs that wait for it, in the commit of the end."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from contract.store.conftest import MakeStore, Raw
from duetime.domain import commands as c
from duetime.domain.errors import InvalidRequest
from duetime.domain.execution import Claim, Outcome, expire
from duetime.domain.instants import LATEST, SECOND
from duetime.domain.job import JobSpec, JobStatus, RetryPolicy
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import Store
from duetime.store.postgres.writer_connection import WriterConnection
from duetime.testing import SUCCESS
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    change_of,
    claim_waiting,
    due_timers,
    ended,
    executions_of,
    finish,
    fire,
    job_of,
    new_job,
    one,
    spec,
)

FAILURE = Outcome(ErrorType.HTTP_ERROR, "404", 404)
SLOW = Outcome(ErrorType.TIMEOUT, "slow")
AGAIN = Outcome(ErrorType.HTTP_ERROR, "503", 503)
STOPPED = Outcome(ErrorType.CANCELLED, "stopped")


def awaited(key: str, **fields: object) -> JobSpec:
    """A job that runs only when the test runs it."""
    return spec("on_demand", key=key, retry_policy=RetryPolicy(max_retries=0), **fields)


def after(*keys: str, **fields: object) -> JobSpec:
    return spec("on_demand", after=keys, **fields)


async def begin(store: Store, node: int, job_id: str, now: int = NOW, tenant: str = TENANT) -> Claim:
    await add_execution(store, job_id, now, tenant)
    (claim,) = await claim_waiting(store, node, now)
    return claim


async def end(store: Store, node: int, job_id: str, outcome: Outcome = SUCCESS, now: int = NOW) -> None:
    """Runs that job from start to end."""
    claim = await begin(store, node, job_id, now)
    assert await finish(store, node, now, ended(claim, outcome, now=now)) == []


async def due_at(store: Store, job_id: str) -> int | None:
    return (await job_of(store, job_id)).due_at


async def links(store: Store, job_id: str) -> dict[str, bool]:
    return {link.key: link.is_done for link in await store.list_links(job_id)}


async def test_a_job_is_due_when_its_predecessor_has_ended(store: Store, node: int):
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a"))
    assert await due_at(store, then) == LATEST
    await end(store, node, first, now=NOW + 5)
    assert await due_at(store, then) == NOW + 5
    _, (claim,) = await fire(store, node, NOW + 7)
    assert (claim.job_id, claim.trigger, claim.scheduled_at) == (then, Trigger.AFTER, NOW + 5)
    assert await due_at(store, then) == LATEST
    assert (await job_of(store, then)).status is JobStatus.PENDING


@pytest.mark.parametrize(
    ("on", "outcome", "starts"),
    [
        ("success", SUCCESS, True), ("success", FAILURE, False), ("success", SLOW, False),
        ("failure", SUCCESS, False), ("failure", FAILURE, True), ("failure", SLOW, True),
        ("any", SUCCESS, True), ("any", FAILURE, True), ("any", SLOW, True), ("any", STOPPED, False),
    ],
)  # fmt: skip
async def test_a_job_is_started_only_by_ends_of_the_kind_that_it_waits_for(
    store: Store, node: int, on: str, outcome: Outcome, starts: bool
):
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a", on=on))
    await end(store, node, first, outcome)
    assert await due_at(store, then) == (NOW if starts else LATEST)


async def test_a_retried_attempt_is_not_an_end(store: Store, node: int):
    first = await add_job(store, spec("on_demand", key="a"))
    then = await add_job(store, after("a", on="any"))
    await end(store, node, first, AGAIN)
    assert await due_at(store, then) == LATEST


async def test_a_job_waits_for_all_its_predecessors(store: Store, node: int):
    a, b = await add_job(store, awaited("a")), await add_job(store, awaited("b"))
    then = await add_job(store, after("a", "b"))
    await end(store, node, a, now=NOW + 1)
    await end(store, node, a, now=NOW + 2)
    assert await due_at(store, then) == LATEST
    assert await links(store, then) == {"a": True, "b": False}
    await end(store, node, b, now=NOW + 3)
    assert await due_at(store, then) == NOW + 3
    assert await links(store, then) == {"a": False, "b": False}


async def test_the_marks_are_cleared_when_the_job_starts(store: Store, node: int):
    a, b = await add_job(store, awaited("a")), await add_job(store, awaited("b"))
    then = await add_job(store, after("a", "b"))
    await end(store, node, a)
    await end(store, node, b)
    _, (claim,) = await fire(store, node, NOW + 1)
    await finish(store, node, NOW + 1, ended(claim, now=NOW + 1))
    await end(store, node, a, now=NOW + 2)
    assert await due_at(store, then) == LATEST
    await end(store, node, b, now=NOW + 3)
    assert await due_at(store, then) == NOW + 3


async def test_a_later_end_of_another_kind_removes_the_mark(store: Store, node: int):
    a, b = await add_job(store, awaited("a")), await add_job(store, awaited("b"))
    then = await add_job(store, after("a", "b"))
    await end(store, node, a)
    await end(store, node, a, STOPPED)
    assert await links(store, then) == {"a": True, "b": False}, "what was cancelled counts for nothing"
    await end(store, node, a, FAILURE)
    await end(store, node, b)
    assert await due_at(store, then) == LATEST
    await end(store, node, a)
    assert await due_at(store, then) == NOW


async def test_ends_in_one_page_count_in_their_order(store: Store, node: int):
    a, b = await add_job(store, awaited("a", overlap="allow")), await add_job(store, awaited("b"))
    then, never = await add_job(store, after("a", "b")), await add_job(store, after("b", "a", on="failure"))
    await end(store, node, b)
    good, bad = await begin(store, node, a), await begin(store, node, a)
    # The page has the later end first, and so does the order of the ids: the instants of the ends decide.
    await finish(store, node, NOW + 9, ended(bad, FAILURE, now=NOW + 8), ended(good, now=NOW + 7))
    assert await due_at(store, then) == NOW + 9
    assert await due_at(store, never) == LATEST
    assert await links(store, never) == {"a": True, "b": False}


async def test_ends_before_a_start_count_for_that_start(store: Store, node: int):
    a, b = await add_job(store, awaited("a")), await add_job(store, awaited("b"))
    then = await add_job(store, after("a", "b"))
    await end(store, node, a)
    await end(store, node, b, now=NOW + 1)
    await end(store, node, a, now=NOW + 2)
    await end(store, node, b, now=NOW + 3)
    assert await due_at(store, then) == NOW + 1
    await fire(store, node, NOW + 4)
    assert await due_at(store, then) == LATEST
    assert await links(store, then) == {"a": False, "b": False}


async def test_two_starts_never_share_an_instant(store: Store, node: int):
    """The clock stands still, or is set back: a decided instant gets no second decision."""
    a, then = await add_job(store, awaited("a")), await add_job(store, after("a", overlap="allow"))
    for _ in range(3):
        await end(store, node, a)
        assert await fire(store, node, NOW + SECOND, then)
    assert [e.scheduled_at for e in await executions_of(store, then)] == [NOW, NOW + 1, NOW + 2]


async def test_a_predecessor_can_be_created_later_and_replaced(store: Store, node: int):
    then = await add_job(store, after("a"))
    (link,) = await store.list_links(then)
    assert not link.is_there
    await end(store, node, await add_job(store, awaited("other")))
    assert await due_at(store, then) == LATEST
    await end(store, node, await add_job(store, awaited("a")))
    assert await due_at(store, then) == NOW


async def test_a_key_of_another_tenant_has_no_effect(store: Store, node: int):
    foreign = await add_job(store, awaited("a"), tenant="other")
    theirs = await add_job(store, after("a"), tenant="other")
    then = await add_job(store, after("a"))
    claim = await begin(store, node, foreign, tenant="other")
    await finish(store, node, NOW, ended(claim))
    assert await due_at(store, then) == LATEST
    assert (await job_of(store, theirs, "other")).due_at == NOW
    (link,) = await store.list_links(then)
    assert (link.is_done, link.is_there) == (False, False)
    # It does not close a loop either.
    await add_job(store, after("b", key="a"), tenant="third")
    await add_job(store, after("a", key="b"), tenant="fourth")


async def test_all_successors_of_a_job_and_no_other_jobs_are_due(store: Store, node: int):
    first = await add_job(store, awaited("a"))
    others = [await add_job(store, after("a")) for _ in range(30)]
    apart = await add_job(store, after("b"))
    await end(store, node, first)
    assert {await due_at(store, job_id) for job_id in others} == {NOW}
    assert await due_at(store, apart) == LATEST


async def test_an_end_by_a_lost_node_or_next_to_a_stale_result_counts(store: Store, node: int):
    """On PostgreSQL these use another statement."""
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a", on="failure"))
    stale = await begin(store, node, first)
    await finish(store, node, NOW, msgspec.structs.replace(ended(stale), token=7))
    assert await due_at(store, then) == LATEST
    lost = msgspec.structs.replace(expire(stale, NOW + 5), state=State.FAILED)
    late = msgspec.structs.replace(ended(stale), token=9)
    assert await finish(store, node, NOW + 5, lost, late) == [stale.execution_id]
    assert await due_at(store, then) == NOW + 5


async def test_an_unreadable_execution_counts_as_failed(store: Store, node: int, raw: Raw):
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a", on="failure"))
    await add_execution(store, first)
    await raw("UPDATE jobs SET spec = replace(spec, '\"schedule\"', '\"shedule\"') WHERE key = 'a'")
    assert await claim_waiting(store, node, NOW + 3) == []
    assert await due_at(store, then) == NOW + 3


# Pause, cancel, change, purge


async def test_a_start_during_a_pause_is_in_the_ledger(store: Store, node: int):
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a"))
    await one(store, c.PauseJob(NOW, TENANT, then, "ann", "x"))
    await end(store, node, first, now=NOW + 5)
    (skip,) = await store.list_skipped(then, 10)
    assert (skip.first_at, skip.until_at, skip.count, skip.reason) == (NOW + 5, NOW + 6, 1, "paused")
    assert await links(store, then) == {"a": False}
    await one(store, c.ResumeJob(NOW + 9, TENANT, then, 2, LATEST, None))
    assert await due_at(store, then) == LATEST


async def test_a_cancelled_job_waits_for_nothing(store: Store, node: int, raw: Raw):
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a"))
    await one(store, c.CancelJob(NOW, TENANT, then))
    await end(store, node, first)
    assert (await job_of(store, then)).status is JobStatus.CANCELLED
    assert await due_at(store, then) is None
    assert await raw("SELECT count(*) FROM chains") == [(0,)]


async def test_a_purge_removes_the_links(store: Store, raw: Raw):
    then = await add_job(store, after("a", "b"))
    assert await raw("SELECT count(*) FROM chains") == [(2,)]
    assert await one(store, c.PurgeJob(TENANT, then)) is False
    assert await raw("SELECT count(*) FROM chains") == [(0,)]


async def test_a_change_keeps_the_marks_of_unchanged_links(store: Store, node: int):
    a = await add_job(store, awaited("a"))
    then = await add_job(store, after("a", "b"))
    await end(store, node, a)
    await one(store, change_of(then, after("a", "c")))
    assert await links(store, then) == {"a": True, "c": False}
    await one(store, change_of(then, after("a", "c", on="any"), 2))
    assert await links(store, then) == {"a": False, "c": False}, "other ends count now"
    await one(store, change_of(then, spec("on_demand"), 3))
    assert await links(store, then) == {}


async def test_a_job_that_had_its_last_run_is_not_started_again(store: Store, node: int):
    first, then = await add_job(store, awaited("a")), await add_job(store, after("a", max_runs=1))
    await end(store, node, first)
    _, (claim,) = await fire(store, node, NOW + 1)
    assert await due_at(store, then) is None
    await end(store, node, first, now=NOW + 2)
    assert await due_at(store, then) is None
    await finish(store, node, NOW + 3, ended(claim, now=NOW + 3))
    assert (await job_of(store, then)).status is JobStatus.COMPLETED


# Loops


def way_of(refused: object) -> str:
    assert isinstance(refused, InvalidRequest), refused
    assert refused.errors[0].pointer == "/after"
    return refused.errors[0].message.split(": ")[1].split(";")[0]


async def refusal(store: Store, job: JobSpec) -> str:
    return way_of(await one(store, c.CreateJobs(NOW, (new_job(job),))))


async def test_a_loop_is_refused_and_none_of_its_jobs_is_stored(store: Store, raw: Raw):
    await add_job(store, after("c", key="a"))
    await add_job(store, after("a", "x", key="b"))
    assert await refusal(store, after("b", key="c")) == "c → a → b → c"
    assert await raw("SELECT count(*) FROM chains") == [(3,)]
    assert await store.get_job_by_key(TENANT, "c") is None
    await add_job(store, after("b"))  # no other job can name a job without a key: there is no loop


async def test_a_change_that_would_close_a_loop_is_refused(store: Store):
    a = await add_job(store, awaited("a"))
    await add_job(store, after("a", key="b"))
    assert way_of(await one(store, change_of(a, after("b", key="a")))) == "a → b → a"
    assert await links(store, a) == {}
    other = await add_job(store, after("b"))
    assert await one(store, change_of(other, after("b", key="c"))) == 2
    assert way_of(await one(store, change_of(a, after("c", key="a")))) == "a → b → c → a"


async def test_a_loop_within_a_page_is_refused_and_the_other_jobs_are_stored(store: Store):
    page = [new_job(after("b", key="a")), new_job(after("a", key="b")), new_job(after("b", key="c"))]
    assert way_of(await one(store, c.CreateJobs(NOW, tuple(page)))) in ("a → b → a", "b → a → b")
    first, second, third = await store.apply([c.CreateJobs(NOW, (job,)) for job in page])
    assert first is None
    assert way_of(second) == "b → a → b"
    assert third is None


@pytest.mark.usefixtures("several_connections")
async def test_two_halves_of_a_loop_created_concurrently_are_not_both_stored(
    make_store: MakeStore, store: Store, backend: str
):
    other = store if backend == "sqlite" else make_store()  # another node
    if other is not store:
        await other.start()
    try:
        for number in range(20):
            a, b = f"a{number}", f"b{number}"
            answers = await asyncio.gather(
                one(store, c.CreateJobs(NOW, (new_job(after(b, key=a)),))),
                one(other, c.CreateJobs(NOW, (new_job(after(a, key=b)),))),
            )
            assert sorted(answer is None for answer in answers) == [False, True]
    finally:
        if other is not store:
            await other.stop()


async def test_a_diamond_is_not_a_loop(store: Store):
    for key, keys in ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c")), ("a", ()):
        await add_job(store, after(*keys, key=key))


async def test_a_chain_of_a_thousand_jobs_can_be_created_in_any_order(store: Store, node: int):
    jobs = [new_job(after(f"k{n - 1}", key=f"k{n}") if n else awaited("k0")) for n in range(1000)]
    backwards = jobs[::-1]
    for begin_at in range(0, 1000, 250):
        assert await one(store, c.CreateJobs(NOW, tuple(backwards[begin_at : begin_at + 250]))) is None
    way = way_of(await one(store, change_of(jobs[0].job_id, after("k999", key="k0"))))
    assert way.startswith("k0 → k1 → k2")
    assert way.endswith("… → k0")
    await end(store, node, jobs[0].job_id)
    assert [timer.job_id for timer in await due_timers(store, NOW + 1)] == [jobs[1].job_id]


# Concurrency


@pytest.mark.usefixtures("several_connections")
async def test_two_predecessors_that_end_in_concurrent_transactions_start_their_successor_once(
    make_store: MakeStore, store: Store, node: int, backend: str
):
    if backend == "sqlite":
        pytest.skip("one writer: there are no two transactions at once")
    other = make_store()
    await other.start()
    try:
        for number in range(20):
            a, b = await add_job(store, awaited(f"a{number}")), await add_job(store, awaited(f"b{number}"))
            then = await add_job(store, after(f"a{number}", f"b{number}"))
            claims = [await begin(store, node, a), await begin(store, node, b)]
            await asyncio.gather(
                finish(store, node, NOW, ended(claims[0])),
                finish(other, node, NOW, ended(claims[1])),
            )
            assert await due_at(store, then) == NOW
    finally:
        await other.stop()


@pytest.mark.usefixtures("several_connections")
async def test_ends_of_jobs_of_one_chain_do_not_deadlock(
    make_store: MakeStore, store: Store, node: int, backend: str, monkeypatch: pytest.MonkeyPatch
):
    """Pages that end a and c, and b, of a → b → c: each locks the successors of the other."""
    if backend == "sqlite":
        pytest.skip("one writer: nobody waits")
    met: list[Exception] = []
    is_worth_another = WriterConnection._is_worth_another

    async def note(connection: WriterConnection, error: Exception, *, is_first: bool) -> bool:
        met.append(error)
        return await is_worth_another(connection, error, is_first=is_first)

    monkeypatch.setattr(WriterConnection, "_is_worth_another", note)
    other = make_store()
    await other.start()
    try:
        for number in range(15):
            keys = [f"{letter}{number}" for letter in "abc"]
            a = await add_job(store, awaited(keys[0]))
            b = await add_job(store, after(keys[0], key=keys[1]))
            last = await add_job(store, after(keys[1], key=keys[2]))
            claims = [await begin(store, node, job_id) for job_id in (a, b, last)]
            await asyncio.gather(
                finish(store, node, NOW, ended(claims[0]), ended(claims[2])), finish(other, node, NOW, ended(claims[1]))
            )
            assert (await due_at(store, b), await due_at(store, last)) == (NOW, NOW)
        assert met == [], "they did, until the server broke one of them off"
    finally:
        await other.stop()
