"""Commands of nodes and workers: join, renew, end, fence shards, prune."""

from __future__ import annotations

from duetime.domain.commands.base import Command
from duetime.domain.worker_limits import WorkerLimits


class JoinWorker(Command[int], frozen=True):
    """Add a worker. The ledger treats it as a node, with a row that lists the functions it can run. Returns its id.

    Beyond `limits`, fails with RateLimited for too many workers or names, and QuotaExceeded for too many joins.
    """

    now: int
    tenant: str
    user_id: str
    name: str
    functions: tuple[str, ...]
    slots: int
    limits: WorkerLimits | None = None


class BeatWorkers(Command[list[int]], frozen=True):
    """Record heartbeats of workers. Returns the ids of the workers that have ended."""

    now: int
    workers: tuple[int, ...]


class StartNode(Command[int], frozen=True):
    """Join as `name`. From then on an earlier node of the same name is fenced. Returns the new node's id."""

    now: int
    name: str


class StopNode(Command[None], frozen=True):
    """Leave: the node is fenced, by itself, and its report is removed. Returns None."""

    now: int
    node: int


class FenceNodes(Command[list[int]], frozen=True):
    """Fence expired nodes (or workers): their claims have expired. Returns those that were alive until now.

    No Fire, ClaimExecutions or FenceShards of these nodes is committed after this. A result still counts as long as its
    execution is RUNNING with that attempt and token.
    """

    now: int
    nodes: tuple[int, ...]


class FenceWorkers(Command[list[int]], frozen=True):
    """Fence, as FenceNodes does, each (worker, beats) whose number of heartbeats is still `beats`. Returns their ids.

    The caller found the worker silent in an earlier read: a worker that has sent a heartbeat since is not fenced.
    """

    now: int
    workers: tuple[tuple[int, int], ...]


class FenceShards(Command[None], frozen=True):
    """Make `node` the owner of these (shard, epoch). No Fire of an earlier epoch is committed after this. Returns None.

    Repeating it changes nothing. Fails as a whole: with StaleWrite if `node` is fenced; with StaleEpoch if a shard is
    at a later epoch, or at this one for another node.
    """

    node: int
    shards: tuple[tuple[int, int], ...]


class Prune(Command[int], frozen=True):
    """Remove up to `limit` terminal executions (and their attempts) scheduled before `before`.

    Also removes, up to `limit` of each: ledger entries that ended before `skips_before`, idempotency keys from before
    `keys_before`, circuits without an event since `circuits_before`, nodes that ended before `nodes_before` (once
    history is pruned: until then it may name them), and API keys that were revoked or expired before `revoked_before`.
    Returns the largest number of rows removed of one kind: if it is `limit`, there may be more.
    `skips_before` is the limit of the whole retention. So a store that keeps each day apart may remove days that end
    before it at once, whatever `limit` is, and may keep the day of `skips_before` until that day has passed.
    """

    before: int
    skips_before: int
    keys_before: int
    limit: int
    circuits_before: int = 0
    nodes_before: int = 0
    revoked_before: int = 0
