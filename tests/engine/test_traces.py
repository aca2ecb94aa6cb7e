"""The spans of executions: which there are, their times, parents and attributes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.ids import execution_id, make_id
from duetime.domain.instants import HOUR, SECOND
from duetime.domain.job import JobSpec, PythonJob, RetryPolicy, SqlJob
from duetime.domain.payloads import PythonCall, SqlQuery
from duetime.domain.plan import NewExecution
from duetime.domain.sampling import Parent, Sampling, attempt_span_id
from duetime.domain.states import ErrorType, State, Trigger
from duetime.store.sqlite import SqliteStore
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.incoming import Incoming, incoming
from duetime.telemetry.measured_store import measured
from duetime.telemetry.spans import SPANS, Span, spans_of_end
from duetime.telemetry.traces import MOST_ASKED, Traces
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, claim_of, ended, new_job, spec

FAILURE = Outcome(ErrorType.HTTP_ERROR, "hook.example answered 500: s3cret", 500, "s3cret")
URL = "https://user:s3cret@hook.example:8443/s3cret?token=s3cret#s3cret"

Make = Callable[[float], list[Span]]


@pytest.fixture
def traced(stage: Stage) -> Make:
    """Turns traces on, and returns the list of their spans."""

    def turn_on(ratio: float) -> list[Span]:
        spans: list[Span] = []
        Traces(stage.telemetry, Sampling.of(ratio), spans.extend, stage.clock.now)
        return spans

    return turn_on


def named(spans: Sequence[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


async def run_twice(stage: Stage, executor: ScriptedExecutor) -> str:
    """Runs a job that fails once, and then does not. Returns the execution's id."""
    executor.answer([FAILURE, SUCCESS])
    await stage.join()
    retried = spec("immediate", url=URL, retry_policy=RetryPolicy(backoff="fixed", initial_delay_seconds=7))
    job_id = await stage.add_job(retried)
    await stage.tick()
    await stage.pass_time(10)
    (execution,) = await stage.executions(job_id)
    assert execution.state is State.COMPLETED
    return execution.execution_id


async def test_a_trace_joins_creation_fire_attempts_and_records(stage: Stage, executor: ScriptedExecutor, traced: Make):
    spans = traced(1)
    id = await run_twice(stage, executor)
    assert sorted(span.name for span in spans) == [
        "attempt", "attempt", "backoff", "create", "execution", "fire", "queue", "record", "record",
    ]  # fmt: skip
    assert {span.trace_id for span in spans} == {id.replace("-", "")}
    assert len({span.span_id for span in spans}) == len(spans)
    create, execution = named(spans, "create"), named(spans, "execution")
    assert (create.parent_id, execution.parent_id) == ("", create.span_id)
    inner = [span for span in spans if span not in (create, execution)]
    assert {span.parent_id for span in inner} == {execution.span_id}
    assert all(execution.began_at <= span.began_at <= span.ended_at <= execution.ended_at for span in inner)
    backoff = named(spans, "backoff")
    assert backoff.ended_at - backoff.began_at == 7 * SECOND
    assert not execution.failed
    assert execution.attributes["duetime.attempts"] == 2


async def test_an_attempt_has_the_span_id_that_its_target_got(stage: Stage, executor: ScriptedExecutor, traced: Make):
    spans = traced(1)
    await run_twice(stage, executor)
    attempts = [span for span in spans if span.name == "attempt"]
    claims = [attempt.claim for attempt in executor.attempts]
    assert [span.span_id for span in attempts] == [attempt_span_id(one.token, one.attempt) for one in claims]
    first, second = attempts
    assert first.attributes.items() >= {
        "duetime.attempt": 1, "http.request.method": "POST", "http.response.status_code": 500,
        "error.type": "http_error", "url.scheme": "https", "server.address": "hook.example", "server.port": 8443,
    }.items()  # fmt: skip
    assert (first.failed, second.failed, second.attributes["http.response.status_code"]) == (True, False, 200)


async def test_spans_have_the_attributes_of_the_table_and_no_secret(
    stage: Stage, executor: ScriptedExecutor, traced: Make
):
    spans = traced(1)
    await run_twice(stage, executor)
    assert "s3cret" not in repr(spans)
    for span in spans:
        assert span.attributes.keys() <= set(SPANS[span.name]), span.name


async def test_nothing_of_an_execution_that_is_not_sampled_is_traced(
    stage: Stage, executor: ScriptedExecutor, traced: Make
):
    spans = traced(0)
    await run_twice(stage, executor)
    assert spans == []


async def test_each_part_of_the_trace_is_there_or_none_is(stage: Stage, traced: Make):
    spans = traced(0.2)
    await stage.join()
    for _ in range(200):
        await stage.add_job(spec("immediate"))
    await stage.tick()
    by_trace: dict[str, set[str]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, set()).add(span.name)
    assert 10 < len(by_trace) < 90
    assert set(map(frozenset, by_trace.values())) == {
        frozenset({"create", "execution", "fire", "queue", "attempt", "record"})
    }


async def test_the_creation_long_before_is_in_no_trace(stage: Stage, traced: Make, clock: HandClock):
    spans = traced(1)
    await stage.join()
    await stage.add_job(spec("2026-01-01T01:00:00Z"))
    clock.advance(HOUR / SECOND)
    await stage.tick()
    assert named(spans, "execution").parent_id == ""
    assert not [span for span in spans if span.name == "create"]


async def test_a_requested_execution_has_a_fire(stage: Stage, traced: Make, clock: HandClock):
    spans = traced(1)
    await stage.join()
    job_id = await stage.add_job(spec("2026-01-01T01:00:00Z"))
    id = make_id(clock.now(), os.urandom(10))
    await stage.measured.apply([c.AddExecution(clock.now(), TENANT, job_id, id, Trigger.MANUAL)])
    stage.engine.term.own_waiting_hint(clock.now())
    await stage.tick()
    assert named(spans, "fire").attributes["duetime.trigger"] == "manual"
    assert named(spans, "execution").trace_id == id.replace("-", "")


def emit_fire(fired: c.Fired, *rows: NewExecution) -> list[Span]:
    spans: list[Span] = []
    telemetry = Telemetry()
    Traces(telemetry, Sampling.of(1), spans.extend, lambda: NOW)
    telemetry.emit(Written([c.Fire(1, NOW, True, (), rows)], [fired], 0.001))
    return spans


def test_an_execution_that_was_not_written_has_no_fire():
    job_id = make_id(NOW - HOUR, os.urandom(10))
    rows = [
        NewExecution(execution_id(NOW, number), job_id, TENANT, NOW, Trigger.SCHEDULE, 5, 1, if_open, False)
        for number, if_open in enumerate(("run", "skip", "hold"))
    ]
    assert len(emit_fire(c.Fired(), *rows)) == 3
    assert emit_fire(c.Fired(stale_jobs=frozenset({job_id})), *rows) == []
    kept_back = c.Fired(not_claimed=frozenset(row.execution_id for row in rows[1:]))
    assert {span.trace_id for span in emit_fire(kept_back, *rows)} == {
        row.execution_id.replace("-", "") for row in (rows[0], rows[2])
    }, "a held one runs later"


def test_a_late_result_has_no_spans():
    spans: list[Span] = []
    telemetry = Telemetry()
    Traces(telemetry, Sampling.of(1), spans.extend, lambda: NOW)
    claim = claim_of(spec())
    telemetry.emit(AttemptsEnded(NOW, [(claim, ended(claim))], frozenset({claim.execution_id})))
    assert spans == []
    telemetry.emit(AttemptsEnded(NOW, [(claim, ended(claim))], ()))
    assert spans != []


@pytest.mark.parametrize(
    ("job", "attributes"),
    [
        (PythonJob(name="f", schedule="every 1m", payload=PythonCall("mail.send", kwargs={"to": "s3cret"})),
         {"duetime.function": "mail.send"}),
        (SqlJob(name="q", schedule="every 1m", payload=SqlQuery("books", "SELECT 's3cret'")),
         {"duetime.connection": "books"}),
        (spec(url="https://[broken"), {"http.request.method": "POST"}),
        (spec(url="http://hook.example/s3cret"), {"server.address": "hook.example", "server.port": 80}),
    ],
)  # fmt: skip
def test_an_attempt_names_its_target_and_nothing_more(job: JobSpec, attributes: dict[str, object]):
    claim = claim_of(job)
    spans = list(spans_of_end(claim, ended(claim), NOW, 0.0, Sampling.of(1)))
    assert named(spans, "attempt").attributes.items() >= attributes.items()
    assert "s3cret" not in repr(spans)
    assert "broken" not in repr(spans)


CALLER = Parent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)


async def create(tmp_path: Path, ratio: float, count: int, parent: Parent | None) -> list[Span]:
    """Creates jobs as requests do."""
    spans: list[Span] = []
    telemetry = Telemetry()
    Traces(telemetry, Sampling.of(ratio), spans.extend, lambda: NOW + 5)
    store = measured(SqliteStore(tmp_path), telemetry)
    await store.start()
    token = incoming.set(Incoming(NOW, "POST", "/api/v1/jobs", "r-1", parent))
    try:
        for _ in range(count):
            await store.apply([c.CreateJobs(NOW, (new_job(),))])
    finally:
        incoming.reset(token)
        await store.apply([c.CreateJobs(NOW, (new_job(),))])  # not from a request
        await store.stop()
    return spans


async def test_a_request_has_a_span_that_is_linked_to_the_callers(tmp_path: Path):
    (span,) = await create(tmp_path, 1, 1, CALLER)
    assert (span.name, span.kind, span.parent_id) == ("request", "server", "")
    assert (span.began_at, span.ended_at) == (NOW, NOW + 5)
    assert span.links == ((CALLER.trace_id, CALLER.span_id),)
    assert span.attributes.keys() == set(SPANS["request"])
    assert span.trace_id == str(span.attributes["duetime.job.id"]).replace("-", "")


def test_the_repeat_of_a_request_created_nothing():
    spans: list[Span] = []
    telemetry = Telemetry()
    Traces(telemetry, Sampling.of(1), spans.extend, lambda: NOW)
    token = incoming.set(Incoming(NOW, "POST", "/api/v1/jobs", "r-1", None))
    try:
        telemetry.emit(Written([c.CreateJobs(NOW, (new_job(),))], ["the first response"], 0.0))
        assert spans == []
        telemetry.emit(Written([c.CreateJobs(NOW, (new_job(),))], [None], 0.0))
        assert [span.name for span in spans] == ["request"]
    finally:
        incoming.reset(token)


async def test_a_caller_that_traces_gets_few_spans_a_second_beyond_the_sampled_ones(tmp_path: Path):
    assert len(await create(tmp_path, 0, 3 * MOST_ASKED, CALLER)) == MOST_ASKED
    assert await create(tmp_path / "b", 0, 5, CALLER._replace(is_sampled=False)) == []
    assert await create(tmp_path / "c", 0, 5, None) == []


async def test_an_execution_is_linked_to_the_request_that_created_its_job(stage: Stage, traced: Make):
    spans = traced(1)
    await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    for name in ("create", "execution"):
        ((trace, _),) = named(spans, name).links
        assert trace == job_id.replace("-", "")
