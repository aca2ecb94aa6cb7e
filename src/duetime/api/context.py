"""The parts of the node that the API uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import msgspec
import structlog

from duetime.api.cache import Moments
from duetime.api.http.held_bodies import HeldBodies
from duetime.api.http.starts import TenantTurns
from duetime.api.streams import Streams
from duetime.domain.capacity import Capacity
from duetime.domain.channels import Kind
from duetime.domain.commands import Command, WithNotifications
from duetime.domain.connection_urls import Url
from duetime.domain.defaults import OperatorDefaults
from duetime.domain.errors import DuetimeError
from duetime.domain.grants import KeyLimits
from duetime.domain.identity import Caller
from duetime.domain.job import JobType
from duetime.domain.lease import ClockState, Standing, View
from duetime.domain.limits import Quota, TierLimits
from duetime.domain.node_report import NodeFacts
from duetime.domain.plan import Skipped
from duetime.domain.signing import SigningState
from duetime.domain.weights import LIGHT_BYTES
from duetime.events import EventFeed, EventHub
from duetime.ports.clock import Clock
from duetime.ports.logs import LogStore
from duetime.ports.store import Store, SubscriptionRecord, apply_one
from duetime.ports.vault import Vault
from duetime.ports.worker_gateway import WorkerGateway
from duetime.settings.table import DEFAULTS
from duetime.telemetry.emitted import JobRefused, NotificationRefused
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.metrics import Metrics
from duetime.telemetry.readings import EngineReadings, Readings

log = structlog.get_logger()

T = TypeVar("T")


class ClusterState(msgspec.Struct, frozen=True):
    """The cluster as this node sees it: `view` is from its last heartbeat, the rest is current."""

    node: int
    name: str
    standing: Standing
    owned: Collection[int]
    view: View | None
    clock: ClockState = ClockState.RIGHT
    clock_offset: int | None = None  # ms ahead of the database's clock; None: there is no other clock


def never() -> bool:
    return False


class EngineLink(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's functions for routes. A lost lease ends a term of the engine: each call goes to the current term."""

    due_hint: Callable[[int], None]  # for the timer: a job is due at this time
    waiting_hint: Callable[[int], None]  # for the claimer: an execution waits since this time
    circuits_hint: Callable[[], None]  # for the breaker: a circuit was closed
    subscriptions_hint: Callable[[], None]  # subscriptions have changed
    signing_hint: Callable[[SigningState], None]  # a tenant has rotated its signing key
    cancel: Callable[[str], bool]  # an execution that is running
    subscriptions: Callable[[str], Sequence[SubscriptionRecord]]  # of a tenant
    worker_gateway: Callable[[], WorkerGateway]
    cluster: Callable[[], ClusterState]
    health: Callable[[], dict[str, str]]
    readings: Callable[[], EngineReadings]
    facts: Callable[[], NodeFacts]  # what this node tells the others about itself
    is_stopping: Callable[[], bool] = never


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on requests, jobs, API keys, connections and alert channels."""

    tiers: TierLimits
    capacity: Capacity
    keys: KeyLimits
    connections: int | None  # of one tenant
    channels: int | None = None  # of one tenant


class CreationRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs, connections and alert channels may be created here."""

    types: frozenset[JobType]
    defaults: OperatorDefaults  # for fields that a job leaves out
    # Returns why no job may call this URL, and which setting would allow it; None: allowed, as far as the URL shows.
    target_refusal: Callable[[str], str | None]
    # Returns why no connection with this URL may be registered, as a sentence; None: it may.
    connection_refusal: Callable[[Url], str | None]
    # Returns why no alert channel of this kind and URL may be added, as a sentence; None: it may.
    channel_refusal: Callable[[Kind, str], str | None]


class ApiContext(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    clock: Clock
    events: EventHub  # what happens on this node
    feed: EventFeed  # what happens on all nodes, soon after
    random_bytes: Callable[[int], bytes]
    vault: Vault
    logs: LogStore
    metrics: Metrics
    readings: Callable[[], Awaitable[Readings]]  # all figures of this node as of now
    telemetry: Telemetry
    engine: EngineLink
    limits: ApiLimits
    rules: CreationRules
    forget_key: Callable[[str], None]  # drops a revoked API key from the cache
    derive_keys: Callable[[str, int], Sequence[bytes]]  # signing keys of a tenant and version; empty: no signing
    bodies: HeldBodies = msgspec.field(default_factory=HeldBodies)
    streams: Streams = msgspec.field(default_factory=Streams)
    turns: TenantTurns = msgspec.field(default_factory=TenantTurns)
    moments: Moments = msgspec.field(default_factory=Moments)
    operator_tenant: str = ""  # the setting OPERATOR_TENANT
    failure_threshold: float = DEFAULTS.health_failure_threshold

    async def apply(self, command: Command[T], then: tuple[Command, ...] = ()) -> T:
        """Applies a command. Returns its result, or raises its refusal. `then`: commands applied if it succeeds."""
        try:
            if not then:
                return await apply_one(self.store, command)
            carried = await apply_one(self.store, WithNotifications(command, then))
        except DuetimeError as error:
            self.note_refusal(error)
            raise
        for refusal in carried.refused:
            self.telemetry.emit(NotificationRefused(refusal))
            log.error("a notification can't be stored", error=refusal.message)
        return carried.answer

    async def take_turn(self, tenant: str, body: bytes) -> None:
        """Call it before a body is decoded: large bodies take turns, so that many of them delay no other request."""
        if len(body) > LIGHT_BYTES:
            await self.turns.wait(tenant)

    def publish_skips(self, skips: Sequence[Skipped], now: int, owner: str) -> None:
        """Publishes spans of a job's instants that will not run."""
        for skip in skips:
            self.events.publish("execution.skipped", now, skip.tenant, skip.as_event(), owner)

    def note_refusal(self, error: DuetimeError) -> None:
        self.telemetry.emit(JobRefused(error))

    def quota_of(self, caller: Caller) -> Quota | None:
        """Returns the quota for new jobs of this caller; None: no limit."""
        limit = self.limits.tiers.jobs.get(caller.tier)
        return None if limit is None else Quota(caller.tenant, caller.user_id, limit)
