"""What a caller may see and touch: their right for the route, and the job or execution that it is about.

Deny by default: a route that does not say which right it needs is refused to everyone.
"""

from __future__ import annotations

from typing import Any, cast

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler

from duetime.api import paging
from duetime.api.context import ApiContext
from duetime.domain.errors import Forbidden, NotFound
from duetime.domain.identity import Caller, check_owner, check_right
from duetime.ports.store import ExecutionRecord, JobRecord

RIGHT = "right"  # of a route's options: what it needs
ANYONE = "anyone"  # also without identity: the gate lets through what is public


def get_caller(request: Request[Any, Any, Any]) -> Caller:
    return cast(Caller, request.scope["user"])


def check_route(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard of every route."""
    right = handler.opt.get(RIGHT)
    if right == ANYONE:
        return
    if right is None and connection.scope.get("method") == "OPTIONS":  # the framework's own, and it knows not all
        raise MethodNotAllowedException
    if right is None:
        raise Forbidden(f"nobody may do this yet: {connection.url.path} does not say who")
    check_right(connection.scope["user"], right)


async def find_job(context: ApiContext, caller: Caller, job_id: str) -> JobRecord:
    """Raises NotFound, also for another tenant's, and Forbidden for another user's."""
    record = await context.store.get_job(caller.tenant, paging.check_id(job_id, "job"))
    if record is None:
        raise NotFound(f"there is no job {job_id}")
    check_owner(caller, record.owner, f"job {job_id}")
    return record


async def find_execution(context: ApiContext, caller: Caller, execution_id: str) -> ExecutionRecord:
    """As `find_job`: an execution is its job's owner's."""
    record = await context.store.get_execution(caller.tenant, paging.check_id(execution_id, "execution"))
    if record is None:
        raise NotFound(f"there is no execution {execution_id}")
    if not caller.is_admin:
        job = await context.store.get_job(caller.tenant, record.job_id)
        check_owner(caller, "" if job is None else job.owner, f"execution {execution_id}")
    return record
