"""Each metric is moved by its cause. A metric without a cause here fails the suite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.alerts import Alert, AlertState
from duetime.domain.budgets import JobStanding, Standing
from duetime.domain.capacity import Capacity, Load
from duetime.domain.errors import InsufficientStorage, NotFound, QuotaExceeded, StaleWrite
from duetime.domain.execution import AttemptEnd, Claim, Outcome, expire
from duetime.domain.instants import HOUR
from duetime.domain.objectives import Budget, Objective, ObjectiveKind
from duetime.domain.plan import NewExecution, Skipped
from duetime.domain.states import ErrorType, Trigger
from duetime.domain.troubles import PlaceUse
from duetime.ports.usage import LogUsage, PoolUsage, StoreUsage
from duetime.telemetry import emitted as e
from metrics.scene import Samples, Scene
from samples import NOW, TENANT, change_of, claim_of, ended, new_id, new_job, spec

JOB = spec("every 1m", name="x")
FAILURE = Outcome(ErrorType.HTTP_ERROR, "500", 500)


def end(outcome: Outcome | None = None, at: int = NOW, **fields: Any) -> tuple[Claim, AttemptEnd]:
    claim = claim_of(JOB, **fields)
    started_at = at + 100
    return claim, ended(claim, outcome or Outcome(), started_at=started_at, now=started_at + 500)


def page(*results: tuple[Claim, AttemptEnd], refused: tuple[str, ...] = (), at: int = NOW + 1000) -> e.AttemptsEnded:
    return e.AttemptsEnded(at, results, refused)


def execution(trigger: Trigger = Trigger.SCHEDULE, endpoint: int = 1) -> NewExecution:
    return NewExecution(new_id(), new_id(), TENANT, NOW, trigger, 5, endpoint, "run")


def written(command: c.Command, answer: object = None, seconds: float = 0.25) -> e.Written:
    return e.Written([command], [answer], seconds)


def fire(*executions: NewExecution, skips: tuple[Skipped, ...] = (), now: int = NOW) -> c.Fire:
    return c.Fire(1, now, True, (), executions, skips)


FINAL_FAILURE = msgspec.structs.replace(end(FAILURE)[1], state="FAILED", dead=True)
OUT = InsufficientStorage("memory", 1, 2, 3)
BUDGET = Budget(100, 99, 0.99, 0.25, 0, {"1h": 3.0})
STANDING = JobStanding(TENANT, "j", "x", Standing(Objective(ObjectiveKind.SUCCESS, 0.99, HOUR), BUDGET, None))
ALERT = Alert("a", TENANT, "r", "waiting", "", "critical", AlertState.FIRING, NOW, 1.0, "many wait")

# A metric, the series that moves (its name's suffix and labels), by how much, and the cause.
CAUSES: dict[str, tuple[str, float, Callable[[Scene], None]]] = {
    "executions_ended": (
        '_total{error_type="none",state="COMPLETED",type="http_request"}', 2, lambda s: s.emit(page(end(), end())),
    ),
    "attempts_ended": ('_total{error_type="http_error",type="http_request"}', 1, lambda s: s.emit(page(end(FAILURE)))),
    "retries": ('_total{type="http_request"}', 1, lambda s: s.emit(page(end(FAILURE)))),
    "dead_letters_added": (
        '_total{type="http_request"}', 1, lambda s: s.emit(page((end()[0], FINAL_FAILURE))),
    ),
    "results_refused": ("_total", 1, lambda s: s.emit(page(end(execution_id="gone"), refused=("gone",)))),
    "execution_lateness_seconds": ('_sum{type="http_request"}', 0.1, lambda s: s.emit(page(end()))),
    "attempt_duration_seconds": ('_sum{type="http_request"}', 0.5, lambda s: s.emit(page(end()))),
    "execution_end_to_end_seconds": ('_sum{type="http_request"}', 0.6, lambda s: s.emit(page(end()))),
    "execution_attempts": ('_sum{type="http_request"}', 3, lambda s: s.emit(page(end(attempt=3)))),
    "stage_wait_seconds": ('_sum{stage="recording"}', 0.4, lambda s: s.emit(page(end()))),
    "execution_queue_wait_seconds": ("_sum", 0.5, lambda s: s.emit(e.QueueWaited(0.5))),
    "jobs_created": (
        '_total{source="api",type="http_request"}', 2,
        lambda s: s.emit(written(c.CreateJobs(NOW, (new_job(JOB), new_job(JOB))))),
    ),
    "jobs_changed": ('_total{change="changed"}', 1, lambda s: s.emit(written(change_of("x", JOB), 2))),
    "jobs_removed": ('_total{how="swept"}', 5, lambda s: s.emit(written(c.SweepJobs(1, 1, "", 9), c.Swept(5, None)))),
    "pages_fired": ("_total", 1, lambda s: s.emit(written(fire(execution()), c.Fired()))),
    "executions_created": (
        '_total{trigger="schedule"}', 2, lambda s: s.emit(written(fire(execution(), execution()), c.Fired())),
    ),
    "executions_claimed": (
        "_total", 1, lambda s: s.emit(written(c.ClaimExecutions(1, NOW, 9, (TENANT,)), [claim_of(JOB)])),
    ),
    "executions_released": ("_total", 1, lambda s: s.emit(written(c.Release(1, NOW, (claim_of(JOB),))))),
    "instants_skipped": (
        '_total{reason="missed"}', 7,
        lambda s: s.emit(written(fire(skips=(Skipped("j", TENANT, 1, 2, 7, "missed"),)), c.Fired())),
    ),
    "fenced_writes_refused": ('_total{command="Fire"}', 1, lambda s: s.emit(written(fire(), StaleWrite("fenced")))),
    "store_write_seconds": (
        '_sum{command="Release"}', 0.25, lambda s: s.emit(written(c.Release(1, NOW, ()))),
    ),
    "store_write_errors": (
        '_total{command="Finish"}', 1, lambda s: s.emit(e.WriteFailed([c.Finish(1, NOW, ())], NotFound("x"), 1.0)),
    ),
    "store_read_seconds": ('_sum{method="get_job"}', 0.5, lambda s: s.emit(e.Read("get_job", 0.5))),
    "store_read_errors": ('_total{method="get_job"}', 1, lambda s: s.emit(e.Read("get_job", 0.5, NotFound("x")))),
    "store_commit_seconds": ("_sum", 0.5, lambda s: s.emit(e.Committed(3, 0.5))),
    "store_commit_commands": ("_sum", 3, lambda s: s.emit(e.Committed(3, 0.5))),
    "job_rejections": ('_total{reason="memory"}', 1, lambda s: s.emit(e.JobRefused(OUT))),
    "notifications_refused": ('_total{reason="quota"}', 1, lambda s: s.emit(e.NotificationRefused(QuotaExceeded("q")))),
    "api_requests": (
        '_total{method="GET",route="/a/{id}",status="200"}', 1,
        lambda s: s.emit(e.RequestServed("GET", "/a/{id}", 200, 0.5)),
    ),
    "api_response_seconds": (
        '_sum{method="GET",route="/a/{id}"}', 0.5, lambda s: s.emit(e.RequestServed("GET", "/a/{id}", 200, 0.5)),
    ),
    "shard_handovers": ('_total{direction="lost"}', 3, lambda s: s.emit(e.ShardsMoved(0, 3, 61))),
    "leases_lost": ("_total", 1, lambda s: s.emit(e.Fenced(1))),
    "reconciler_cycles": ("_total", 1, lambda s: s.emit(e.TakenOver(NOW, 0))),
    "orphans_returned": ("_total", 4, lambda s: s.emit(e.TakenOver(NOW, 4))),
    "service_turn_failures": ('_total{service="timer"}', 1, lambda s: s.emit(e.TurnFailed("timer", "disk full"))),
    "event_loop_lag_seconds": ("_sum", 0.5, lambda s: s.emit(e.LoopLagged(0.5))),
    "gc_pause_seconds": ('_sum{generation="2"}', 0.5, lambda s: s.emit(e.GarbageCollected(2, 0.5))),
    "queue_memory_usage_bytes": ("", 9, lambda s: s.read(load=Load(1, 9))),
    "queue_memory_limit_bytes": ("", -math.inf, lambda s: s.read(capacity=Capacity(most_bytes=10))),
    "queue_memory_utilization_percent": ("", 50, lambda s: s.read(load=Load(1, 5), capacity=Capacity(most_bytes=10))),
    "queue_job_count": ("", 1, lambda s: s.read(load=Load(1, 9))),
    "queue_job_limit": ("", -math.inf, lambda s: s.read(capacity=Capacity(10))),
    "queue_utilization_ratio": ("", 1, lambda s: s.read(load=Load(5, 1), capacity=Capacity(10, None, 50))),
    "attempts_in_flight": ('{type="python"}', 2, lambda s: s.read(in_flight={"python": 2})),
    "attempts_limit": ('{type="http_request"}', -511, lambda s: s.read(limits={"http_request": 1})),
    "executions_waiting": ('{stage="queued",tenant="a"}', 3, lambda s: s.read(waiting_on_node={"queued": {"a": 3}})),
    "target_executions": (
        '{state="waiting",target="https://slow",tenant="a"}', 4,
        lambda s: s.read(targets=[PlaceUse("a", "https://slow", 2, 4)]),
    ),
    "memory_places_used": ("", 3, lambda s: s.read(places=3)),
    "memory_places_limit": ("", 3, lambda s: s.read(most_places=3)),
    "timers_read_ahead": ("", 3, lambda s: s.read(read_ahead=3)),
    "shards_owned": ("", 64, lambda s: s.read(shards=64)),
    "service_up": ('{service="timer"}', -1, lambda s: s.read(services={"timer": False})),
    "circuits": ('{state="OPEN"}', 2, lambda s: s.read(circuits={"OPEN": 2})),
    "workers": ("", 2, lambda s: s.read(workers=2)),
    "worker_slots": ("", 8, lambda s: s.read(slots=8)),
    "worker_polls": ("", 2, lambda s: s.read(polls=2)),
    "store_up": ("", -1, lambda s: s.read(store_up=False)),
    "store_executions": ('{state="QUEUED"}', 5, lambda s: s.read(executions={"QUEUED": 5})),
    "store_executions_waiting": (
        '{stage="parked",tenant="a"}', 5, lambda s: s.read(waiting_in_store={"parked": {"a": 5}}),
    ),
    "store_jobs": ('{status="PAUSED"}', 5, lambda s: s.read(jobs={"PAUSED": 5})),
    "store_dead_letters": ("", 5, lambda s: s.read(dead_letters=5)),
    "functions_without_worker": ("", 1, lambda s: s.read(functions_without_worker=1)),
    "writer_queue_batches": ("", 5, lambda s: s.read(store=StoreUsage(5, 10, {}))),
    "writer_queue_limit_batches": ("", 10, lambda s: s.read(store=StoreUsage(5, 10, {}))),
    "writer_queue_saturation_ratio": ("", 0.5, lambda s: s.read(store=StoreUsage(5, 10, {}))),
    "store_connections": (
        '{group="own",state="busy"}', 2, lambda s: s.read(store=StoreUsage(0, 1, {"own": PoolUsage(2, 1, 4)})),
    ),
    "store_connections_limit": (
        '{group="own"}', 4, lambda s: s.read(store=StoreUsage(0, 1, {"own": PoolUsage(2, 1, 4)})),
    ),
    "node_info": ('{name="b",node="1",roles="api",version="1"}', 1, lambda s: s.read(name="b")),
    "clock_offset_seconds": ("", math.nan, lambda s: s.read(clock_offset=1500)),
    "cluster_nodes": ("", 2, lambda s: s.read(nodes=2)),
    "cluster_shards_free": ("", 2, lambda s: s.read(free_shards=2)),
    "event_followers": ("", 2, lambda s: s.read(followers=2)),
    "api_streams": ("", 2, lambda s: s.read(streams=2)),
    "api_streams_limit": ("", 2, lambda s: s.read(most_streams=2)),
    "log_written_bytes": ("_total", 9, lambda s: s.read(logs=LogUsage(9, 0, 0))),
    "log_lost_lines": ("_total", 9, lambda s: s.read(logs=LogUsage(0, 9, 0))),
    "log_waiting_bytes": ("", 9, lambda s: s.read(logs=LogUsage(0, 0, 9))),
    "slo_error_budget_left_ratio": (
        f'{{job_id="j",objective="success",tenant="{TENANT}"}}', 0.25, lambda s: s.emit(e.ObjectivesRead([STANDING])),
    ),
    "slo_burn_rate_ratio": (
        f'{{job_id="j",objective="success",over="1h",tenant="{TENANT}"}}', 3,
        lambda s: s.emit(e.ObjectivesRead([STANDING])),
    ),
    "alerts_moved": (
        '_total{severity="critical",state="firing"}', 1, lambda s: s.emit(e.AlertsMoved(NOW, [ALERT])),
    ),
    "alerts_firing": ("", 2, lambda s: s.emit(e.AlertsEvaluated(9, 2, 5, 0.5))),
    "alerts_omitted": ("", 5, lambda s: s.emit(e.AlertsEvaluated(9, 2, 5, 0.5))),
    "alerts_evaluation_seconds": ("_sum", 0.5, lambda s: s.emit(e.AlertsEvaluated(9, 2, 5, 0.5))),
    "spans": ('_total{outcome="lost"}', 4, lambda s: s.emit(e.SpansExported(3, 4))),
}  # fmt: skip


def test_every_metric_has_a_cause() -> None:
    assert {f"duetime_{name}" for name in CAUSES} == {family.name for family in Scene().metrics.families()}


@pytest.mark.parametrize("name", CAUSES)
def test_a_metric_is_moved_by_its_cause(name: str) -> None:
    scene = Scene()
    series, by, cause = CAUSES[name]
    before = scene.samples()
    cause(scene)
    after = scene.samples()
    key = f"duetime_{name}{series}"
    if math.isnan(by):
        assert math.isnan(before[key])
        assert after[key] == 1.5
    else:
        assert after[key] - before.get(key, 0.0) == pytest.approx(by)


def test_every_metric_has_a_help_and_a_unit() -> None:
    for family in Scene().metrics.families():
        assert family.help.endswith("."), family.name
        assert len(family.help) > 10
        if family.kind == "histogram":
            assert family.name.endswith(("_seconds", "_attempts", "_commands")), family.name
        assert not family.name.endswith(("_total", "_ms", "_count_total")), family.name


# What moves and what does not, where it matters


def moved(cause: Callable[[Scene], None]) -> Samples:
    scene = Scene()
    before = scene.samples()
    cause(scene)
    return {name: value - before.get(name, 0.0) for name, value in scene.samples().items() if value != before.get(name)}


def count(name: str) -> str:
    return f'duetime_{name}_count{{type="http_request"}}'


def test_the_lateness_is_that_of_first_attempts_of_scheduled_executions() -> None:
    assert count("execution_lateness_seconds") in moved(lambda s: s.emit(page(end())))
    assert count("execution_lateness_seconds") not in moved(lambda s: s.emit(page(end(attempt=2))))
    assert count("execution_lateness_seconds") not in moved(lambda s: s.emit(page(end(trigger=Trigger.RETRY))))


def test_an_attempt_that_was_lost_has_no_duration_and_no_end() -> None:
    claim = claim_of(JOB)
    found = moved(lambda s: s.emit(page((claim, expire(claim, NOW)))))
    assert found['duetime_attempts_ended_total{error_type="lease_lost",type="http_request"}'] == 1
    assert found['duetime_retries_total{type="http_request"}'] == 1
    assert count("attempt_duration_seconds") not in found
    assert count("execution_end_to_end_seconds") not in found


def test_a_page_of_many_kinds_counts_each_and_leaves_out_what_was_refused() -> None:
    results = [end() for _ in range(10)] + [end(FAILURE) for _ in range(5)] + [end(execution_id="gone")]
    found = moved(lambda s: s.emit(page(*results, refused=("gone",))))
    assert found['duetime_executions_ended_total{error_type="none",state="COMPLETED",type="http_request"}'] == 10
    assert found['duetime_attempts_ended_total{error_type="http_error",type="http_request"}'] == 5
    assert found[count("attempt_duration_seconds")] == 15
    assert found[count("execution_end_to_end_seconds")] == 10
    assert found["duetime_results_refused_total"] == 1


def test_a_circuit_that_skips_counts_as_skipped_and_as_no_attempt() -> None:
    found = moved(lambda s: s.emit(page(end(Outcome(ErrorType.CIRCUIT_OPEN, "open")))))
    ended_as = 'duetime_executions_ended_total{error_type="circuit_open",state="SKIPPED",type="http_request"}'
    assert found[ended_as] == 1
    assert found['duetime_instants_skipped_total{reason="circuit_open"}'] == 1
    assert not [name for name in found if name.startswith("duetime_attempts_ended")]


def test_a_repeated_create_creates_nothing_and_a_refused_command_moves_nothing() -> None:
    create = c.CreateJobs(NOW, (new_job(JOB),))
    for answer in ("the stored response", OUT):
        assert not [name for name in moved(lambda s, a=answer: s.emit(written(create, a))) if "jobs_created" in name]


def test_notifications_count_as_created_by_them() -> None:
    create = c.CreateJobs(NOW, (new_job(JOB),))
    found = moved(lambda s: s.emit(written(c.OnFinish("x", 1, 1, "COMPLETED", create))))
    carried = c.WithNotifications(c.CancelJob(NOW, TENANT, "x"), (create, create))
    name = 'duetime_jobs_created_total{source="notification",type="http_request"}'
    assert found[name] == 1
    found = moved(lambda s: s.emit(written(carried, c.Carried([], (OUT,)))))
    assert (found[name], found['duetime_jobs_removed_total{how="cancelled"}']) == (1, 1)


def test_executions_of_stale_timers_are_not_counted_and_overlaps_are_skipped() -> None:
    one, two, three = execution(), execution(), execution()
    fired = c.Fired(frozenset({one.job_id}), frozenset({two.execution_id}), (), frozenset({two.execution_id}))
    found = moved(lambda s: s.emit(written(fire(one, two, three), fired)))
    assert found['duetime_executions_created_total{trigger="schedule"}'] == 2
    assert found['duetime_instants_skipped_total{reason="overlap"}'] == 1


def test_the_stages_due_and_parked_are_measured_from_the_instant() -> None:
    found = moved(lambda s: s.emit(written(fire(execution(), now=NOW + 250), c.Fired())))
    assert found['duetime_stage_wait_seconds_sum{stage="due"}'] == 0.25
    claimed = written(c.ClaimExecutions(1, NOW + 500, 9, (TENANT,)), [claim_of(JOB), claim_of(JOB, attempt=2)])
    found = moved(lambda s: s.emit(claimed))
    assert found['duetime_stage_wait_seconds_sum{stage="parked"}'] == 0.5
