"""/api/v1/observability/now: what stands out on the nodes."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import get

from duetime.api.context import ApiContext
from duetime.domain.breaker import Circuit
from duetime.domain.endpoints import origin_of
from duetime.domain.identity import Caller, Right, is_operator
from duetime.domain.node_report import NodeReport
from duetime.domain.troubles import JobTrouble, PlaceUse, merged, merged_places
from duetime.wire.now import FailingTarget, Now, Places, WorstJob

MOST_NODES = 100
MOST_JOBS = 50
MOST_PLACES = 20
MOST_CIRCUITS = 50


@get(
    "/observability/now", tags=["observability"], right=Right.ADMIN,
    summary="The worst jobs of the last minutes, and which tenants and targets take the places",
)  # fmt: skip
async def get_now(context: ApiContext, caller: Caller) -> Now:
    reports = await list_reports(context, context.clock.now())
    tenant = None if is_operator(caller, context.operator_tenant) else caller.tenant
    uses = merged_places([report.facts.places for report in reports], tenant)
    return Now(
        [_view_job(job) for job in merged([report.facts.troubles for report in reports], tenant)[:MOST_JOBS]],
        _view_places([use for use in uses if not use.target]),
        _view_places([use for use in uses if use.target]),
        [_view_circuit(one, caller.tenant) for one in await context.store.list_circuits(tenant, MOST_CIRCUITS)],
    )


async def list_reports(context: ApiContext, now: int) -> list[NodeReport]:
    """Returns the fresh reports of all nodes, by name. What this node knows about itself is newer than its report."""
    own = context.engine.cluster().node
    found = [one for one in await context.store.list_node_reports(MOST_NODES) if one.node != own and one.is_fresh(now)]
    return sorted([*found, NodeReport(own, now, context.engine.facts())], key=lambda one: (one.facts.name, one.node))


def _view_job(job: JobTrouble) -> WorstJob:
    return WorstJob(job.job_id, job.name, job.type, job.tenant, job.failures, job.lateness_ms, job.error or None)


def _view_circuit(circuit: Circuit, tenant: str) -> FailingTarget:
    """The path of a URL may hold a secret, so another tenant's is not shown, not even to the operator."""
    target = circuit.url if circuit.tenant == tenant else origin_of(circuit.url)
    return FailingTarget(circuit.tenant, target, circuit.state, circuit.failures)


def _view_places(uses: Sequence[PlaceUse]) -> list[Places]:
    return [Places(use.tenant, use.target or None, use.running, use.waiting) for use in uses[:MOST_PLACES]]
