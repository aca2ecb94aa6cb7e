"""The log lines of jobs and executions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.ids import make_id
from duetime.domain.job import Overlap, RetryPolicy
from duetime.domain.log_levels import LogLevels, parse_log_levels
from duetime.domain.sampling import NOTHING, Sampling
from duetime.domain.states import ErrorType, State, Trigger
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.lifecycle import LINES, Lifecycle
from duetime.telemetry.limited_lines import MOST_LINES, LimitedLines
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, claim_of, ended, new_job, spec

FAILURE = Outcome(ErrorType.HTTP_ERROR, "hook.example answered 500: s3cret", 500, "s3cret")
URL = "https://hook.example/s3cret?token=s3cret"
FIVE = "2026-01-01T00:00:05Z"
ONCE = RetryPolicy(max_retries=0)


class Book:
    """All lines so far, and the calls that a limit asked for."""

    def __init__(self, stage: Stage, lines: list[Any], levels: LogLevels, sampling: Sampling) -> None:
        self.lines = lines
        self.calls: list[Callable[[], None]] = []
        limited = LimitedLines(lambda _, call: self.calls.append(call), stage.clock.monotonic)
        Lifecycle(stage.telemetry, levels, limited, sampling)

    def take(self, prefix: str = "") -> list[dict[str, Any]]:
        """Returns the lines since the last call."""
        taken = [line for line in self.lines if line["event"] in LINES and line["event"].startswith(prefix)]
        self.lines.clear()
        return taken


Open = Callable[..., Book]


@pytest.fixture
def book(stage: Stage) -> Iterator[Open]:
    before = structlog.get_config()
    structlog.reset_defaults()  # an earlier test may have configured a level
    with capture_logs() as lines:
        yield lambda levels="info", ratio=0.0: Book(
            stage, lines, parse_log_levels(levels), Sampling.of(ratio) if ratio else NOTHING
        )
    structlog.configure(**before)


async def apply(stage: Stage, command: c.Command) -> Any:
    (answer,) = await stage.measured.apply([command])
    return answer


async def test_a_job_that_runs_is_told_from_its_creation_to_its_end(stage: Stage, book: Open, clock: HandClock):
    lines = book(ratio=1)
    await stage.join()
    job_id = await stage.add_job(spec(FIVE, url=URL))
    clock.advance(5.25)
    await stage.tick()
    (execution,) = await stage.executions(job_id)
    assert lines.take() == [
        {
            "event": "execution completed", "log_level": "info", "execution_id": execution.execution_id,
            "job_id": job_id, "tenant": TENANT, "job": "report", "attempt": 1, "lateness_ms": 250, "duration_ms": 0,
            "http_status": 200, "trace_id": execution.execution_id.replace("-", ""),
        }
    ]  # fmt: skip


async def test_failures_name_the_kind_of_error_and_no_text_of_the_target(
    stage: Stage, book: Open, executor: ScriptedExecutor
):
    lines = book()
    executor.answer([FAILURE, FAILURE])
    await stage.join()
    await stage.add_job(spec("immediate", url=URL, retry_policy=RetryPolicy(max_retries=1, initial_delay_seconds=5)))
    await stage.tick()
    (first,) = lines.take("execution")
    assert (first["event"], first["error_type"], first["http_status"]) == ("execution retrying", "http_error", 500)
    assert first["next_at"] == "2026-01-01T00:00:05.000Z"
    await stage.pass_time(20)
    (second,) = lines.take("execution")
    assert (second["event"], second["attempt"], second["dead"]) == ("execution failed", 2, True)
    assert "lateness_ms" not in second, "a retry is not late"
    assert "s3cret" not in repr((first, second))


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ErrorType.TIMEOUT, "execution timed out"),
        (ErrorType.CANCELLED, "execution cancelled"),
        (ErrorType.CIRCUIT_OPEN, "execution skipped"),
        (ErrorType.BLOCKED_TARGET, "execution failed"),
    ],
)
async def test_each_end_has_its_line(
    stage: Stage, book: Open, executor: ScriptedExecutor, error: ErrorType, event: str
):
    lines = book()
    executor.answer(Outcome(error))
    await stage.join()
    await stage.add_job(spec("immediate", retry_policy=ONCE))
    await stage.tick()
    assert [(line["event"], line["error_type"]) for line in lines.take("execution")] == [(event, str(error))]


async def test_changes_of_a_job_are_told(stage: Stage, book: Open, clock: HandClock):
    lines = book()
    await stage.join()
    now = clock.now()
    job_id = "not yet"

    async def told(command: c.Command) -> tuple[str, ...]:
        await apply(stage, command)
        return tuple(line["event"] for line in lines.take())

    new = new_job(spec("2026-01-01T01:00:00Z"))
    job_id = new.job_id
    assert await told(c.CreateJobs(now, (new,))) == ("job created",)
    change = c.ChangeJob(now, TENANT, job_id, 1, None, "other", new.type, False, new.due_at, new.spec)
    assert await told(change) == ("job changed",)
    assert await told(change) == (), "it was refused"
    assert await told(c.PauseJob(now, TENANT, job_id, "ann", "paused on request")) == ("job paused",)
    paused = await stage.job(job_id)
    assert await told(c.ResumeJob(now, TENANT, job_id, paused.version, new.due_at, None)) == ("job resumed",)
    id = make_id(now, os.urandom(10))
    assert await told(c.AddExecution(now, TENANT, job_id, id, Trigger.MANUAL)) == ("execution requested",)
    assert await told(c.CancelExecution(now, TENANT, id)) == ("execution cancelled",)
    assert await told(c.CancelJob(now, TENANT, job_id)) == ("job cancelled",)
    assert await told(c.PurgeJob(TENANT, job_id)) == ("job removed",)


async def test_skipped_instants_are_told_with_the_reason(
    stage: Stage, book: Open, executor: ScriptedExecutor, clock: HandClock
):
    lines = book()
    await stage.join()
    await stage.add_job(spec("every 1m", overlap=Overlap.SKIP))
    executor.hold()
    clock.advance(60)
    await stage.tick()
    clock.advance(60)
    await stage.tick()
    assert [(line["event"], line["reason"]) for line in lines.take("execution")] == [("execution skipped", "overlap")]
    executor.let_go()
    await stage.tick()
    lines.take()
    clock.advance(600)
    await stage.tick()
    (skipped,) = lines.take("instants")
    assert (skipped["reason"], skipped["count"]) == ("missed", 9)


def test_what_was_not_applied_has_no_line(stage: Stage, book: Open):
    lines = book()
    claim = claim_of(spec())
    stage.telemetry.emit(AttemptsEnded(NOW, [(claim, ended(claim))], frozenset({claim.execution_id})))
    stage.telemetry.emit(Written([c.CreateJobs(NOW, (new_job(),))], ["the first response"], 0.0))
    assert lines.take() == [], "a late result, and the repeat of a request"
    stage.telemetry.emit(Written([c.CreateJobs(NOW, (new_job(),))], [None], 0.0))
    assert [line["event"] for line in lines.take()] == ["job created"]


def test_a_command_that_others_carry_has_its_line(stage: Stage, book: Open):
    lines = book()
    new = c.CreateJobs(NOW, (new_job(),))
    carried = c.WithNotifications(c.PauseJob(NOW, TENANT, "1", "ann", "paused on request"), (new,))
    stage.telemetry.emit(Written([carried], [c.Carried("PAUSED", ())], 0.0))
    assert [line["event"] for line in lines.take()] == ["job paused"]
    on_finish = c.OnFinish("e-1", 1, 1, State.FAILED, new)
    finish = c.Finish(1, NOW, ())
    stage.telemetry.emit(Written([finish, on_finish], [["e-1"], None], 0.0))
    assert lines.take() == [], "the end was refused, and with it what follows"
    stage.telemetry.emit(Written([finish, on_finish], [[], None], 0.0))
    assert [line["event"] for line in lines.take()] == ["job created"]


async def test_a_burst_costs_few_lines_and_a_count(stage: Stage, book: Open, clock: HandClock):
    lines = book()
    await stage.join()
    for _ in range(100):
        await stage.add_job(spec(FIVE))
    clock.advance(5)
    await stage.tick()
    assert len(lines.take("execution completed")) == MOST_LINES
    clock.advance(1)
    for call in lines.calls:
        call()
    (rest,) = lines.take("execution completed")
    assert (rest["more"], rest["tenants"]) == (100 - MOST_LINES, f"{TENANT} {100 - MOST_LINES}")


@pytest.mark.parametrize(
    ("levels", "events"),
    [
        ("warning", set()),
        ("info,executions=warning", {"job created"}),
        ("warning,executions=info", {"execution completed"}),
        ("info,executions=debug", {"job created", "execution completed", "executions claimed"}),
    ],
)
async def test_jobs_and_executions_are_areas(stage: Stage, book: Open, clock: HandClock, levels: str, events: set[str]):
    lines = book(levels)
    await stage.join()
    new = new_job(spec("immediate"))
    await apply(stage, c.CreateJobs(clock.now(), (new,)))
    stage.engine.term.timer.hint(new.due_at)
    await stage.tick()
    assert {line["event"] for line in lines.take()} == events


async def test_a_line_has_only_the_facts_of_the_table(stage: Stage, book: Open, executor: ScriptedExecutor):
    lines = book("info,executions=debug", ratio=1)
    executor.answer([FAILURE, SUCCESS])
    await stage.join()
    await stage.add_job(spec("immediate"))
    await stage.tick()
    await stage.pass_time(90)
    taken = lines.take()
    assert len(taken) >= 3
    for line in taken:
        assert line.keys() - {"event", "log_level"} <= set(LINES[line["event"]]), line
