"""/api/v1/cluster: the living nodes, the shards that they own, and the standing of this node."""

from __future__ import annotations

from litestar import get

from duetime.api.context import ApiContext, ClusterState
from duetime.domain.identity import Right
from duetime.domain.ids import SHARDS
from duetime.domain.instants import LATEST
from duetime.domain.lease import empty_view, runs_housekeeping
from duetime.wire.cluster import Cluster, NodeView, OwnStanding


@get(
    "/cluster", tags=["cluster"], summary="Living nodes with their roles, leases and shards; shards without an owner",
    right=Right.ADMIN,
)  # fmt: skip
async def get_cluster(context: ApiContext) -> Cluster:
    return view_cluster(context.engine.cluster())


def view_cluster(state: ClusterState) -> Cluster:
    view = state.view or empty_view()
    # The view is from the last heartbeat. Since then this node may have taken or released shards, or lost them all with
    # the trust in its lease.
    owners = [None if holding.owner == state.node else holding.owner for holding in view.shards]
    for shard in state.owned:
        owners[shard] = state.node
    nodes = []
    for member in view.members:
        owned = [shard for shard, owner in enumerate(owners) if owner == member.node]
        left = None if member.expires_at >= LATEST else max(0, member.expires_at - view.now)
        nodes.append(
            NodeView(member.node, member.name, sorted(member.roles), left, len(owned), runs_housekeeping(owned))
        )
    alive = {member.node for member in view.members}
    free = [shard for shard, owner in enumerate(owners) if owner not in alive]
    own = OwnStanding(state.node, state.name, state.standing, len(state.owned))
    return Cluster(own, nodes, SHARDS, free)
