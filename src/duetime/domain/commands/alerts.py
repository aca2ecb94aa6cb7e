"""Commands on alerts: rules and silences of a tenant, the owner of the alerts, and what a turn of it has decided."""

from __future__ import annotations

from duetime.domain.alert_rules import AlertRule
from duetime.domain.alerts import Alert
from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.commands.jobs import CreateJobs
from duetime.domain.silences import Silence


class PutAlertRule(Command[None], frozen=True):
    """Add an alert rule, or replace the tenant's rule of that name. Returns None.

    Fails with Conflict if the tenant has too many rules.
    """

    now: int
    tenant: str
    rule: AlertRule
    changed_by: str
    audit: Entry | None = None


class RemoveAlertRule(Command[None], frozen=True):
    """Remove a stored rule: a default of that name holds again. Returns None. Fails with NotFound."""

    tenant: str
    name: str
    audit: Entry | None = None


class AddSilence(Command[None], frozen=True):
    """Hold back notices. Returns None. Removes silences that have ended. Fails with Conflict if there are too many."""

    now: int
    silence: Silence
    audit: Entry | None = None


class RemoveSilence(Command[None], frozen=True):
    """End a silence. Returns None. Fails with NotFound."""

    tenant: str
    silence_id: str
    audit: Entry | None = None


class TakeAlerts(Command[int], frozen=True):
    """Make `node` the owner of the alerts. Returns the new epoch.

    No ApplyAlerts of an earlier epoch is committed after this. Fails with StaleWrite if `node` is fenced.
    """

    node: int


class ApplyAlerts(Command[bool], frozen=True):
    """Write what a turn decided about one tenant's alerts, and the notices as jobs, in one commit.

    `changed`: alerts to add or replace. `dropped`: ids of alerts to delete. Of alerts that are over it keeps the latest
    `alerts.HISTORY` of the tenant. Returns False, and changes nothing, if another node has taken the alerts
    since. Fails with StaleWrite if `node` is fenced; QuotaExceeded if the tenant had too many notices.
    """

    now: int
    node: int
    epoch: int
    tenant: str
    changed: tuple[Alert, ...]
    dropped: tuple[str, ...] = ()
    notices: tuple[CreateJobs, ...] = ()
