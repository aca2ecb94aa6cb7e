"""The application on a real store in this process, for tests that set the clock by hand or send requests at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pytest

from duetime.api.context import ApiContext, ApiLimits, ClusterState, CreationRules, EngineLink
from duetime.api.routes import events as event_routes
from duetime.api.routes.actions import JobActionController, list_coming
from duetime.api.routes.batch import _Batch
from duetime.api.routes.create import create_job
from duetime.api.routes.executions import ExecutionController
from duetime.bus.local import LocalBus
from duetime.domain.capacity import UNBOUNDED
from duetime.domain.commands import Command
from duetime.domain.defaults import OperatorDefaults
from duetime.domain.errors import Conflict
from duetime.domain.event_log import OMITTED
from duetime.domain.execution import Outcome
from duetime.domain.grants import KeyLimits
from duetime.domain.identity import LOCAL, Right, Role
from duetime.domain.ids import SHARDS
from duetime.domain.job import JobType
from duetime.domain.lease import Standing
from duetime.domain.limits import TierLimits
from duetime.domain.node_report import NodeFacts
from duetime.domain.states import ErrorType
from duetime.engine.engine import Engine
from duetime.engine.event_log import EventFeeding, EventLog
from duetime.engine.settings import EngineSettings
from duetime.events import Event, EventFeed, EventHub
from duetime.ports.store import Store
from duetime.ports.vault import NoVault
from duetime.registry.embedded import EmbeddedRegistry
from duetime.store.sqlite import SqliteStore
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.metrics import Metrics
from duetime.testing import HandClock, ScriptedExecutor

T = TypeVar("T")

NO_ENGINE = EngineLink(
    due_hint=lambda at: None,
    waiting_hint=lambda at: None,
    circuits_hint=lambda: None,
    subscriptions_hint=lambda: None,
    signing_hint=lambda state: None,
    cancel=lambda execution_id: False,
    subscriptions=lambda tenant: (),
    worker_gateway=cast(Any, None),
    cluster=lambda: ClusterState(1, "node-1", Standing.TRUSTED, range(SHARDS), None),
    health=dict,
    readings=cast(Any, None),
    facts=NodeFacts,
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def context(tmp_path: Path, clock: HandClock) -> AsyncIterator[ApiContext]:
    store = SqliteStore(tmp_path)
    await store.start()
    yield ApiContext(
        store=store,
        clock=clock,
        events=EventHub(),
        feed=EventFeed(store),
        random_bytes=os.urandom,
        vault=NoVault(),
        logs=cast(Any, None),
        metrics=Metrics(Telemetry()),
        readings=cast(Any, None),
        telemetry=Telemetry(),
        engine=NO_ENGINE,
        limits=ApiLimits(tiers=TierLimits(), capacity=UNBOUNDED, keys=KeyLimits(10, 10), connections=None),
        rules=CreationRules(
            types=frozenset(JobType),
            defaults=OperatorDefaults(),
            target_refusal=lambda url: None,
            connection_refusal=lambda url: None,
            channel_refusal=lambda kind, url: None,
        ),
        forget_key=lambda key_id: None,
        derive_keys=lambda tenant, version: (),
    )
    await store.stop()


def body(schedule: str) -> bytes:
    return json.dumps({"name": "x", "schedule": schedule, "payload": {"url": "http://example.org"}}).encode()


async def test_a_repeat_gets_the_same_response_after_its_instant_has_passed(
    context: ApiContext, clock: HandClock
) -> None:
    once = body("2026-01-01T00:10:00Z")
    first = await create_job(context, LOCAL, once, "key")
    clock.advance(3600)
    assert await create_job(context, LOCAL, once, "key") == first


async def test_waiting_events_are_sent_in_one_piece_and_then_the_stream_pauses(
    context: ApiContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_routes, "PAUSE_SECONDS", 3600)
    place = context.streams.enter(LOCAL)
    assert place is not None
    feeding = EventFeeding(context.feed, context.clock)
    event_log = EventLog(context.store, context.clock, context.events, feeding, os.urandom, lambda hint: None)
    frames = event_routes._frames(context, LOCAL, None, place)
    assert await anext(frames) == b": following\n\n"
    assert await anext(frames) == b"id: 1023\n\n"
    publish = partial(context.events.publish, "job.created", 0, LOCAL.tenant)

    async def logged() -> None:
        await event_log.flush()
        await feeding.run_once()

    for number in range(100):
        publish({"number": number})
    await logged()
    sent = await anext(frames)
    assert [f'"number":{number}}}'.encode() in sent for number in range(100)] == [True] * 100
    following = asyncio.ensure_future(anext(frames))
    for number in range(100):
        publish({"number": number})
        await logged()
    assert not following.done(), "each event would wake every stream"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_the_second_of_two_concurrent_repeats_is_refused(context: ApiContext) -> None:
    far = body("2099-01-01T00:00:00Z")
    first, second = await asyncio.gather(
        create_job(context, LOCAL, far, "key"), create_job(context, LOCAL, far, "key"), return_exceptions=True
    )
    assert isinstance(first, bytes)
    assert isinstance(second, Conflict)
    assert "under way" in str(second)
    assert await create_job(context, LOCAL, far, "key") == first


async def turns_of_others(work: Coroutine[Any, Any, T]) -> tuple[int, T]:
    """Returns how often other tasks ran during the work, and its result."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    turns = 0
    result = await work
    counting.cancel()
    return turns, result


class TestBatch:
    async def test_refused_lines_yield_to_other_requests(self, context: ApiContext) -> None:
        batch = _Batch(context, LOCAL)
        bad = [json.dumps({**json.loads(body("every 1h")), "timezone": f"Nowhere/{number}"}) for number in range(2000)]
        turns, _ = await turns_of_others(batch.add("\n".join(bad).encode()))
        assert turns >= 5
        result = await batch.finish()
        assert (result.refused_count, result.also_refused) == (2000, {"INVALID_SCHEDULE": list(range(1000, 2000))})

    async def test_the_messages_about_refused_lines_are_limited(self, context: ApiContext) -> None:
        batch = _Batch(context, LOCAL)
        headers = {f"bad name {number} {'x' * 100}": "x" for number in range(500)}
        wordy = json.loads(body("every 1h"))
        wordy["payload"]["headers"] = headers
        for _ in range(3):
            await batch.add(json.dumps(wordy).encode())
        await batch.add(b"\n".join([b"{"] * 2997 + [body("every 1h")] + [b"{"] * 2))
        result = await batch.finish()
        assert (result.created_count, result.refused_count) == (1, 3002)
        assert [item.index for item in result.refused] == list(range(1000))
        assert result.also_refused == {"INVALID_REQUEST": [*range(1000, 3000), 3001, 3002]}
        assert len(msgspec.json.encode(result)) < 400_000


class TestComing:
    async def test_far_instants_yield_to_other_requests(self, context: ApiContext) -> None:
        made = json.loads(await create_job(context, LOCAL, body("0 0 29 2 *"), None))
        record = await context.store.get_job("default", made["job_id"])
        assert record is not None
        turns, coming = await turns_of_others(list_coming(record, 1000))
        assert len(coming) == 1000
        assert turns >= 3


class TestRetry:
    async def test_the_second_of_two_retries_of_one_dead_letter_is_refused(
        self, context: ApiContext, clock: HandClock
    ) -> None:
        _, dead = await fail(context, clock)
        retry = partial(ExecutionController.retry_execution.fn, None, at_once(context), LOCAL, dead)
        answers = await asyncio.gather(retry(), retry(), return_exceptions=True)
        (refused,) = [answer for answer in answers if isinstance(answer, Conflict)]
        (queued,) = [answer for answer in answers if answer is not refused]
        assert await context.store.get_execution(LOCAL.tenant, queued.execution_id) is not None

    async def test_two_concurrent_retries_of_one_job_return_executions_that_exist(
        self, context: ApiContext, clock: HandClock
    ) -> None:
        job_id, dead = await fail(context, clock)
        retry = partial(JobActionController.retry_job.fn, None, at_once(context), LOCAL, job_id)
        for queued in await asyncio.gather(retry(), retry()):
            assert await context.store.get_execution(LOCAL.tenant, queued.execution_id) is not None
        record = await context.store.get_execution(LOCAL.tenant, dead)
        assert record is not None
        assert not record.dead


class Together:
    """A store that starts the first two writes only when both have arrived."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._barrier = asyncio.Barrier(2)
        self._writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        self._writes += 1
        if self._writes <= 2:
            await self._barrier.wait()
        return await self._store.apply(commands)


def at_once(context: ApiContext) -> ApiContext:
    return msgspec.structs.replace(context, store=Together(context.store))


async def fail(context: ApiContext, clock: HandClock) -> tuple[str, str]:
    """Returns a job whose only execution is a dead letter, and that execution."""
    engine = Engine(
        context.store,
        EmbeddedRegistry(),
        LocalBus(),
        ScriptedExecutor(Outcome(error_type=ErrorType.HTTP_ERROR, http_status=404)),
        clock,
        context.events,
        EngineSettings(),
    )
    woken = asyncio.Event()
    following = context.events.follow(LOCAL.tenant, woken.set)
    await engine.start()
    made = json.loads(await create_job(context, LOCAL, body("immediate"), None))
    engine.term.timer.hint(clock.now())
    failed: list[Event] = []
    while not failed:
        await woken.wait()
        woken.clear()
        failed = [event for event in following.take() if event is not None and event.kind == "execution.failed"]
    await engine.stop()
    return made["job_id"], str(failed[0].data["execution_id"])


def test_the_counts_of_omitted_events_are_for_admins() -> None:
    event = Event(OMITTED, 0, LOCAL.tenant, {"count": 7, "kinds": {"job.created": 7}}, None, 5)
    assert b'"count":7' in event_routes._frame(event, True)
    assert b"7" not in event_routes._frame(event, False).partition(b"data: ")[2].partition(b"message")[2]


async def test_a_user_sees_events_of_own_jobs_and_none_of_nodes(context: ApiContext) -> None:
    user = msgspec.structs.replace(LOCAL, user_id="ann", role=Role.USER, rights=frozenset({Right.READ}))
    sight = event_routes._Sight(context, user)
    events = [
        Event("job.created", 0, LOCAL.tenant, {"job_id": "1"}, "ann"),
        Event("job.created", 0, LOCAL.tenant, {"job_id": "2"}, "bob"),
        Event("node.joined", 0, LOCAL.tenant, {"node": 1}),
        Event("worker.left", 0, LOCAL.tenant, {"worker": 1}, "ann"),
        Event(OMITTED, 0, LOCAL.tenant, {"count": 1}),
    ]
    assert [await sight.covers(event) for event in events] == [True, False, False, True, True]
