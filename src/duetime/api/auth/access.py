"""Access checks: the caller's right for the route, and for the job or execution of the request.

Deny by default: a route that does not declare the right it needs is refused to every caller. Without identity, only
users of this machine may send requests, and not the web pages that they visit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler

from duetime.api import queries
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.domain.errors import Forbidden, NotFound
from duetime.domain.identity import Caller, check_owner, check_right
from duetime.domain.loopback import is_loopback
from duetime.ports.store import ExecutionRecord, JobRecord

RIGHT = "right"  # the key of a route's options that names the right it needs
ANYONE = "anyone"  # even without authentication: the gate passes public paths
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]{1,45})\]|(?P<name>[a-z0-9.-]{1,64}))(?::[0-9]{0,5})?")


def get_caller(request: AnyRequest) -> Caller:
    return cast(Caller, request.scope["user"])


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


def check_local(host: bytes, origin: bytes) -> None:
    """Checks `Host` and `Origin` of a request. Raises Forbidden if it is not local."""
    if not _is_local(host) or (origin and not _is_of(origin, host)):
        raise Forbidden(
            "without a JWT secret this server accepts local requests only: use http://127.0.0.1 or http://localhost"
        )


@lru_cache(maxsize=64)
def _is_local(host: bytes) -> bool:
    match = _HOST.fullmatch(host.decode("latin-1").lower())
    return match is not None and is_loopback(match["address"] or match["name"])


def _is_of(origin: bytes, host: bytes) -> bool:
    """Returns whether the origin is this server. The client chooses `Origin`: it may not even be a URL."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc == host.decode("latin-1")
    except ValueError:
        return False
