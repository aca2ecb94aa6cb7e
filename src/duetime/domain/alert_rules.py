"""Alert rules: what is watched, from which value on, for how long, and who is told. Pure.

A rule is one of a tenant. Every tenant has the rules of `default_alerts` without storing them; a stored rule of the
same name replaces one. `KINDS` says what each kind measures, and its defaults.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from duetime.domain.cron.zone import is_zone
from duetime.domain.errors import Conflict, InvalidRequest
from duetime.domain.payloads import Fields, Label

MOST_RULES = 100  # of a tenant, that are stored
LONGEST_WINDOW = 31 * 86_400  # seconds: as long as statistics are kept
NAME = "^[a-z0-9][a-z0-9_.-]{0,62}$"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertKind(StrEnum):
    FAILURE_RATIO = "failure_ratio"
    LATENESS_P99 = "lateness_p99"
    WAITING = "waiting"
    NOT_RUN = "not_run"
    NO_SUCCESS = "no_success"
    DEAD_LETTERS = "dead_letters"
    CIRCUIT_OPEN = "circuit_open"
    CERTIFICATE = "certificate"
    BURN_RATE = "burn_rate"
    CAPACITY = "capacity"
    SATURATION = "saturation"
    ORPHANS = "orphans"
    NODE_GONE = "node_gone"
    SCHEDULER_STOPPED = "scheduler_stopped"
    TURN_ERRORS = "turn_errors"
    CLOCK_OFFSET = "clock_offset"
    DATABASE_GONE = "database_gone"


class About(NamedTuple):
    """`below`: the rule fires below its threshold, not above it. `window_seconds` None: the kind has no window."""

    measures: str
    unit: str
    threshold: float
    window_seconds: float | None
    for_seconds: float
    severity: Severity
    is_of_cluster: bool = False
    scopes: tuple[str, ...] = ("all",)
    least_count: int = 0
    below: bool = False


_ANY_SCOPE = ("all", "tag", "job")
_W, _C = Severity.WARNING, Severity.CRITICAL

KINDS: dict[AlertKind, About] = {
    AlertKind.FAILURE_RATIO: About(
        "executions that failed or timed out, of those that ended in the window", "%", 10, 300, 0, _W,
        scopes=_ANY_SCOPE, least_count=10,
    ),
    AlertKind.LATENESS_P99: About(
        "p99 of the time from scheduled to sent, in the window", "s", 60, 300, 0, _W, scopes=_ANY_SCOPE, least_count=1,
    ),
    AlertKind.WAITING: About("executions that are due and do not run", "executions", 100, None, 60, _W),
    AlertKind.NOT_RUN: About(
        "jobs that did not run for as long as the window, or as their expect_every", "s", 0, 86_400, 0, _C,
        scopes=_ANY_SCOPE,
    ),
    AlertKind.NO_SUCCESS: About("time without a success", "s", 0, 86_400, 0, _C, scopes=_ANY_SCOPE),
    AlertKind.DEAD_LETTERS: About(
        "executions that ran out of attempts in the window", "executions", 0, 300, 0, _W, scopes=_ANY_SCOPE,
    ),
    AlertKind.CIRCUIT_OPEN: About("targets whose circuit is open", "circuits", 0, None, 0, _W),
    AlertKind.CERTIFICATE: About("days until a target's certificate ends", "days", 14, None, 0, _W, below=True),
    AlertKind.BURN_RATE: About(
        "the burn-rate rule (1, 6 or 14.4) that holds for an objective of a job's slo", "x", 0, None, 0, _W,
        scopes=("all", "job"),
    ),
    AlertKind.CAPACITY: About("use of the store's limit of jobs or of their memory", "%", 80, None, 60, _W, True),
    AlertKind.SATURATION: About("places for attempts of a node that are in use", "%", 80, None, 300, _W, True),
    AlertKind.ORPHANS: About("executions of expired nodes, not taken over", "executions", 0, None, 300, _C, True),
    AlertKind.NODE_GONE: About("time since a node that did not leave was last seen", "s", 15, None, 0, _C, True),
    AlertKind.SCHEDULER_STOPPED: About("how long the earliest timer is overdue", "s", 60, None, 30, _C, True),
    AlertKind.TURN_ERRORS: About("services of a node whose last turn failed", "services", 0, None, 30, _W, True),
    AlertKind.CLOCK_OFFSET: About("difference of a node's clock from the database's", "s", 1, None, 30, _W, True),
    AlertKind.DATABASE_GONE: About("time for which a node can't use the database", "s", 0, None, 15, _C, True),
}  # fmt: skip

Days = Annotated[tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...], Meta(min_length=1, max_length=7)]
EVERY_DAY: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = (
    "mon", "tue", "wed", "thu", "fri", "sat", "sun",
)  # fmt: skip
TimeOfDay = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Channels = Annotated[tuple[Label, ...], Meta(max_length=20)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_WINDOW)]


class QuietHours(Fields, frozen=True, omit_defaults=True, rename={"begin": "from", "end": "to"}):
    """Hours in which notices wait. `days`: those on which the hours begin. Notices of severity critical do not wait,
    unless `critical` is true."""

    begin: TimeOfDay
    end: TimeOfDay
    timezone: Annotated[str, Meta(min_length=1, max_length=64)] = "UTC"
    days: Days = EVERY_DAY
    critical: bool = False


class Escalation(Fields, frozen=True):
    """Other channels, which are told if the alert still fires after this time."""

    after_seconds: Annotated[float, Meta(gt=0, le=LONGEST_WINDOW)]
    channels: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=20)]


class AlertRule(Fields, frozen=True, omit_defaults=True):
    """`scope`: `all`, `tag:name=value` or `job:<id>`. `channels`: empty means all channels of the tenant.

    A field that is None has the default of the kind (`KINDS`). `group_by`: `rule` tells of all alerts of the rule in
    one notice, `subject` of each in its own. `repeat_seconds`: 0 never repeats a notice.
    """

    name: Annotated[str, Meta(pattern=NAME)]
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

    @property
    def about(self) -> About:
        return KINDS[self.kind]

    def filled(self) -> AlertRule:
        """Returns the rule with the defaults of its kind."""
        about = self.about
        return msgspec.structs.replace(
            self,
            threshold=about.threshold if self.threshold is None else self.threshold,
            window_seconds=about.window_seconds if self.window_seconds is None else self.window_seconds,
            for_seconds=about.for_seconds if self.for_seconds is None else self.for_seconds,
            least_count=about.least_count if self.least_count is None else self.least_count,
            severity=self.severity or about.severity,
        )


def check_rule(rule: AlertRule) -> None:
    """Raises InvalidRequest for what the types of the fields do not express."""
    about = rule.about
    kind_of_scope = rule.scope.partition(":")[0]
    if kind_of_scope not in about.scopes or (rule.scope != "all" and not _SCOPE.fullmatch(rule.scope)):
        forms = {"all": "all", "tag": "tag:name=value", "job": "job:<id>"}
        allowed = " or ".join(forms[scope] for scope in about.scopes)
        raise InvalidRequest.at("/scope", f"must be {allowed} for a rule of the kind {rule.kind}")
    if rule.window_seconds is not None and about.window_seconds is None:
        raise InvalidRequest.at("/window_seconds", f"a rule of the kind {rule.kind} has no window; leave it out")
    hours = rule.quiet_hours
    if hours is not None and not is_zone(hours.timezone):
        raise InvalidRequest.at("/quiet_hours/timezone", f"'{hours.timezone}' is not a time zone, as Europe/Berlin is")
    if hours is not None and hours.begin == hours.end:
        raise InvalidRequest.at("/quiet_hours/to", "must differ from `from`")


def check_rules(count: int, is_known: bool) -> None:
    """Raises Conflict if a tenant with `count` stored rules can't add one. An existing one (`is_known`) can change."""
    if count >= MOST_RULES and not is_known:
        raise Conflict(f"there are {count} alert rules, which is the most a tenant may have; remove one first")


_SCOPE = re.compile(r"tag:[^=]{1,255}=.{0,255}|job:.{1,255}", re.DOTALL)
