"""The engine's settings, as values: `duetime.settings` reads them, and the engine knows no environment."""

from __future__ import annotations

import msgspec

from duetime.domain.breaker import Rules
from duetime.domain.lease import TIMER
from duetime.domain.limits import Limit
from duetime.domain.page_size import LAPSED_PAGE
from duetime.domain.worker_limits import WorkerLimits
from duetime.engine.dispatcher import Limits

WORKER = "worker"


class EngineSettings(msgspec.Struct, frozen=True):
    node_name: str = "node-1"
    roles: frozenset[str] = frozenset({TIMER, WORKER})
    limits: Limits = Limits()
    drain_seconds: float = 30.0
    stop_seconds: float = 10.0  # the time for a stop, in addition to the drain
    reconcile_interval_seconds: float = 300.0
    reconcile_batch: int = LAPSED_PAGE
    history_seconds: float = 30 * 86_400.0
    history_most: int = 10_000_000
    logs_most_bytes: int = 10 * 1024**3
    audit_seconds: float = 0.0  # 0: kept forever
    worker_lease_seconds: float = 5.0
    workers: WorkerLimits = WorkerLimits()  # per tenant
    breaker: Rules = Rules()
    notifications: Limit | None = None  # per tenant
