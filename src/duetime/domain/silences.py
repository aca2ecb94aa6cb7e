"""When an alert's notices are held back: silences, which people set for a time, and the quiet hours of a rule. Pure.

A silence drops notices of alerts that fire; quiet hours delay them. Neither changes the state of an alert. If the alert
still fires when they end, it is told then.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from duetime.domain.alert_rules import EVERY_DAY, AlertRule, QuietHours, Severity
from duetime.domain.cron.zone import load_zone
from duetime.domain.errors import Conflict
from duetime.domain.instants import to_datetime

MOST_SILENCES = 100  # of a tenant, that have not ended
LONGEST_SILENCE = 31 * 86_400  # seconds


class Silence(msgspec.Struct, frozen=True, array_like=True):
    """`rule` and `subject` that are empty match any."""

    silence_id: str
    tenant: str
    rule: str
    subject: str
    begins_at: int
    ends_at: int
    reason: str
    created_at: int
    created_by: str

    def covers(self, rule: str, subject: str, now: int) -> bool:
        """Returns whether it holds back notices of this alert now."""
        return self.begins_at <= now < self.ends_at and self.rule in ("", rule) and self.subject in ("", subject)


def is_silenced(silences: Iterable[Silence], rule: str, subject: str, now: int) -> bool:
    return any(silence.covers(rule, subject, now) for silence in silences)


def is_quiet(rule: AlertRule, now: int) -> bool:
    """Returns whether notices of the rule have to wait because of its quiet hours."""
    hours = rule.quiet_hours
    if hours is None or (rule.severity is Severity.CRITICAL and not hours.critical):
        return False
    return in_hours(hours, now)


def in_hours(hours: QuietHours, now: int) -> bool:
    """Returns whether the instant is in the hours. Hours over midnight belong to the day on which they begin."""
    local = to_datetime(now).astimezone(load_zone(hours.timezone))
    time, today = f"{local:%H:%M}", EVERY_DAY[local.weekday()]
    if hours.begin < hours.end:
        return today in hours.days and hours.begin <= time < hours.end
    yesterday = EVERY_DAY[(local - timedelta(days=1)).weekday()]
    return (today in hours.days and time >= hours.begin) or (yesterday in hours.days and time < hours.end)


def check_silences(count: int) -> None:
    """Raises Conflict if a tenant with `count` silences can't add one."""
    if count >= MOST_SILENCES:
        raise Conflict(f"there are {count} silences, which is the most a tenant may have; remove one first")
