"""Alerts, their rules and silences."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from duetime.domain.alert_rules import LONGEST_WINDOW, AlertKind, Channels, Escalation, QuietHours, Seconds, Severity
from duetime.domain.silences import LONGEST_SILENCE
from duetime.wire.words import ABSENT, AlertKindWord, AlertStateWord, Instant, SeverityWord


class AlertView(msgspec.Struct, frozen=True):
    """`subject`: what it is about: `job:<id>`, `tag:name=value`, `node:<name>` and the like; empty: all of the tenant.

    `since`: the first bad reading. `told`: the channels that know that it fires.
    """

    alert_id: str
    rule: str
    kind: AlertKindWord = ""
    subject: str = ""
    severity: SeverityWord = ""
    state: AlertStateWord = ""
    summary: str = ""
    value: float = 0.0
    since: Instant = ABSENT
    fired_at: Instant | None = None
    resolved_at: Instant | None = None
    told: tuple[str, ...] = ()
    told_at: Instant | None = None


class AlertList(msgspec.Struct, frozen=True):
    alerts: list[AlertView]


class AlertHistory(msgspec.Struct, frozen=True):
    alerts: list[AlertView]
    limit: int = 0
    has_more: bool = False
    next_cursor: str | None = None


class AlertRuleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`scope`: `all`, `tag:name=value` or `job:<id or key>`. `channels`: empty means all channels of the tenant.

    A field that is null or left out has the default of the kind. `group_by`: `rule` tells of all alerts of the rule in
    one notice, `subject` of each in its own. `repeat_seconds`: 0 never repeats a notice.
    """

    kind: AlertKind
    scope: Annotated[str, Meta(min_length=1, max_length=520)] = "all"
    threshold: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    window_seconds: Annotated[float, Meta(ge=60, le=LONGEST_WINDOW)] | None = None
    for_seconds: Seconds | None = None
    least_count: Annotated[int, Meta(ge=0, le=1_000_000_000)] | None = None
    severity: Severity | None = None
    channels: Channels = ()
    group_by: Literal["rule", "subject"] = "rule"
    repeat_seconds: Annotated[float, Meta(ge=0, le=LONGEST_WINDOW)] = 14_400.0
    escalate: Annotated[tuple[Escalation, ...], Meta(max_length=5)] = ()
    quiet_hours: QuietHours | None = None
    enabled: bool = True
    description: Annotated[str, Meta(max_length=500)] = ""


class QuietHoursView(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    begin: str
    end: str
    timezone: str = "UTC"
    days: tuple[str, ...] = ()
    critical: bool = False


class EscalationView(msgspec.Struct, frozen=True):
    after_seconds: float
    channels: tuple[str, ...] = ()


class AlertRuleView(msgspec.Struct, frozen=True):
    """`is_default`: Duetime has a rule of this name, which holds again when the tenant's is removed.

    `changed_at`: null if it is the default.
    """

    name: str
    kind: AlertKindWord = ""
    scope: str = "all"
    threshold: float | None = None
    window_seconds: float | None = None
    for_seconds: float | None = None
    least_count: int | None = None
    severity: SeverityWord | None = None
    channels: tuple[str, ...] = ()
    group_by: str = "rule"
    repeat_seconds: float = 0.0
    escalate: tuple[EscalationView, ...] = ()
    quiet_hours: QuietHoursView | None = None
    enabled: bool = True
    description: str = ""
    is_default: bool = False
    changed_at: Instant | None = None
    changed_by: str | None = None


class AlertRuleList(msgspec.Struct, frozen=True):
    rules: list[AlertRuleView]


class AlertRuleMessage(msgspec.Struct, frozen=True):
    name: str
    message: str = ""


class AlertRuleTest(msgspec.Struct, frozen=True):
    """`job_ids`: of the notices, one for each channel. Their executions tell whether they arrived."""

    name: str
    job_ids: tuple[str, ...] = ()
    message: str = ""


class SilenceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rule` and `subject`: empty means any. `seconds`: from now on."""

    seconds: Annotated[float, Meta(gt=0, le=LONGEST_SILENCE)]
    rule: Annotated[str, Meta(max_length=63)] = ""
    subject: Annotated[str, Meta(max_length=300)] = ""
    reason: Annotated[str, Meta(max_length=500)] = ""


class SilenceView(msgspec.Struct, frozen=True):
    silence_id: str
    rule: str = ""
    subject: str = ""
    begins_at: Instant = ABSENT
    ends_at: Instant = ABSENT
    reason: str = ""
    created_at: Instant = ABSENT
    created_by: str = ""


class SilenceList(msgspec.Struct, frozen=True):
    silences: list[SilenceView]


class SilenceMessage(msgspec.Struct, frozen=True):
    silence_id: str
    message: str = ""
