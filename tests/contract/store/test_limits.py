"""Limits of a user on jobs and requests: each is counted once, and only if it was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from contract.store.conftest import MakeStore, Raw
from duetime.domain import commands as c
from duetime.domain.capacity import Capacity
from duetime.domain.errors import Conflict, DuetimeError, IdempotencyKeyReused, InsufficientStorage, QuotaExceeded
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.limits import MICRO, Limit, Quota, remaining
from duetime.ports.store import JobQuery, Store
from samples import NOW, TENANT, add_job, new_job, one, spec

JOBS = Limit("jobs", 100, DAY)  # one each 864 s
REQUESTS = Limit("requests", 60, HOUR)  # one a minute
ANNS, BOBS = Quota(TENANT, "ann", JOBS), Quota(TENANT, "bob", JOBS)


def create(count: int = 1, now: int = NOW, quota: Quota = ANNS, key: str | None = None) -> c.CreateJobs:
    return c.CreateJobs(now, tuple(new_job(spec(key=key), now=now) for _ in range(count)), quota=quota)


async def left(store: Store, quota: Quota = ANNS, now: int = NOW) -> int:
    """Returns how many more pass, without using any."""
    granted, full_at = await one(store, c.TakeRequests(now, quota, 0))
    assert granted == 0
    return remaining(quota.limit, full_at, now)


@pytest.fixture(autouse=True)
async def taken(store: Store) -> None:
    await add_job(store, spec(key="always taken"))


async def test_a_hundred_creates_pass_and_the_next_one_after_the_wait(store: Store):
    assert await store.apply([create() for _ in range(100)]) == [None] * 100
    refused = await one(store, create())
    assert isinstance(refused, QuotaExceeded)
    assert (refused.retry_after, refused.status, refused.code) == (864, 429, "QUOTA_EXCEEDED")
    assert refused.message == "you may have 100 new jobs a day; try again in 15 minutes"
    later = NOW + 300 * SECOND
    assert (await one(store, create(now=later))).retry_after == 564
    assert isinstance(await one(store, create(now=later + 564 * SECOND - 1)), QuotaExceeded)
    assert await one(store, create(now=later + 564 * SECOND)) is None
    assert (await one(store, create(now=later + 564 * SECOND))).retry_after == 864
    assert await store.count_jobs(JobQuery(TENANT)) == 1 + 101


@pytest.mark.parametrize("size", [1, 30])
async def test_a_refused_create_uses_no_quota(store: Store, size: int):
    await one(store, create(80))
    for _ in range(5):
        refused = await one(store, create(30))
        assert isinstance(refused, QuotaExceeded)
        assert refused.retry_after == 10 * 864
        assert "of which 20 are left" in refused.message
    assert await store.count_jobs(JobQuery(TENANT)) == 1 + 80
    assert await one(store, create(20)) is None
    assert isinstance(await one(store, create(size)), QuotaExceeded)


async def test_a_create_that_fails_for_another_reason_uses_no_quota(store: Store):
    record = c.IdempotencyRecord(TENANT, "k", "f", "r")
    other = c.IdempotencyRecord(TENANT, "k", "another body", "r")
    await store.apply([c.CreateJobs(NOW, (new_job(),), record)])
    await one(store, create(90))
    failing: Sequence[tuple[c.CreateJobs, object]] = [
        (create(key="always taken"), Conflict),
        (c.CreateJobs(NOW, (new_job(), new_job(spec(key="always taken"))), quota=ANNS), Conflict),
        (c.CreateJobs(NOW, (new_job(),), other, ANNS), IdempotencyKeyReused),
        (c.CreateJobs(NOW, (new_job(),), record, ANNS), str),  # a repeat: not applied again
    ]
    for command, answer in failing:
        assert type(await one(store, command)) is answer
    assert [type(answer) for answer in await store.apply([command for command, _ in failing])] == [
        a for _, a in failing
    ]
    assert await left(store) == 10


async def test_a_create_without_room_uses_no_quota(make_store: MakeStore, store: Store):
    await store.stop()
    full = make_store(Capacity(most_jobs=11))
    await full.start()
    assert await one(full, create(10)) is None
    for _ in range(3):
        assert isinstance(await one(full, create()), InsufficientStorage)
    await full.stop()
    again = make_store()
    await again.start()
    assert await left(again) == 90
    await again.stop()


async def test_each_user_has_a_quota_of_their_own(store: Store):
    """Also if their creates share a commit, and one user has used up the quota."""
    elsewhere, as_admin = Quota("other", "ann", JOBS), Quota(TENANT, "ann", Limit("jobs", 10, DAY))
    await one(store, create(98))
    order = [ANNS, BOBS, ANNS, ANNS, BOBS, elsewhere, ANNS, BOBS]
    answers = await store.apply([create(quota=quota) for quota in order])
    assert [isinstance(answer, QuotaExceeded) for answer in answers] == [n in (3, 6) for n in range(8)]
    assert [await left(store, quota) for quota in (ANNS, BOBS, elsewhere, as_admin)] == [0, 97, 99, 0]


async def test_creates_that_share_a_commit_use_the_same_quota_as_one_by_one(store: Store):
    await one(store, create(95))
    answers = await store.apply([create(3), create(3), create(2), create(1)])
    assert [isinstance(answer, QuotaExceeded) for answer in answers] == [False, True, False, True]
    assert await left(store) == 0
    assert await store.count_jobs(JobQuery(TENANT)) == 1 + 100


async def test_creates_without_a_quota_next_to_those_with_one_use_nothing(store: Store):
    answers = await store.apply(
        [create(100), c.CreateJobs(NOW, (new_job(),)), create(), c.CreateJobs(NOW, (new_job(),))]
    )
    assert [type(answer) for answer in answers] == [type(None), type(None), QuotaExceeded, type(None)]


@pytest.mark.usefixtures("several_connections")
async def test_concurrent_creates_pass_up_to_the_quota(store: Store):
    answers = await asyncio.gather(*(one(store, create(quota=q)) for n in range(150) for q in (ANNS, BOBS)))
    for first in (0, 1):
        mine = answers[first::2]
        assert sum(answer is None for answer in mine) == 100
        assert sum(isinstance(answer, QuotaExceeded) for answer in mine) == 50
    assert await store.count_jobs(JobQuery(TENANT)) == 1 + 200


async def test_used_quota_survives_a_restart(make_store: MakeStore, store: Store):
    await one(store, create(70))
    await store.stop()
    again = make_store()
    await again.start()
    assert await left(again) == 30
    assert await left(again, now=NOW + 864 * SECOND) == 31
    assert await left(again, now=NOW + DAY) == 100
    await again.stop()


# Requests


async def take(store: Store, wanted: int, now: int = NOW, given_back: int = 0, user: str = "ann") -> tuple[int, int]:
    granted, full_at = await one(store, c.TakeRequests(now, Quota(TENANT, user, REQUESTS), wanted, given_back))
    return granted, full_at - now * MICRO


async def test_requests_are_reserved_as_far_as_available(store: Store):
    minute = MINUTE * MICRO
    assert await take(store, 40) == (40, 40 * minute)
    assert await take(store, 40) == (20, 60 * minute)
    assert await take(store, 40) == (0, 60 * minute)
    assert await take(store, 40, NOW + MINUTE - 1) == (0, 59 * minute + MICRO)
    assert await take(store, 40, NOW + MINUTE) == (1, 60 * minute)
    assert await take(store, 5, user="bob") == (5, 5 * minute)
    assert await take(store, 100, NOW + DAY) == (60, 60 * minute)


async def test_unused_requests_are_given_back(store: Store):
    await take(store, 60)
    assert (await take(store, 0, given_back=10))[0] == 0
    assert (await take(store, 40))[0] == 10
    assert (await take(store, 5, given_back=3))[0] == 3
    await take(store, 0, given_back=60)
    assert (await take(store, 100))[0] == 60, "who gives back has no more than anybody"


async def test_a_node_whose_clock_is_behind_gets_a_response_without_requests(store: Store):
    await take(store, 60, NOW + SECOND)
    assert (await take(store, 5, NOW))[0] == 0
    assert (await take(store, 0, NOW))[0] == 0


async def test_requests_and_jobs_have_separate_limits(store: Store):
    await one(store, create(100))
    assert (await take(store, 60))[0] == 60
    answers = await store.apply(
        [c.TakeRequests(NOW, Quota(TENANT, "bob", REQUESTS), 7), create(quota=BOBS), create(),
         c.TakeRequests(NOW, Quota(TENANT, "bob", REQUESTS), 60)]
    )  # fmt: skip
    assert [answers[0][0], answers[1], type(answers[2]), answers[3][0]] == [7, None, QuotaExceeded, 53]


@pytest.mark.usefixtures("several_connections")
async def test_concurrent_takes_never_get_the_same_tokens(store: Store):
    granted = [answer[0] for answer in await asyncio.gather(*(take(store, 7) for _ in range(40)))]
    assert sum(granted) == 60
    assert sorted(granted, reverse=True)[:9] == [7] * 8 + [4]


async def test_a_user_id_may_have_any_characters(store: Store, raw: Raw):
    names = ["", "ann", "Ann", "ü", "' OR 1 = 1 --", "a" * 500]
    for name in names:
        answer = await one(store, create(quota=Quota("", name, JOBS)))
        assert not isinstance(answer, DuetimeError)
    assert await raw("SELECT count(*) FROM limits") == [(len(names),)]
