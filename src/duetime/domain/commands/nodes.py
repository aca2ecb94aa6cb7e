"""Nodes and workers come and go, own shards, and keep house."""

from __future__ import annotations

from duetime.domain.commands.base import Command
from duetime.domain.worker_limits import WorkerLimits


class JoinWorker(Command, frozen=True):
    """A worker joins: to the ledger it is a node, with a row that says what it can run. Answers its id.

    Refused beyond `limits`: RateLimited for too many workers or names, QuotaExceeded for too many joins.
    """

    now: int
    tenant: str
    user_id: str
    name: str
    functions: tuple[str, ...]
    slots: int
    limits: WorkerLimits | None = None


class BeatWorkers(Command, frozen=True):
    """Signs of life. Answers the ids of those that have ended."""

    now: int
    workers: tuple[int, ...]


class StartNode(Command, frozen=True):
    """Join as `name`; an earlier node of the same name is void from here on. Answers the new node's id."""

    now: int
    name: str


class StopNode(Command, frozen=True):
    now: int
    node: int


class EndNodes(Command, frozen=True):
    """These nodes (or workers) are dead: void from here on, and what they run has lapsed. Answers None.

    No Fire, Claim or FenceShards of these nodes is committed after this. A result is still accepted as long as its
    execution is RUNNING with that attempt and token.
    """

    now: int
    nodes: tuple[int, ...]


class EndWorkers(Command, frozen=True):
    """End those of these (worker, beats) whose beats are still that many, as EndNodes does. Answers their ids.

    Whoever found a worker silent judged by a reading that is old by now: a worker that has beaten since lives on.
    """

    now: int
    workers: tuple[tuple[int, int], ...]


class FenceShards(Command, frozen=True):
    """`node` owns these (shard, epoch) from here on: no Fire of an earlier epoch is committed after this. Answers None.

    Repeating it changes nothing. Refused, all of it: StaleWrite if `node` is void; StaleEpoch if a shard is at a later
    epoch, or at this one for another node.
    """

    node: int
    shards: tuple[tuple[int, int], ...]


class Prune(Command, frozen=True):
    """Remove up to `limit` terminal executions (and their attempts) scheduled before `before`.

    Also drops, up to `limit` of each: ledger entries that ended before `skips_before`, idempotency keys of before
    `keys_before`, circuits of which nothing was heard since `circuits_before`, nodes that ended before `nodes_before`
    (once history is pruned: until then it may name them), and API keys that were revoked or expired before
    `revoked_before`. Answers how many rows went, of the kind that most went of: at `limit`, there may be more.
    `skips_before` is where the age that history may reach ends. A store that keeps each day apart may remove a whole
    day that lies before it at once, whatever the limit, and may leave the day that it lies in until that has passed.
    """

    before: int
    skips_before: int
    keys_before: int
    limit: int
    circuits_before: int = 0
    nodes_before: int = 0
    revoked_before: int = 0
