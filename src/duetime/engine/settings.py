"""The engine's settings, as values: `duetime.settings` reads them, and the engine knows no environment."""

from __future__ import annotations

import msgspec

from duetime.domain.breaker import Rules
from duetime.domain.instants import SECOND
from duetime.domain.lease import TIMER
from duetime.domain.limits import Limit
from duetime.domain.worker_limits import WorkerLimits
from duetime.engine.dispatcher import Limits
from duetime.settings.table import DEFAULTS

WORKER = "worker"


class EngineSettings(msgspec.Struct, frozen=True):
    node_name: str = "node-1"
    version: str = ""
    roles: frozenset[str] = frozenset({TIMER, WORKER})
    limits: Limits = Limits()
    drain_seconds: float = DEFAULTS.dispatcher_drain_timeout
    stop_seconds: float = DEFAULTS.http_shutdown_timeout  # the time for a stop, in addition to the drain
    reconcile_interval_seconds: float = DEFAULTS.reconcile_interval
    reconcile_batch: int = DEFAULTS.reconcile_batch_size
    history_seconds: float = DEFAULTS.execution_history_retention
    history_most: int = DEFAULTS.execution_history_limit
    logs_most_bytes: int = DEFAULTS.logs_total_limit
    audit_seconds: float = 0.0  # 0: kept forever
    worker_lease_seconds: float = DEFAULTS.worker_lease_seconds
    workers: WorkerLimits = WorkerLimits(DEFAULTS.tenant_workers_limit)  # per tenant
    breaker: Rules = Rules(DEFAULTS.circuit_breaker_threshold, int(DEFAULTS.circuit_breaker_cooldown * SECOND))
    notifications: Limit | None = None  # per tenant
