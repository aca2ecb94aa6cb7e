"""/api/v1/jobs/{id}/…: pause, resume, cancel, run and retry a job; its status, history and coming instants; why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Controller, get, post
from litestar.params import Parameter

from duetime.api import queries
from duetime.api.advice import list_blocked
from duetime.api.auth.access import find_job
from duetime.api.context import ApiContext
from duetime.api.http.starts import collect
from duetime.api.queries import read_filter
from duetime.api.routes.jobs import cancel_job
from duetime.api.routes.subscriptions import apply_and_tell
from duetime.api.views import instant, instant_or_none, view_execution, view_skipped
from duetime.domain import authoring
from duetime.domain.audit import entry
from duetime.domain.breaker import Circuit, circuit_of
from duetime.domain.chains import explain_wait
from duetime.domain.commands import AddExecution, PauseJob, Redrive
from duetime.domain.defaults import explain_attempts
from duetime.domain.errors import Conflict, InvalidRequest
from duetime.domain.identity import Caller, Right
from duetime.domain.ids import make_id
from duetime.domain.instants import LATEST
from duetime.domain.job import HttpJob, JobStatus, PythonJob
from duetime.domain.preview import coming
from duetime.domain.schedule import timetable
from duetime.domain.states import State, Trigger
from duetime.domain.why import explain, explain_failure
from duetime.ports.store import ExecutionQuery, ExecutionRecord, JobRecord
from duetime.wire.executions import ExecutionList, QueuedRun
from duetime.wire.jobs import Coming, JobGlance, JobMessage, Why

MOST_COMING = 1000
MOST_SKIPPED = 20


class JobActionController(Controller):
    path = "/jobs/{job_id:str}"
    tags = ("jobs",)

    @post("/pause", summary="Pause a job", status_code=200, right=Right.WRITE)
    async def pause_job(self, context: ApiContext, caller: Caller, job_id: str) -> JobMessage:
        record = await find_job(context, caller, job_id)
        now, by = context.clock.now(), caller.user_id
        noted = entry(caller, now, "job.pause", job_id)
        command = PauseJob(now, caller.tenant, job_id, by, "paused on request", noted)
        if record.status is JobStatus.PAUSED:
            status = await context.apply(command)
        else:
            status = await apply_and_tell(context, caller, command, "job.paused", record, now)
        context.events.publish("job.paused", now, caller.tenant, {"job_id": job_id, "by": by}, record.owner)
        return JobMessage(job_id, status, "Job paused. It will not be executed until resumed.")

    @post("/resume", summary="Resume a paused job", status_code=200, right=Right.WRITE)
    async def resume_job(self, context: ApiContext, caller: Caller, job_id: str) -> JobMessage:
        record = await find_job(context, caller, job_id)
        if record.status is not JobStatus.PAUSED:
            raise Conflict(f"job {job_id} is {record.status}; only a PAUSED job can be resumed")
        now = context.clock.now()
        command = authoring.resume_job(
            job_id, caller.tenant, record.version, record.created_at, record.spec, record.resume_at, now
        )
        noted = entry(caller, now, "job.resume", job_id)
        command = msgspec.structs.replace(command, audit=noted)
        status = await apply_and_tell(context, caller, command, "job.resumed", record, now)
        if command.due_at is not None:
            context.engine.due_hint(command.due_at)
        context.events.publish("job.resumed", now, caller.tenant, {"job_id": job_id}, record.owner)
        context.publish_skips(() if command.skipped is None else (command.skipped,), now, record.owner)
        return JobMessage(job_id, status, "Job resumed.", instant_or_none(command.due_at))

    @post("/cancel", summary="Cancel a job", status_code=200, right=Right.WRITE)
    async def cancel_job(self, context: ApiContext, caller: Caller, job_id: str) -> JobMessage:
        await cancel_job(context, caller, job_id)
        return JobMessage(job_id, JobStatus.CANCELLED, "Job cancelled. It will not run again.")

    @post("/run", summary="Run a job once, now", status_code=202, right=Right.RUN)
    async def run_job(self, context: ApiContext, caller: Caller, job_id: str) -> QueuedRun:
        check_runnable(await find_job(context, caller, job_id))
        return await add_execution(context, caller, job_id, Trigger.MANUAL, "Job queued to run now")

    @post("/retry", summary="Run the last failed execution again", status_code=202, right=Right.RUN)
    async def retry_job(self, context: ApiContext, caller: Caller, job_id: str) -> QueuedRun:
        record = await find_job(context, caller, job_id)
        check_runnable(record)
        if record.last_state not in (State.FAILED, State.TIMEOUT):
            raise Conflict(f"the last execution of job {job_id} did not fail; use /run to run it once more")
        query = ExecutionQuery(caller.tenant, job_id, record.last_state, limit=1)
        failed = await context.store.list_executions(query)
        # Redriven, so that it is no longer a dead letter: a later redrive must not run it again.
        queued = await redrive(context, caller, failed[0]) if failed and failed[0].dead else None
        return queued or await add_execution(context, caller, job_id, Trigger.RETRY, "Job queued for retry")

    @get("/status", summary="A job's status in short", right=Right.READ)
    async def get_job_status(self, context: ApiContext, caller: Caller, job_id: str) -> JobGlance:
        record = await find_job(context, caller, job_id)
        open_states = [one.state for one in await _open_executions(context, caller, job_id)]
        running = open_states.count(State.RUNNING)
        return JobGlance(
            job_id, record.status, instant_or_none(record.due_at), instant_or_none(record.last_run_at),
            record.last_state, running, len(open_states) - running,
        )  # fmt: skip

    @get("/executions", summary="A job's history, latest first", right=Right.READ)
    async def list_job_executions(
        self, context: ApiContext, caller: Caller, job_id: str,
        wanted: Annotated[str | None, Parameter(query="state")] = None,
        limit: int = queries.DEFAULT_LIMIT, offset: int = 0, cursor: str | None = None,
    ) -> ExecutionList:  # fmt: skip
        state = read_filter(wanted, State, "state")
        await find_job(context, caller, job_id)
        skipped = await context.store.list_skipped(job_id, MOST_SKIPPED, caller.tenant)
        page = await list_page(context, ExecutionQuery(caller.tenant, job_id, state), limit, offset, cursor)
        return ExecutionList(
            page.executions, page.total, page.limit, page.offset, page.has_more, page.next_cursor,
            [view_skipped(record) for record in skipped],
        )  # fmt: skip

    @get("/next", summary="A job's coming instants", right=Right.READ)
    async def list_job_next(self, context: ApiContext, caller: Caller, job_id: str, count: int = 10) -> Coming:
        if not 1 <= count <= MOST_COMING:
            raise InvalidRequest.at("/count", f"must lie between 1 and {MOST_COMING}")
        return Coming(job_id, await list_coming(await find_job(context, caller, job_id), count))

    @get("/why", summary="What a job will do next, and what holds it now", right=Right.READ)
    async def get_job_why(self, context: ApiContext, caller: Caller, job_id: str) -> Why:
        record = await find_job(context, caller, job_id)
        opened = await _open_executions(context, caller, job_id)
        summary, holds = explain(
            status=record.status, due_at=record.due_at, paused_by=record.paused_by, paused_at=record.paused_at,
            pause_reason=record.pause_reason, spec=record.spec, open_states=[one.state for one in opened],
            now=context.clock.now(), circuit=await _circuit_of(context, record),
            waiting_at=await context.store.next_waiting_of(job_id, caller.tenant),
            is_overlap=not all(map(_waits_its_turn, opened)), has_worker=await _has_worker(context, record),
        )  # fmt: skip
        if opened or record.due_at is not None:
            holds += list_blocked(context, record.spec)
        if record.spec.after and record.due_at == LATEST:
            links = await context.store.list_links(job_id, caller.tenant)
            seen = [(link, link.is_there and caller.sees in (None, link.owner)) for link in links]
            # A job that the caller may not see is described like a job that does not exist.
            holds += [
                explain_wait(link.key, record.spec.on, is_seen)
                for link, is_seen in seen
                if not (is_seen and link.is_done)
            ]
        failure = await _last_failure(context, record, opened)
        return Why(job_id, summary, instant_or_none(record.due_at), holds, explain_attempts(record.spec), failure)


async def _last_failure(context: ApiContext, record: JobRecord, opened: Sequence[ExecutionRecord]) -> str | None:
    """Returns the failure of an execution that is retried, or else of the last one that ended."""
    found = [one for one in opened if one.state is State.RETRYING]
    if not found and record.last_state in (State.FAILED, State.TIMEOUT):
        query = ExecutionQuery(record.tenant, record.job_id, record.last_state, limit=1)
        found = list(await context.store.list_executions(query))
    if not found:
        return None
    latest = found[0]
    return explain_failure(latest.state, latest.scheduled_at, latest.attempt, latest.error_message)


async def _has_worker(context: ApiContext, record: JobRecord) -> bool:
    """Returns whether a worker that has the job's function runs now; True for other types of jobs."""
    if not isinstance(record.spec, PythonJob):
        return True
    return bool(await context.store.list_workers(record.tenant, 1, function=record.spec.payload.function))


async def _circuit_of(context: ApiContext, record: JobRecord) -> Circuit | None:
    if not isinstance(record.spec, HttpJob):
        return None
    return await context.store.get_circuit(circuit_of(record.tenant, record.spec.payload.url), record.tenant)


async def add_execution(context: ApiContext, caller: Caller, job_id: str, trigger: Trigger, message: str) -> QueuedRun:
    now = context.clock.now()
    execution_id = make_id(now, context.random_bytes(10))
    noted = entry(caller, now, "job.run", job_id, None, {"execution_id": execution_id, "trigger": trigger})
    await context.apply(AddExecution(now, caller.tenant, job_id, execution_id, trigger, noted))
    context.engine.waiting_hint(now)
    return QueuedRun(job_id, execution_id, State.QUEUED, message)


async def redrive(context: ApiContext, caller: Caller, dead: ExecutionRecord) -> QueuedRun | None:
    """Returns None if the execution is no longer a dead letter: another request was faster."""
    now = context.clock.now()
    execution_id = make_id(now, context.random_bytes(10))
    noted = entry(caller, now, "execution.retry", dead.execution_id)
    if not await context.apply(Redrive(now, caller.tenant, ((dead.execution_id, execution_id),), noted)):
        return None
    context.engine.waiting_hint(now)
    return QueuedRun(dead.job_id, execution_id, State.QUEUED, "Queued for retry")


def check_runnable(record: JobRecord) -> None:
    if record.status is JobStatus.CANCELLED:
        raise Conflict(f"job {record.job_id} is CANCELLED; create a new one to run it")


async def list_coming(record: JobRecord, count: int) -> list[datetime]:
    due_at = record.due_at if record.status is not JobStatus.PAUSED else record.resume_at
    table = timetable(record.spec, record.job_id, record.created_at)
    if record.spec.max_runs is not None:
        count = min(count, record.spec.max_runs - record.fired)
    return await collect(map(instant, coming(table, due_at, count)))


async def _open_executions(context: ApiContext, caller: Caller, job_id: str) -> list[ExecutionRecord]:
    """Returns open executions, up to a page of each state: enough to explain what holds a job."""
    found: list[ExecutionRecord] = []
    for state in (State.RUNNING, State.RETRYING, State.QUEUED):
        query = ExecutionQuery(caller.tenant, job_id, state, limit=queries.MAX_LIMIT)
        found += await context.store.list_executions(query)
    return found


def _waits_its_turn(record: ExecutionRecord) -> bool:
    """Returns whether this is a redriven dead letter that waits for its pace: the timetable does not wait for it."""
    return (
        record.state is State.QUEUED and record.trigger is Trigger.RETRY and record.attempt == 0
        and record.due_at > record.scheduled_at
    )  # fmt: skip


async def list_page(
    context: ApiContext, query: ExecutionQuery, limit: int, offset: int, cursor: str | None
) -> ExecutionList:
    queries.check_page(limit, offset)
    after = queries.read_cursor(cursor, str)[1] if cursor else None
    query = msgspec.structs.replace(query, limit=limit + 1, offset=offset, after=after)
    total = await context.store.count_executions(query)  # first, because the page may be large
    records = await context.store.list_executions(query)
    has_more = records.is_cut or len(records) > limit
    shown = records[:limit]
    return ExecutionList(
        [view_execution(record) for record in shown], total, limit, offset, has_more,
        queries.write_cursor(None, shown[-1].execution_id) if has_more else None,
    )  # fmt: skip
