"""What a node publishes is in the log soon after: a page for each moment, once, also when a write fails."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain.errors import Overloaded
from duetime.domain.event_log import OMITTED, PAGE_EVENTS, WINDOW, StoredEvent
from duetime.domain.hint import Hint
from duetime.domain.instants import LATEST, MINUTE
from duetime.domain.job import Overlap
from duetime.engine.event_log import GATHER_MS, EventFeeding, EventLog
from duetime.engine.service import Service
from duetime.events import EventFeed
from duetime.events.hub import LOCAL_OPERATOR
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import TENANT, spec

Sent = list[Hint]


class Flaky:
    """A store whose writes fail: before or after the write itself."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.fails: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, commands: Any) -> list[Any]:
        how = self.fails.pop(0) if self.fails else ""
        if how == "before":
            raise Overloaded("away")
        answers: list[Any] = await self._store.apply(commands)
        if how == "after":
            raise Overloaded("the connection broke")
        return answers


@pytest.fixture
def flaky(stage: Stage) -> Flaky:
    return Flaky(stage.store)


@pytest.fixture
def sent() -> Sent:
    return []


@pytest.fixture
def log(stage: Stage, flaky: Flaky, sent: Sent) -> EventLog:
    feeding = EventFeeding(EventFeed(stage.store), stage.clock)
    return EventLog(flaky, stage.clock, stage.events, feeding, bytes, sent.append)  # type: ignore[arg-type]


async def logged(stage: Stage, tenant: str = TENANT) -> list[list[StoredEvent]]:
    """Returns the events of each page."""
    return [row.events for row in (await stage.store.list_events(0, [tenant], 1000)).rows]


def publish(stage: Stage, count: int = 1, tenant: str = TENANT) -> None:
    for number in range(count):
        stage.events.publish("job.created", stage.clock.now(), tenant, {"number": number}, "ann")


async def test_events_of_a_moment_are_one_page(stage: Stage, log: EventLog, sent: Sent) -> None:
    assert await log.run_once() == LATEST, "nothing happens, and nothing is written"
    publish(stage, 2)
    assert await log.run_once() == stage.clock.now() + GATHER_MS
    stage.clock.advance(GATHER_MS / 2000)
    publish(stage)
    assert await logged(stage) == []
    stage.clock.advance(GATHER_MS / 2000)
    assert await log.run_once() == LATEST
    (page,) = await logged(stage)
    assert [(event.kind, event.owner) for event in page] == [("job.created", "ann")] * 3
    assert sent == [Hint(events=True)]
    assert await log.run_once() == LATEST
    assert len(sent) == 1


async def test_a_clock_that_is_set_back_delays_no_page(stage: Stage, log: EventLog) -> None:
    publish(stage)
    await log.run_once()
    stage.clock.jump(-3600)
    assert await log.run_once() == stage.clock.now() + GATHER_MS


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_page_whose_write_fails_is_logged_once_and_before_later_ones(
    stage: Stage, log: EventLog, flaky: Flaky, how: str
) -> None:
    flaky.fails = [how, how]
    publish(stage)
    for _ in flaky.fails.copy():
        with pytest.raises(Overloaded):
            await log.flush()
        publish(stage, 3)
    await log.flush()
    await log.flush()
    assert [len(page) for page in await logged(stage)] == [1, 6]


async def test_a_burst_is_a_bounded_page_that_tells_what_is_omitted(stage: Stage, log: EventLog) -> None:
    for _ in range(3):
        for tenant in (TENANT, "quiet"):
            publish(stage, 2000 if tenant == TENANT else 2, tenant)
        await log.flush()
    for page in await logged(stage):
        *kept, omitted = page
        assert len(kept) == PAGE_EVENTS - 2
        assert omitted.kind == OMITTED
        assert omitted.data == {"count": 2000 - len(kept), "kinds": {"job.created": 2000 - len(kept)}}
    assert [len(page) for page in await logged(stage, "quiet")] == [2, 2, 2]


async def test_a_stop_logs_what_was_gathered(stage: Stage, log: EventLog) -> None:
    publish(stage)
    await log.stop()
    assert len(await logged(stage)) == 1


async def test_an_engine_tells_of_itself_and_of_its_executions(stage: Stage, executor: ScriptedExecutor) -> None:
    engine = stage.make_engine(node_name="n1")
    await engine.start()
    job_id = await stage.add_job(spec("immediate"))
    stage.engine.term.timer.wake()
    await executor.until_started(1)
    await engine.stop()
    events = [event for page in await logged(stage) for event in page]
    assert [event.kind for event in events] == ["execution.started", "execution.completed"]
    assert [event.data["job_id"] for event in events] == [job_id] * 2
    events = [event for page in await logged(stage, LOCAL_OPERATOR) for event in page]
    assert [event.kind for event in events] == ["node.joined", "node.left"]
    assert events[0].data == {"node": engine.node, "name": "n1"}


def kinds_of(stage: Stage, kind: str) -> list[dict[str, object]]:
    return [event.data for event in stage.events.list_gathered() if event.kind == kind]


async def test_each_skipped_instant_has_an_event_with_its_reason(stage: Stage, executor: ScriptedExecutor) -> None:
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(spec("every 10s", overlap=Overlap.SKIP), due_at=stage.clock.now())
    await stage.tick()
    await stage.pass_time(10)
    (overlap,) = kinds_of(stage, "execution.skipped")
    assert (overlap["job_id"], overlap["reason"], overlap["count"], overlap["state"]) == (
        job_id,
        "overlap",
        1,
        "SKIPPED",
    )
    (execution,) = [one for one in await stage.executions(job_id) if one.state == "SKIPPED"]
    assert overlap["execution_id"] == execution.execution_id


async def test_instants_that_were_missed_are_one_event(stage: Stage) -> None:
    await stage.join()
    job_id = await stage.add_job(spec("every 10s"), due_at=stage.clock.now())
    stage.clock.advance(600)
    await stage.tick()
    missed = kinds_of(stage, "execution.skipped")
    assert [(one["job_id"], one["reason"]) for one in missed] == [(job_id, "missed")]
    (span,) = await stage.store.list_skipped(job_id, 10)
    assert missed[0]["count"] == span.count
    assert span.count is not None
    assert span.count > 50


async def test_old_events_are_pruned_once_a_minute(stage: Stage, log: EventLog) -> None:
    await stage.join()
    publish(stage)
    await log.flush()
    retention = stage.engine.term.retention
    await retention.run_once()
    assert len(await logged(stage)) == 1
    stage.clock.advance((WINDOW + MINUTE) / 1000)
    await retention.run_once()
    assert await logged(stage) == []


async def test_a_job_that_is_swept_has_an_event(stage: Stage) -> None:
    await stage.join(history_seconds=3600)
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    for _ in range(4):
        stage.clock.advance(3600)
        await stage.engine.term.retention.run_once()
    assert kinds_of(stage, "job.removed") == [{"job_id": job_id}]


async def test_the_feed_reads_once_a_second_while_somebody_follows(stage: Stage, clock: HandClock) -> None:
    made = EventFeed(stage.store)
    feeding: Service = EventFeeding(made, clock)
    assert await feeding.run_once() == LATEST
    follower = await made.follow(TENANT, None, lambda: None)
    assert await feeding.run_once() == clock.now() + 1000
    await stage.apply(c.AddEvents(1, 1, clock.now(), ()))
    follower.close()
    assert await feeding.run_once() == LATEST
