"""Alerts: how readings of a rule become alerts, and which notices follow. Pure.

    (none) ──bad──► PENDING ──bad for `for_seconds`──► FIRING ──good──► RESOLVED (history)
                       └──no longer bad──► (none)

A reading is bad beyond the rule's threshold, good up to CLEAR of it, and neither in between: an alert that fires does
not resolve there, so that a value around the threshold does not make it flap. A subject without a reading is good.

Notices: one when an alert begins to fire, one when it has resolved if the first was sent, repeats and escalations in
between. A silence and quiet hours hold notices back (`domain.silences`), and do not change the state. The notice that
an alert has resolved is sent despite a silence, so that nobody is left with an open incident; quiet hours delay it.
An alert is written in the transaction that stores its notices, so each is told at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from duetime.domain.alert_rules import AlertRule, Severity
from duetime.domain.instants import SECOND
from duetime.domain.silences import Silence, is_quiet, is_silenced

CLEAR = 0.9  # of the threshold
MOST_OF_RULE = 100  # alerts of one rule that are not over
MOST_NOTICES = 20  # of one rule in one turn; the others follow in the next turns
MOST_SENT = 200  # notices of one tenant in one turn, counted by channel; fewer than it may have in an hour
FEW_SENT = 20  # if so many are more than the tenant may have now
HISTORY = 1000  # alerts of a tenant that are kept after they resolved
LONGEST_SUMMARY = 300
LONGEST_SUBJECT = 300


class AlertState(StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Reading(msgspec.Struct, frozen=True):
    """What a rule measured for one subject. `summary` says it in a sentence. Subject "": all of the tenant."""

    subject: str
    value: float
    summary: str
    is_bad: bool
    is_good: bool


class Alert(msgspec.Struct, frozen=True, array_like=True):
    """`told`: the channels that know that it fires. Empty: none does."""

    alert_id: str
    tenant: str
    rule: str
    kind: str
    subject: str
    severity: str
    state: AlertState
    since: int  # its first bad reading
    value: float
    summary: str
    fired_at: int | None = None
    resolved_at: int | None = None
    told: tuple[str, ...] = ()
    told_at: int | None = None  # the last notice
    escalated: int = 0  # steps of the rule's escalation that were told

    @property
    def is_open(self) -> bool:
        """Returns whether it is still to be looked at: it is not over, or that it is over is still to be told."""
        return self.state is not AlertState.RESOLVED or bool(self.told)


class Telling(msgspec.Struct, frozen=True):
    """A notice to send. `status`: resolved if no alert of its group fires any more."""

    channels: tuple[str, ...]
    rule: str
    group: str  # the subject, or empty for all alerts of the rule
    severity: str
    status: str
    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """`changed`: alerts to write. `dropped`: ids of pending alerts to delete. `moved`: those of a new state."""

    changed: tuple[Alert, ...] = ()
    dropped: tuple[str, ...] = ()
    moved: tuple[Alert, ...] = ()
    tellings: tuple[Telling, ...] = ()
    omitted: int = 0  # subjects beyond MOST_OF_RULE

    @property
    def sent(self) -> int:
        """Returns how many notices it sends: one to each channel."""
        return sum(len(set(telling.channels)) for telling in self.tellings)


def reading(rule: AlertRule, subject: str, value: float, summary: str) -> Reading:
    """Returns the reading of a value for a rule that is filled."""
    limit = rule.threshold or 0.0
    if rule.about.below:
        is_bad, is_good = value < limit, value >= limit / CLEAR
    else:
        is_bad, is_good = value > limit, value <= limit * CLEAR
    return Reading(subject[:LONGEST_SUBJECT], value, summary[:LONGEST_SUMMARY], is_bad, is_good)


def evaluate(
    rule: AlertRule, tenant: str, readings: Iterable[Reading], known: Sequence[Alert], silences: Sequence[Silence],
    channels: Sequence[str], now: int, new_id: Callable[[], str], *, room: int = MOST_SENT,
) -> Decision:  # fmt: skip
    """Returns what becomes of the open alerts `known` of a rule, which is filled.

    `channels`: all of the tenant, for a rule that names none. `new_id`: of a new alert. `room`: notices are
    sent until so many are; the others follow in later turns.
    """
    before = {alert.subject: alert for alert in known if alert.state is not AlertState.RESOLVED}
    seen, omitted = _bounded(readings, before)
    after = [_step(rule, tenant, one, before.get(subject), now, new_id) for subject, one in seen.items()]
    after += [_settle(alert, now) for subject, alert in before.items() if subject not in seen]
    alive = [alert for alert in after if alert is not None]
    alive += [alert for alert in known if alert.state is AlertState.RESOLVED]  # whose end is still to be told
    told, tellings = _tell(rule, alive, silences, tuple(rule.channels or channels), now, room)
    was = {alert.alert_id: alert for alert in known}
    return Decision(
        tuple(alert for alert in told if alert != was.get(alert.alert_id)),
        tuple(was.keys() - {alert.alert_id for alert in told}),
        tuple(alert for alert in alive if _has_moved(alert, was.get(alert.alert_id))),
        tuple(tellings), omitted,
    )  # fmt: skip


def end_all(known: Sequence[Alert], now: int, *, room: int = MOST_SENT) -> Decision:
    """Returns the decision for the open alerts of a rule that is removed or off: they end, and that is told at once.

    `room`: notices are sent until so many are; the others follow in later turns.
    """
    settled = [_settle(alert, now) if alert.state is not AlertState.RESOLVED else alert for alert in known]
    over = [alert for alert in settled if alert is not None]
    tellings: list[Telling] = []
    ended: list[Alert] = []
    for alert in over:
        if alert.told and room > 0:
            tellings.append(Telling(alert.told, alert.rule, alert.subject, alert.severity, "resolved", (), (alert,)))
            room -= len(alert.told)
            alert = _told(alert, (), now)
        ended.append(alert)
    was = {alert.alert_id: alert for alert in known}
    return Decision(
        tuple(alert for alert in ended if alert != was[alert.alert_id]),
        tuple(was.keys() - {alert.alert_id for alert in over}),
        tuple(alert for alert in over if _has_moved(alert, was.get(alert.alert_id))),
        tuple(tellings),
    )  # fmt: skip


def _bounded(readings: Iterable[Reading], before: Mapping[str, Alert]) -> tuple[dict[str, Reading], int]:
    """Returns the readings to look at, by subject: those of open alerts, then the first bad ones; and how many bad ones
    are left out."""
    seen: dict[str, Reading] = {}
    fresh: dict[str, Reading] = {}
    for one in readings:
        if one.subject in before:
            seen[one.subject] = one
        elif one.is_bad:
            fresh[one.subject] = one
    room = max(0, MOST_OF_RULE - len(before))
    for subject in list(fresh)[:room]:
        seen[subject] = fresh[subject]
    return seen, max(0, len(fresh) - room)


def _step(
    rule: AlertRule, tenant: str, one: Reading, alert: Alert | None, now: int, new_id: Callable[[], str]
) -> Alert | None:
    if alert is None:
        alert = Alert(
            new_id(), tenant, rule.name, rule.kind, one.subject, rule.severity or Severity.WARNING, AlertState.PENDING,
            now, one.value, one.summary,
        )  # fmt: skip
    elif one.is_good or (alert.state is AlertState.PENDING and not one.is_bad):
        return _settle(alert, now, one)
    alert = msgspec.structs.replace(
        alert,
        since=min(alert.since, now),
        severity=rule.severity or alert.severity,  # the clock may be set back
    )
    if alert.state is AlertState.PENDING and now - alert.since >= (rule.for_seconds or 0) * SECOND:
        return msgspec.structs.replace(
            alert, state=AlertState.FIRING, fired_at=now, value=one.value, summary=one.summary
        )
    return alert


def _settle(alert: Alert, now: int, one: Reading | None = None) -> Alert | None:
    """Returns the alert as it is after a good reading; None if it never fired."""
    if alert.state is AlertState.PENDING:
        return None
    value = alert.value if one is None else one.value
    return msgspec.structs.replace(alert, state=AlertState.RESOLVED, resolved_at=now, value=value)


def _tell(
    rule: AlertRule, alerts: Sequence[Alert], silences: Sequence[Silence], channels: tuple[str, ...], now: int,
    room: int,
) -> tuple[list[Alert], list[Telling]]:  # fmt: skip
    """Returns the alerts after this turn's notices, and the notices."""
    quiet = is_quiet(rule, now)
    news: dict[tuple[str, tuple[str, ...]], list[Alert]] = {}
    told: list[Alert] = []
    for alert in alerts:
        silenced = is_silenced(silences, rule.name, alert.subject, now)
        is_held = quiet or (silenced and alert.state is AlertState.FIRING)
        targets, due = ((), alert) if is_held else _due(rule, alert, channels, now)
        key = ("" if rule.group_by == "rule" else alert.subject, targets)
        is_new = key not in news
        if targets and (not is_new or (room > 0 and len(news) < MOST_NOTICES)):
            room -= len(targets) if is_new else 0
            news.setdefault(key, []).append(due)
            told.append(_told(due, targets, now))
        else:
            told.append(alert)
    still_firing = {
        "" if rule.group_by == "rule" else alert.subject
        for alert in alerts if alert.state is AlertState.FIRING and alert.told
    }  # fmt: skip
    return told, [_telling(rule, *key, group, key[0] in still_firing) for key, group in news.items()]


def _due(rule: AlertRule, alert: Alert, channels: tuple[str, ...], now: int) -> tuple[tuple[str, ...], Alert]:
    """Returns the channels that are to be told of this alert now."""
    if alert.state is AlertState.RESOLVED:
        return alert.told, alert
    if alert.state is AlertState.PENDING or alert.fired_at is None:
        return (), alert
    steps = [step for step in rule.escalate if now - alert.fired_at >= step.after_seconds * SECOND]
    if len(steps) > alert.escalated:
        more = tuple(name for step in steps[alert.escalated :] for name in step.channels)
        first = () if alert.told else channels
        return tuple(dict.fromkeys((*first, *more))), msgspec.structs.replace(alert, escalated=len(steps))
    if not alert.told:
        return channels, alert
    repeat = rule.repeat_seconds * SECOND
    is_due = repeat > 0 and alert.told_at is not None and now - alert.told_at >= repeat
    return (alert.told if is_due else ()), alert


def _told(alert: Alert, targets: Iterable[str], now: int) -> Alert:
    if alert.state is AlertState.RESOLVED:
        return msgspec.structs.replace(alert, told=(), told_at=now)
    return msgspec.structs.replace(alert, told=tuple(dict.fromkeys((*alert.told, *targets))), told_at=now)


def _telling(
    rule: AlertRule, group: str, targets: tuple[str, ...], alerts: Sequence[Alert], still_firing: bool
) -> Telling:
    firing = tuple(alert for alert in alerts if alert.state is AlertState.FIRING)
    resolved = tuple(alert for alert in alerts if alert.state is AlertState.RESOLVED)
    status = "firing" if firing or still_firing else "resolved"
    return Telling(targets, rule.name, group, rule.severity or Severity.WARNING, status, firing, resolved)


def _has_moved(alert: Alert, before: Alert | None) -> bool:
    """Returns whether the alert has just begun to fire or has just resolved."""
    if alert.state is AlertState.PENDING:
        return False
    return before is None or before.state is not alert.state
