"""/api/v1/executions and /api/v1/dead-letters: what ran, what failed for good, and doing it again."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from litestar import Controller, Request, Response, get, post
from litestar.params import Parameter
from msgspec import Meta

from duetime.api import paging
from duetime.api.actions import add_run, check_runnable, list_page, redrive
from duetime.api.bodies import decode
from duetime.api.context import TENANT, ApiContext
from duetime.api.create import result_of
from duetime.api.events import EVENT_STREAM, last_event_id, stream
from duetime.api.jobs import find_job
from duetime.api.logs import follow_logs, read_logs
from duetime.api.views import (
    ExecutionDetail,
    ExecutionList,
    ExecutionView,
    Logs,
    QueuedRun,
    Redriven,
    view_attempt,
    view_execution,
)
from duetime.domain.commands import CancelExecution, Redrive
from duetime.domain.errors import Conflict, InvalidRequest, NotFound
from duetime.domain.ids import make_id
from duetime.domain.instants import parse_instant
from duetime.domain.states import OPEN, State, Trigger
from duetime.ports.store import ExecutionQuery, ExecutionRecord

MOST_REDRIVEN = 1000


def _instant(value: str | None, name: str) -> int | None:
    if value is None:
        return None
    try:
        return parse_instant(value.replace(" ", "+"))  # a plus sign that came through a form is a blank
    except ValueError as error:
        raise InvalidRequest.at(f"/{name}", str(error)) from None


async def find_execution(context: ApiContext, execution_id: str) -> ExecutionRecord:
    record = await context.store.get_execution(TENANT, paging.check_id(execution_id, "execution"))
    if record is None:
        raise NotFound(f"there is no execution {execution_id}")
    return record


class ExecutionController(Controller):
    path = "/executions"
    tags = ("executions",)

    @get("/", summary="List executions across jobs, latest first")
    async def list_executions(
        self,
        context: ApiContext,
        wanted: Annotated[State | None, Parameter(query="state")] = None,
        job_id: str | None = None,
        since: Annotated[str | None, Parameter(query="from", description="scheduled at or after this instant")] = None,
        until: Annotated[str | None, Parameter(query="to", description="scheduled before this instant")] = None,
        limit: int = paging.DEFAULT_LIMIT,
        offset: int = 0,
        cursor: str | None = None,
    ) -> ExecutionList:
        if job_id is not None:
            paging.check_id(job_id, "job")
        query = ExecutionQuery(TENANT, job_id, wanted, since=_instant(since, "from"), until=_instant(until, "to"))
        return await list_page(context, query, limit, offset, cursor)

    @get("/{execution_id:str}", summary="One execution with its attempts")
    async def get_execution(self, context: ApiContext, execution_id: str) -> ExecutionDetail:
        record = await find_execution(context, execution_id)
        attempts = await context.store.list_attempts(execution_id)
        return ExecutionDetail(view_execution(record), [view_attempt(attempt) for attempt in attempts])

    @get("/{execution_id:str}/logs", summary="What an execution's attempts said (server-sent events: as they say it)")
    async def get_logs(self, request: Request[Any, Any, Any], context: ApiContext, execution_id: str) -> Response[Logs]:
        await find_execution(context, execution_id)
        if EVENT_STREAM in request.headers.get("accept", ""):
            frames = follow_logs(context, execution_id, last_event_id(request) or 0)
            return cast(Response[Logs], stream(context, frames))
        return Response(await read_logs(context, execution_id))

    @post("/{execution_id:str}/cancel", summary="Cancel an execution, also one that is running", status_code=202)
    async def cancel_execution(self, context: ApiContext, execution_id: str) -> ExecutionView:
        await find_execution(context, execution_id)
        (state,) = await context.store.apply([CancelExecution(context.clock.now(), TENANT, execution_id)])
        if result_of(state) is State.RUNNING:
            context.cancel_running(execution_id)
        else:
            context.waiting_hint(0)
        return view_execution(await find_execution(context, execution_id))

    @post("/{execution_id:str}/retry", summary="Run an execution's job again, now", status_code=202)
    async def retry_execution(self, context: ApiContext, execution_id: str) -> QueuedRun:
        record = await find_execution(context, execution_id)
        if record.state in OPEN:
            raise Conflict(f"execution {execution_id} is {record.state}; wait for it to end or cancel it first")
        check_runnable(await find_job(context, record.job_id))
        if not record.dead:
            return await add_run(context, record.job_id, Trigger.RETRY, "Queued for retry")
        queued = await redrive(context, record)
        if queued is None:
            raise Conflict(f"execution {execution_id} was retried by another request a moment ago; see what came of it")
        return queued


class RedriveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either ids, or a filter: then up to `limit` of the latest dead letters that it fits."""

    ids: Annotated[tuple[str, ...], Meta(max_length=MOST_REDRIVEN)] = ()
    job_id: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_REDRIVEN)] = 100


class DeadLetterController(Controller):
    path = "/dead-letters"
    tags = ("dead letters",)

    @get("/", summary="Executions that ran out of attempts")
    async def list_dead_letters(
        self, context: ApiContext, job_id: str | None = None,
        limit: int = paging.DEFAULT_LIMIT, offset: int = 0, cursor: str | None = None,
    ) -> ExecutionList:  # fmt: skip
        if job_id is not None:
            paging.check_id(job_id, "job")
        return await list_page(context, ExecutionQuery(TENANT, job_id, dead=True), limit, offset, cursor)

    @post("/redrive", summary="Run dead letters again", status_code=202)
    async def redrive(self, request: Request[Any, Any, Any], context: ApiContext) -> Redriven:
        wanted = decode(await request.body(), RedriveRequest)
        for execution_id in wanted.ids:
            paging.check_id(execution_id, "execution")
        if wanted.job_id is not None:
            paging.check_id(wanted.job_id, "job")
        ids = tuple(dict.fromkeys(wanted.ids))  # named twice is still one dead letter
        if not ids:
            query = ExecutionQuery(TENANT, wanted.job_id, dead=True, limit=wanted.limit)
            ids = tuple(record.execution_id for record in await context.store.list_executions(query))
        now = context.clock.now()
        pairs = tuple((execution_id, make_id(now, context.entropy(10))) for execution_id in ids)
        (count,) = await context.store.apply([Redrive(now, TENANT, pairs)])
        context.waiting_hint(now)
        found = [new_id for _, new_id in pairs if await context.store.get_execution(TENANT, new_id) is not None]
        return Redriven(result_of(count), found)
