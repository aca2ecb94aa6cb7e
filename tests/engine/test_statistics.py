"""Statistics of a node: collected in memory, written each second, rolled up on one node of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from duetime.domain import commands as c
from duetime.domain.commands import Command
from duetime.domain.errors import Overloaded
from duetime.domain.execution import Outcome, conclude
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.plan import NewExecution, Skipped
from duetime.domain.states import Trigger
from duetime.domain.statistics import BUCKET, MOST_KEYS, OTHERS, StatisticsQuery, StatisticsRow, bucket_of, merged
from duetime.engine.statistics import RECOUNT_EVERY, RECOUNT_FIRST, ROLL_UP_EVERY, Collected, Statistics
from duetime.ports.store import Store
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.hub import Telemetry
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, claim_of, spec

ALL = StatisticsQuery(since=0, until=2**50, subject=None)


class Recording:
    """A store that notes the commands that it gets, and fails as long as the test wants."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commands: list[Command] = []
        self.fails = False

    async def apply(self, commands: Sequence[Command]) -> list[object]:
        if self.fails:
            raise Overloaded("the database is away")
        self.commands += commands
        return await self._store.apply(commands)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def of(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.commands if type(command) is kind]


class Scene:
    def __init__(self, store: Store, clock: HandClock) -> None:
        self.hub, self.clock, self.store = Telemetry(), clock, Recording(store)
        self.collected = Collected(self.hub, clock)
        self.collected.node = 7
        self.owns_housekeeping = self.is_clock_right = True
        self.service = self.make(alone=True)

    def make(self, *, alone: bool) -> Statistics:
        return Statistics(
            self.store, self.clock, self.collected, lambda: self.owns_housekeeping,  # type: ignore[arg-type]
            lambda: self.is_clock_right, alone=alone,
        )  # fmt: skip

    def end(self, number: int = 1, tenant: str = TENANT, **fields: object) -> None:
        now = self.clock.now()
        results = []
        for _ in range(number):
            claim = claim_of(spec(), tenant=tenant, scheduled_at=now - 5, **fields)
            results.append((claim, conclude(claim, Outcome(), now - 1, now, 0.0)))
        self.hub.emit(AttemptsEnded(now, results, ()))

    async def rows(self) -> list[StatisticsRow]:
        return await self.store.list_statistics(ALL)  # type: ignore[operator,no-any-return]


@pytest.fixture
def scene(store: Store, clock: HandClock) -> Scene:
    return Scene(store, clock)


async def test_ends_are_written_once_a_second_and_only_if_there_are_new_ones(scene: Scene):
    scene.end(3)
    assert await scene.service.run_once() == scene.clock.now() + SECOND
    (row,) = await scene.rows()
    assert (row.bucket_at, row.key, row.node) == (bucket_of(scene.clock.now()), (TENANT, "http_request", ""), 7)
    assert (row.tally.completed, row.tally.lateness.total) == (3, 12)
    writes = len(scene.store.of(c.WriteStatistics))
    await scene.service.run_once()
    assert len(scene.store.of(c.WriteStatistics)) == writes, "nothing has ended since"
    scene.end(2)
    await scene.service.run_once()
    assert [row.tally.completed for row in await scene.rows()] == [5]


async def test_what_could_not_be_written_is_written_later(scene: Scene):
    scene.end(3)
    scene.store.fails = True
    with pytest.raises(Overloaded):
        await scene.service.flush()
    scene.store.fails = False
    await scene.service.flush()
    assert merged(await scene.rows()).completed == 3


async def test_a_stop_writes_what_is_left(scene: Scene):
    scene.end(4)
    await scene.service.stop()
    assert merged(await scene.rows()).completed == 4


async def test_a_written_row_does_not_change_with_later_ends(scene: Scene):
    scene.end()
    (row,) = scene.collected.take()
    scene.end()
    assert row.tally.completed == 1


async def test_skips_of_a_fire_count_unless_it_was_refused(scene: Scene):
    new = NewExecution("e1", "j1", TENANT, NOW, Trigger.SCHEDULE, 5, 1, "skip")
    fire = c.Fire(1, scene.clock.now(), True, (), (new,), (Skipped("j1", TENANT, 0, 9, 4, "missed"),))
    fired = c.Fired(not_claimed=frozenset({"e1"}), skipped=frozenset({"e1"}))
    scene.hub.emit(Written([fire, fire], [fired, Overloaded("no")], 0.1))
    (row,) = scene.collected.take()
    assert row.key == (TENANT, "", "")
    assert row.tally.skipped == {"missed": 4, "overlap": 1}


async def test_instants_skipped_by_a_pause_count_when_it_ends(scene: Scene):
    resume = c.ResumeJob(scene.clock.now(), TENANT, "j1", 1, None, Skipped("j1", TENANT, 0, 9, 6, "paused"))
    scene.hub.emit(Written([resume], ["PENDING"], 0.1))
    assert [row.tally.skipped for row in scene.collected.take()] == [{"paused": 6}]


async def test_only_watched_jobs_have_rows_of_their_own(scene: Scene):
    scene.end(job_id="one")
    scene.collected.watch([(TENANT, "job:one")])
    scene.end(job_id="one")
    scene.end(job_id="two")
    found = {row.key[2]: row.tally.completed for row in scene.collected.take()}
    assert found == {"": 3, "job:one": 1}


async def test_a_bucket_has_a_bounded_number_of_tenants(scene: Scene):
    for number in range(MOST_KEYS + 5):
        scene.end(tenant=f"t{number}")
    scene.end(tenant="t0")
    rows = scene.collected.take()
    assert len(rows) == MOST_KEYS + 1
    found = {row.tenant: row.tally.completed for row in rows}
    assert (found[OTHERS], found["t0"]) == (5, 2)


async def test_watched_subjects_of_other_tenants_take_no_rows_from_those_of_a_tenant(scene: Scene):
    others = [(f"a-evil{number // 100}", f"job:{number}") for number in range(2 * MOST_KEYS)]
    scene.collected.watch([*others, (TENANT, "job:mine")])
    for tenant, subject in others:
        scene.end(tenant=tenant, job_id=subject.removeprefix("job:"))
    scene.end(job_id="mine")
    rows = scene.collected.take()
    assert [row.tally.completed for row in rows if row.key == (TENANT, "http_request", "job:mine")] == [1]
    assert len([row for row in rows if row.subject]) <= MOST_KEYS


async def test_memory_of_old_buckets_is_freed(scene: Scene):
    for _ in range(100):
        scene.end()
        scene.collected.take()
        scene.clock.advance(BUCKET / SECOND)
    assert len(scene.collected._buckets) <= 2 * MINUTE / BUCKET + 1


async def test_old_rows_are_rolled_up_and_at_last_removed(scene: Scene):
    scene.end(5)
    await scene.service.run_once()
    spans = []
    for step in (4 * MINUTE, 3 * HOUR, 32 * DAY):
        scene.clock.advance(step / SECOND)
        await scene.service.run_once()
        spans.append([(row.span, row.tally.completed) for row in await scene.rows()])
    assert spans == [[(MINUTE, 5)], [(HOUR, 5)], []]


@pytest.mark.parametrize("reason", ["owns_housekeeping", "is_clock_right"])
async def test_nothing_is_rolled_up_elsewhere_or_with_a_wrong_clock(scene: Scene, reason: str):
    scene.end()
    await scene.service.run_once()
    setattr(scene, reason, False)
    scene.clock.advance(4 * MINUTE / SECOND)
    await scene.service.run_once()
    assert scene.store.of(c.RollUpStatistics) == []
    setattr(scene, reason, True)
    scene.clock.advance(ROLL_UP_EVERY / SECOND)
    await scene.service.run_once()
    assert [row.span for row in await scene.rows()] == [MINUTE]


async def test_an_idle_node_writes_nothing(scene: Scene):
    for _ in range(10):
        await scene.service.run_once()
        scene.clock.advance(MINUTE / SECOND)
    assert scene.store.commands == []


async def test_where_other_versions_may_run_totals_are_recounted_each_day(scene: Scene):
    service = scene.make(alone=False)
    counts = []
    for step in (0, RECOUNT_FIRST, RECOUNT_FIRST, RECOUNT_EVERY):
        scene.clock.advance(step / SECOND)
        await service.run_once()
        counts.append(len(scene.store.of(c.RecountJobs)))
    assert counts == [0, 1, 1, 2]


async def test_an_engine_collects_what_it_runs(stage: Stage, executor: ScriptedExecutor):
    engine = await stage.join()
    await stage.add_job(spec())
    stage.clock.advance(MINUTE / SECOND)
    await stage.turn_timer()
    await engine.term.statistics.run_once()
    rows = await stage.store.list_statistics(ALL)
    assert merged(rows).completed == 1
    assert {row.node for row in rows} == {engine.node}
    facts = engine.facts()
    assert (facts.name, facts.in_flight, facts.unwritten, facts.standing) == ("node-1", 0, 0, "trusted")


async def test_rows_of_a_process_keep_their_writer_over_its_terms(stage: Stage):
    engine = await stage.join()
    first = engine.node
    await engine.join()
    assert engine.node != first
    assert engine._around.collected.node == first
