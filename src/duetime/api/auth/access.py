"""Access checks: the caller's right for the route, and for the job or execution of the request.

Deny by default: a route that does not declare the right it needs is refused to every caller.
"""

from __future__ import annotations

from typing import Any, cast

from litestar.connection import ASGIConnection
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler

from duetime.api import queries
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.domain.errors import Forbidden, NotFound
from duetime.domain.identity import Caller, check_owner, check_right, is_operator
from duetime.ports.store import ExecutionRecord, JobRecord

RIGHT = "right"  # the key of a route's options that names the right it needs
ANYONE = "anyone"  # even without authentication: the gate passes public paths


def get_caller(request: AnyRequest) -> Caller:
    return cast(Caller, request.scope["user"])


def check_operator(context: ApiContext, caller: Caller) -> None:
    """Raises Forbidden unless the caller may see figures of the whole cluster, which are over all tenants."""
    if not is_operator(caller, context.operator_tenant):
        raise Forbidden(
            "these figures are over all tenants: only admins of the OPERATOR_TENANT see them here; METRICS_PORT serves "
            "them to whoever can reach it"
        )


def check_route(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The guard of every route. Raises Forbidden if the caller lacks the route's right."""
    right = handler.opt.get(RIGHT)
    if right == ANYONE:
        return
    if right is None and connection.scope.get("method") == "OPTIONS":  # the framework's own, incomplete route
        raise MethodNotAllowedException
    if right is None:
        raise Forbidden(f"no caller may use {connection.url.path}: the route declares no right")
    check_right(connection.scope["user"], right)


async def find_job(context: ApiContext, caller: Caller, job_id: str) -> JobRecord:
    """Returns a job. Raises NotFound, also for another tenant's job, and Forbidden for another user's."""
    record = await context.store.get_job(caller.tenant, queries.check_id(job_id, "job"))
    if record is None:
        raise NotFound(f"there is no job {job_id}")
    check_owner(caller, record.owner, f"job {job_id}")
    return record


async def find_execution(context: ApiContext, caller: Caller, execution_id: str) -> ExecutionRecord:
    """Like `find_job`: an execution belongs to the owner of its job."""
    record = await context.store.get_execution(caller.tenant, queries.check_id(execution_id, "execution"))
    if record is None:
        raise NotFound(f"there is no execution {execution_id}")
    if not caller.is_admin:
        job = await context.store.get_job(caller.tenant, record.job_id)
        check_owner(caller, "" if job is None else job.owner, f"execution {execution_id}")
    return record
