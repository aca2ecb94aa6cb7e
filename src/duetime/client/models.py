"""The types of responses, under the names that programs use.

Most are types of `duetime.wire`, which the server uses, too. The types defined here differ on purpose, or only the
client needs them. Instants are datetimes in UTC. A value of a fixed set (a state, a role) is text, so that the value of
a newer server can be read: compare it with a member of the enum by `==`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from duetime.client.calls import Page
from duetime.wire import jobs
from duetime.wire.alerts import (
    AlertHistory,
    AlertList,
    AlertRuleList,
    AlertRuleMessage,
    AlertRuleTest,
    SilenceList,
    SilenceMessage,
)
from duetime.wire.alerts import AlertRuleView as AlertRule
from duetime.wire.alerts import AlertView as Alert
from duetime.wire.alerts import SilenceView as Silence
from duetime.wire.audit import AuditList
from duetime.wire.audit import AuditView as AuditEntry
from duetime.wire.channels import ChannelList, ChannelMessage, ChannelTest
from duetime.wire.channels import ChannelView as AlertChannel
from duetime.wire.circuits import CircuitList, CircuitMessage
from duetime.wire.circuits import CircuitView as Circuit
from duetime.wire.cluster import Cluster, OwnStanding, WorkerList
from duetime.wire.cluster import NodeView as Node
from duetime.wire.cluster import WorkerView as WorkerEntry
from duetime.wire.connections import ConnectionList, ConnectionMessage
from duetime.wire.connections import ConnectionView as Connection
from duetime.wire.executions import AttemptView as Attempt
from duetime.wire.executions import ExecutionDetail, Logs, QueuedRun, Redriven
from duetime.wire.executions import ExecutionList as ExecutionPage
from duetime.wire.executions import ExecutionView as Execution
from duetime.wire.executions import SkippedView as Skipped
from duetime.wire.health import Health, JobsHealth, MemoryHealth, NodeHealth, Readiness
from duetime.wire.identity import KeyList, KeyMessage, MadeKey
from duetime.wire.identity import KeyView as Key
from duetime.wire.jobs import BatchResult, Coming, JobGlance, JobMessage, Refused, Why
from duetime.wire.jobs import ObjectiveView as Objective
from duetime.wire.now import Now, Places, WorstJob
from duetime.wire.schedules import Preview
from duetime.wire.signing import OtherSigningKey
from duetime.wire.signing import SigningKeyView as SigningKey
from duetime.wire.statistics import (
    Bars,
    HistogramBucket,
    Histograms,
    NodeFigures,
    ObservabilityMetrics,
    Rates,
    Spread,
    Stats,
    Windows,
)
from duetime.wire.subscriptions import SubscriptionList, SubscriptionMessage
from duetime.wire.subscriptions import SubscriptionView as Subscription
from duetime.wire.words import (
    ErrorTypeWord,
    ObjectiveWord,
    RightWord,
    RoleWord,
    StandingWord,
    StateWord,
    StatusWord,
    TierWord,
    TriggerWord,
    TypeWord,
)

__all__ = [
    "Alert", "AlertChannel", "AlertHistory", "AlertList", "AlertRule", "AlertRuleList", "AlertRuleMessage",
    "AlertRuleTest", "Attempt", "AuditEntry", "AuditPage", "Bars", "BatchResult", "CatchUp", "ChannelList",
    "ChannelMessage", "ChannelTest", "Circuit", "CircuitList", "CircuitMessage", "Cluster", "Coming", "Connection",
    "ConnectionList", "ConnectionMessage", "CreatedJob", "Dst", "ErrorTypeWord", "Event", "Execution",
    "ExecutionDetail", "ExecutionPage", "Health", "HistogramBucket", "Histograms", "Job", "JobGlance", "JobMessage",
    "JobPage", "JobsHealth", "Key", "KeyList", "KeyMessage", "LogEntry", "Logs", "MadeKey", "MemoryHealth", "Node",
    "NodeFigures", "NodeHealth", "Now", "Objective", "ObjectiveWord", "ObservabilityMetrics",
    "OtherSigningKey", "OwnStanding", "Page", "Places", "Preview", "QueuedRun", "Rates", "Readiness", "Redriven",
    "Refused", "RetryPolicy", "RightWord", "RoleWord", "SigningKey", "Silence", "SilenceList", "SilenceMessage",
    "Skipped", "Slo", "Spread", "StandingWord", "StateWord", "Stats", "StatusWord", "Subscription", "SubscriptionList",
    "SubscriptionMessage", "TierWord", "TriggerWord", "TypeWord", "Webhooks", "Why", "Windows", "WorkerEntry",
    "WorkerList", "WorstJob",
]  # fmt: skip


class CreatedJob(jobs.CreatedJob, frozen=True):
    """`version`: 1 for a new job; after put_job_by_key the job's current version, for `if_match`.

    `warnings`: why the job may not run as intended.
    """

    # Differs from the wire's on purpose: put_job_by_key responds with a whole job if it was there, and has its version.
    version: int = 1


# These five differ from the domain's on purpose: the domain's refuse fields and values that a newer server may send.


class RetryPolicy(msgspec.Struct, frozen=True):
    max_retries: int | None = None
    backoff: str = "exponential"
    initial_delay_seconds: float = 10.0
    backoff_factor: float = 3.0
    max_delay_seconds: float = 3600.0
    delays: list[float] = []


class CatchUp(msgspec.Struct, frozen=True):
    policy: str = "latest"
    window_seconds: int = 3600
    max_runs: int = 100


class Dst(msgspec.Struct, frozen=True):
    gap: str = "shift"
    overlap: str = "first"


class Webhooks(msgspec.Struct, frozen=True):
    """URLs that are notified of the end of an execution."""

    on_success: str | None = None
    on_failure: str | None = None


class Slo(msgspec.Struct, frozen=True):
    """Objectives of a job. `on_time` and `success` are percentages."""

    lateness_seconds: float | None = None
    on_time: float = 99.0
    success: float | None = None
    window: str = "30d"


class Job(jobs.JobFields, frozen=True, kw_only=True):
    """`payload` has what its `type` needs. `start_at` and `end_at` are text as it was sent, maybe without a zone."""

    # Differs from the wire's JobView on purpose: unknown types of jobs can be read, too.
    type: TypeWord
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    retry_policy: RetryPolicy = RetryPolicy()
    catch_up: CatchUp = CatchUp()
    dst: Dst = Dst()
    webhooks: Webhooks = Webhooks()
    slo: Slo | None = None


class JobPage(msgspec.Struct, frozen=True):
    """Differs from the wire's JobList on purpose, as its jobs do."""

    jobs: list[Job]
    total: int = 0
    limit: int = 0
    offset: int = 0
    has_more: bool = False
    next_cursor: str | None = None


class AuditPage(AuditList, frozen=True):
    """Differs from the wire's AuditList on purpose: every page has these two. The audit has no offset and no total."""

    offset: int = 0
    total: int = 0


class LogEntry(msgspec.Struct, frozen=True):
    """`number` grows with each entry; `text` may have several lines."""

    number: int | None
    text: str


class Event(msgspec.Struct, frozen=True):
    """An event. The kind `reset` means that events may have been lost: read the lists again."""

    number: int | None
    kind: str
    data: dict[str, Any]

    @property
    def at(self) -> datetime | None:
        return datetime.fromisoformat(self.data["at"]) if "at" in self.data else None
