"""The applications: the API's routes behind the gate, with a right for each route; and /health alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, ControllerRouterHandler

from duetime.api.auth.access import check_route, get_caller
from duetime.api.bodies import MAX_BODY_BYTES
from duetime.api.context import ApiContext
from duetime.api.openapi import DOCS_ROUTES, WordSchemas, openapi_config
from duetime.api.problems import handle_anything, handle_duetime_error, handle_http_exception
from duetime.api.queries import refuse_nul
from duetime.api.routes.actions import JobActionController
from duetime.api.routes.audit import AuditController
from duetime.api.routes.batch import create_jobs
from duetime.api.routes.circuits import CircuitController
from duetime.api.routes.cluster import get_cluster
from duetime.api.routes.connections import ConnectionController
from duetime.api.routes.create import QuickCreate
from duetime.api.routes.dead_letters import DeadLetterController
from duetime.api.routes.events import EventController
from duetime.api.routes.executions import ExecutionController
from duetime.api.routes.health import HEALTH_ROUTES
from duetime.api.routes.jobs import JobController
from duetime.api.routes.keys import KeyController
from duetime.api.routes.now import get_now
from duetime.api.routes.schedules import ScheduleController
from duetime.api.routes.signing import SigningKeyController
from duetime.api.routes.statistics import ObservabilityController, get_job_histograms, get_stats
from duetime.api.routes.subscriptions import SubscriptionController
from duetime.api.routes.workers import WorkerController
from duetime.domain.errors import DuetimeError

BASE_PATH = "/api/v1"

MakeGate = Callable[[ASGIApp], ASGIApp]


def create_app(context: ApiContext, gate: MakeGate) -> ASGIApp:
    return gate(QuickCreate(create_routes(context, [_routes(), *HEALTH_ROUTES, *DOCS_ROUTES]), context))


def create_health_app(context: ApiContext, gate: MakeGate) -> ASGIApp:
    """Returns the application of a node without the role `api`: it serves /health only."""
    return gate(create_routes(context, HEALTH_ROUTES))


def _routes() -> Router:
    return Router(
        BASE_PATH,
        route_handlers=[
            create_jobs, JobController, JobActionController, ExecutionController, DeadLetterController,
            ScheduleController, EventController, KeyController, AuditController, WorkerController, CircuitController,
            ConnectionController, SubscriptionController, SigningKeyController, get_cluster, get_stats,
            ObservabilityController, get_job_histograms, get_now,
        ],
        before_request=refuse_nul,
    )  # fmt: skip


def create_routes(context: ApiContext, handlers: Sequence[ControllerRouterHandler]) -> Litestar:
    return Litestar(
        route_handlers=handlers,
        guards=[check_route],
        dependencies={
            "context": Provide(lambda: context, sync_to_thread=False, use_cache=True),
            "caller": Provide(get_caller, sync_to_thread=False),
        },
        exception_handlers={
            DuetimeError: handle_duetime_error,
            HTTPException: handle_http_exception,
            Exception: handle_anything,
        },
        openapi_config=openapi_config(),
        plugins=[WordSchemas()],
        request_max_body_size=MAX_BODY_BYTES,
        logging_config=None,
    )
