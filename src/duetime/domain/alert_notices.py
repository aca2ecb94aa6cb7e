"""The text of notices about alerts, and the jobs that send them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetime.domain.alert_rules import AlertRule
from duetime.domain.alerts import Alert, Telling
from duetime.domain.commands import CreateJobs
from duetime.domain.instants import format_instant
from duetime.domain.notices import create_notices, make_notice

MOST_LISTED = 20  # alerts in one notice; of the others only the number is told


def notice_jobs(telling: Telling, tenant: str, now: int, random_bytes: bytes) -> CreateJobs:
    """Returns the command that creates the jobs of a notice."""
    listed = (*telling.firing, *telling.resolved)
    notice = make_notice(
        telling.channels, _title(telling), _body(telling), severity=telling.severity, status=telling.status,
        dedup_key=f"{tenant}/{telling.rule}/{telling.group}",
        data={"rule": telling.rule, "count": len(listed), "alerts": [shown(alert) for alert in listed[:MOST_LISTED]]},
    )  # fmt: skip
    return create_notices(tenant, notice, now, random_bytes)


def trial_jobs(rule: AlertRule, channels: Sequence[str], tenant: str, now: int, random_bytes: bytes) -> CreateJobs:
    """Returns the command that creates the jobs of a test notice of a rule, which is filled."""
    notice = make_notice(
        channels, f"Test: {rule.name}", f"This is a test of the alert rule '{rule.name}'. Nothing is wrong.",
        severity=rule.severity or "warning", status="test", dedup_key=f"{tenant}/{rule.name}/test",
        data={"rule": rule.name},
    )  # fmt: skip
    return create_notices(tenant, notice, now, random_bytes)


def shown(alert: Alert) -> dict[str, Any]:
    """Returns an alert as notices and events have it."""
    return {
        "alert_id": alert.alert_id, "rule": alert.rule, "kind": alert.kind, "subject": alert.subject,
        "severity": alert.severity, "state": alert.state, "summary": alert.summary, "value": alert.value,
        "since": format_instant(alert.since),
        "fired_at": None if alert.fired_at is None else format_instant(alert.fired_at),
        "resolved_at": None if alert.resolved_at is None else format_instant(alert.resolved_at),
    }  # fmt: skip


def _title(telling: Telling) -> str:
    listed = telling.firing or telling.resolved
    what = "firing" if telling.firing else "resolved"
    head = f"{what}: {telling.rule}"
    return f"{head} ({len(listed)} alerts)" if len(listed) > 1 else f"{head}: {listed[0].summary}"


def _body(telling: Telling) -> str:
    lines: list[str] = []
    for what, alerts in (("firing", telling.firing), ("resolved", telling.resolved)):
        lines += [f"{what} since {_when(alert)}: {alert.summary}" for alert in alerts[:MOST_LISTED]]
        if len(alerts) > MOST_LISTED:
            lines.append(f"and {len(alerts) - MOST_LISTED:,} more {what}")
    if telling.status == "firing" and not telling.firing:
        lines.append("other alerts of this rule still fire")
    return "\n".join(lines)


def _when(alert: Alert) -> str:
    at = alert.resolved_at if alert.resolved_at is not None else alert.fired_at
    return format_instant(alert.since if at is None else at)
