"""Alert rules: their bounds, the defaults, quiet hours, and what each kind measures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain.alert_facts import (
    Burn,
    Ended,
    Facts,
    NodeFact,
    OpenCircuit,
    Use,
    WatchedJob,
    by_subject,
    sums_over,
)
from duetime.domain.alert_notices import notice_jobs
from duetime.domain.alert_readings import measure
from duetime.domain.alert_rules import KINDS, AlertKind, AlertRule, QuietHours, Severity, check_rule
from duetime.domain.alerts import Alert, AlertState, Reading, Telling
from duetime.domain.default_alerts import OF_CLUSTER, OF_TENANTS, rules_of
from duetime.domain.errors import InvalidRequest
from duetime.domain.histogram import Histogram
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from duetime.domain.node_report import CertificateFact
from duetime.domain.silences import in_hours, is_quiet
from samples import NOW, TENANT


def ended(completed: int = 0, failed: int = 0, dead: int = 0, late: int | None = None, **fields: Any) -> Ended:
    lateness = Histogram()
    lateness.add([late] * 100 if late is not None else [])
    known = {"at": NOW - MINUTE, "span": 10 * SECOND, "tenant": TENANT, "subject": ""} | fields
    return Ended(**known, completed=completed, failed=failed, dead=dead, lateness=lateness)


def node(**fields: Any) -> NodeFact:
    return NodeFact(**{"name": "a", "reported_at": NOW, "is_alive": True} | fields)


def job(**fields: Any) -> WatchedJob:
    return WatchedJob(**{"job_id": "j", "name": "report", "since": NOW - 30 * DAY} | fields)


def stats(*rows: Ended) -> Facts:
    return Facts(NOW, ended=by_subject(rows))


SCOPED = {AlertKind.NO_SUCCESS: "job:j"}
# For each kind: facts with which its defaults are bad, and facts with which they are good.
CASES: dict[AlertKind, tuple[Facts, Facts]] = {
    AlertKind.FAILURE_RATIO: (stats(ended(80, 20)), stats(ended(95, 5))),
    AlertKind.LATENESS_P99: (stats(ended(late=90 * SECOND)), stats(ended(late=SECOND))),
    AlertKind.WAITING: (Facts(NOW, waiting={TENANT: 101}), Facts(NOW, waiting={TENANT: 7})),
    AlertKind.NOT_RUN: (
        Facts(NOW, expected={TENANT: [job(expected_by=NOW - 1)]}),
        Facts(NOW, expected={TENANT: [job(expected_by=NOW)]}),
    ),
    AlertKind.NO_SUCCESS: (
        Facts(NOW, jobs={(TENANT, "r"): [job(last_success_at=NOW - DAY - 1)]}),
        Facts(NOW, jobs={(TENANT, "r"): [job(last_success_at=NOW - DAY)]}),
    ),
    AlertKind.DEAD_LETTERS: (stats(ended(failed=1, dead=1)), stats(ended(failed=1))),
    AlertKind.CIRCUIT_OPEN: (
        Facts(NOW, circuits=[OpenCircuit(TENANT, "c", "https://x", 5)]),
        Facts(NOW, circuits=[OpenCircuit("b", "c", "https://x", 5)]),
    ),
    AlertKind.CERTIFICATE: (
        Facts(NOW, certificates=[CertificateFact(TENANT, "x", NOW + 13 * DAY)]),
        Facts(NOW, certificates=[CertificateFact(TENANT, "x", NOW + 90 * DAY)]),
    ),
    AlertKind.BURN_RATE: (Facts(NOW, burns=[Burn(TENANT, "j", "report", "success", 6, 20)]), Facts(NOW, burns=[])),
    AlertKind.CAPACITY: (Facts(NOW, capacity=[Use("jobs", 81, 100)]), Facts(NOW, capacity=[Use("jobs", 10, 100)])),
    AlertKind.SATURATION: (
        Facts(NOW, nodes=[node(in_flight=90, limit=100)]), Facts(NOW, nodes=[node(in_flight=9, limit=100)]),
    ),
    AlertKind.ORPHANS: (Facts(NOW, orphans=1), Facts(NOW, orphans=0)),
    AlertKind.NODE_GONE: (
        Facts(NOW, nodes=[node(is_alive=False, reported_at=NOW - MINUTE)]),
        Facts(NOW, nodes=[node(is_alive=False, reported_at=NOW - MINUTE), node()]),
    ),
    AlertKind.SCHEDULER_STOPPED: (Facts(NOW, overdue_ms=2 * MINUTE), Facts(NOW, overdue_ms=0)),
    AlertKind.TURN_ERRORS: (Facts(NOW, nodes=[node(failing=("timer",))]), Facts(NOW, nodes=[node()])),
    AlertKind.CLOCK_OFFSET: (Facts(NOW, nodes=[node(clock_offset=-3000)]), Facts(NOW, nodes=[node(clock_offset=100)])),
}  # fmt: skip


def of(kind: AlertKind, **fields: Any) -> AlertRule:
    return AlertRule("r", kind, **{"scope": SCOPED.get(kind, "all")} | fields).filled()


def readings(rule: AlertRule, facts: Facts) -> list[Reading]:
    found = measure(rule, TENANT, facts)
    assert found is not None
    return list(found)


@pytest.mark.parametrize("kind", list(CASES))
def test_each_kind_is_bad_and_good_by_its_facts(kind: AlertKind) -> None:
    bad, good = CASES[kind]
    assert [one.is_bad for one in readings(of(kind), bad)] == [True]
    assert all(one.is_good for one in readings(of(kind), good))


@pytest.mark.parametrize("kind", list(CASES))
def test_without_its_facts_a_kind_knows_nothing(kind: AlertKind) -> None:
    assert measure(of(kind), TENANT, Facts(NOW)) is None


def test_every_kind_is_covered_here() -> None:
    assert set(CASES) == set(AlertKind) - {AlertKind.DATABASE_GONE}  # each node tells by itself
    assert set(KINDS) == set(AlertKind)
    assert readings(of(AlertKind.DATABASE_GONE), Facts(NOW)) == []


def test_too_few_executions_are_no_ratio() -> None:
    assert readings(of(AlertKind.FAILURE_RATIO), stats(ended(0, 9))) == []
    assert readings(of(AlertKind.FAILURE_RATIO, least_count=9), stats(ended(0, 9)))[0].is_bad


def test_a_rule_sees_only_its_tenant_its_subject_and_its_window() -> None:
    other = stats(ended(0, 50, tenant="b"), ended(0, 50, subject="job:j"), ended(0, 50, at=NOW - 5 * MINUTE - 10_000))
    assert readings(of(AlertKind.FAILURE_RATIO), other) == []
    assert readings(of(AlertKind.FAILURE_RATIO, scope="job:j"), other)[0].subject == "job:j"
    long = {("", 600.0): sums_over((other.ended or {})[TENANT, ""], {600.0}, NOW)[600.0]}
    assert readings(of(AlertKind.FAILURE_RATIO, window_seconds=600), Facts(NOW, long={TENANT: long}))[0].is_bad


def test_a_long_window_has_its_own_statistics() -> None:
    two = 2 * 86_400.0
    rule, day_ago = of(AlertKind.FAILURE_RATIO, window_seconds=two), ended(0, 50, at=NOW - DAY, span=HOUR)
    assert measure(rule, TENANT, stats(day_ago)) is None, "they are not read yet"
    assert readings(rule, Facts(NOW, long={TENANT: {("", two): sums_over([day_ago], {two}, NOW)[two]}}))[0].is_bad


def test_a_paused_job_may_be_silent() -> None:
    assert readings(of(AlertKind.NOT_RUN), Facts(NOW, expected={TENANT: [job(expected_by=1, is_active=False)]})) == []
    paused = Facts(NOW, jobs={(TENANT, "r"): [job(is_active=False)]})
    assert readings(of(AlertKind.NOT_RUN, scope="tag:a=b"), paused) == []


def test_a_rule_of_its_own_span_counts_runs_and_not_successes() -> None:
    ran = Facts(NOW, jobs={(TENANT, "r"): [job(last_run_at=NOW - HOUR)]})
    assert readings(of(AlertKind.NOT_RUN, scope="job:j", window_seconds=7200), ran)[0].is_good
    assert readings(of(AlertKind.NOT_RUN, scope="job:j", window_seconds=1800), ran)[0].is_bad
    assert readings(of(AlertKind.NO_SUCCESS, scope="job:j", window_seconds=7200), ran)[0].is_bad


def test_a_value_between_the_threshold_and_its_clear_part_is_neither() -> None:
    (one,) = readings(of(AlertKind.WAITING), Facts(NOW, waiting={TENANT: 95}))
    assert (one.is_bad, one.is_good) == (False, False)


# Rules


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"kind": AlertKind.WAITING, "scope": "job:x"}, "/scope"),
        ({"kind": AlertKind.FAILURE_RATIO, "scope": "tag:x"}, "/scope"),
        ({"kind": AlertKind.FAILURE_RATIO, "scope": "all:x"}, "/scope"),
        ({"kind": AlertKind.WAITING, "window_seconds": 60}, "/window_seconds"),
        (
            {"kind": AlertKind.WAITING, "quiet_hours": QuietHours("22:00", "07:00", "Mars/Olympus")},
            "/quiet_hours/timezone",
        ),
        ({"kind": AlertKind.WAITING, "quiet_hours": QuietHours("22:00", "22:00")}, "/quiet_hours/to"),
    ],
)
def test_an_invalid_rule_is_refused_at_its_field(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_rule(AlertRule("r", **fields))
    assert [error.pointer for error in refused.value.errors] == [pointer]


def test_the_defaults_are_valid_and_their_names_are_stable() -> None:
    for rule in (*OF_TENANTS, *OF_CLUSTER):
        check_rule(rule)
        assert rule == rule.filled()
        assert rule.description
    assert [rule.name for rule in OF_TENANTS] == [
        "failures", "queue-build-up", "lateness", "lateness-high", "not-run", "dead-letters", "circuit-open",
        "certificate", "burn-rate", "burn-rate-fast",
    ]  # fmt: skip
    assert [rule.name for rule in OF_CLUSTER] == [
        "capacity", "capacity-critical", "saturation", "saturation-critical", "orphans", "node-gone",
        "scheduler-stopped", "turn-errors", "clock-offset", "database-gone",
    ]  # fmt: skip


def test_a_stored_rule_replaces_the_default_of_its_name_and_only_operators_have_rules_of_the_cluster() -> None:
    own = [
        AlertRule("failures", AlertKind.FAILURE_RATIO, threshold=50),
        AlertRule("orphans", AlertKind.ORPHANS, enabled=False),
    ]
    rules = rules_of(own, is_operator=False)
    assert rules["failures"].threshold == 50
    assert rules["failures"].window_seconds == 300
    assert not [rule for rule in rules.values() if rule.about.is_of_cluster]
    assert not rules_of(own, is_operator=True)["orphans"].enabled


def test_a_rule_is_written_and_read_as_json_with_the_names_of_the_api() -> None:
    text = (
        b'{"name":"r","kind":"waiting","escalate":[{"after_seconds":60.0,"channels":["boss"]}],'
        b'"quiet_hours":{"from":"22:00","to":"07:00","days":["sat"]}}'
    )
    assert msgspec.json.encode(msgspec.json.decode(text, type=AlertRule)) == text


# Quiet hours


@pytest.mark.parametrize(
    ("at", "quiet"),
    [
        ("2026-01-01T22:00:00+01:00", True),  # a Thursday
        ("2026-01-01T21:59:00+01:00", False),
        ("2026-01-02T06:59:00+01:00", True),  # they began on Thursday
        ("2026-01-02T07:00:00+01:00", False),
        ("2026-01-02T23:00:00+01:00", False),  # not on a Friday
        ("2026-07-02T22:00:00+02:00", True),  # in summer, too
    ],
)
def test_hours_over_midnight_belong_to_the_day_on_which_they_begin(at: str, quiet: bool) -> None:
    hours = QuietHours("22:00", "07:00", "Europe/Berlin", ("mon", "tue", "wed", "thu"))
    assert in_hours(hours, parse_instant(at)) is quiet


def test_critical_notices_do_not_wait_unless_the_rule_says_so() -> None:
    for critical, quiet in ((False, False), (True, True)):
        hours = QuietHours("00:00", "01:00", critical=critical)
        assert is_quiet(AlertRule("r", AlertKind.ORPHANS, quiet_hours=hours).filled(), NOW) is quiet


# Notices


def test_a_notice_lists_its_alerts_and_is_bounded() -> None:
    alerts = tuple(
        Alert(f"id{n}", TENANT, "r", "waiting", f"s{n}", "critical", AlertState.FIRING, NOW, 1.0, "x" * 300, NOW)
        for n in range(100)
    )
    telling = Telling(("mail", "pager"), "r", "", Severity.CRITICAL, "firing", alerts)
    jobs = notice_jobs(telling, TENANT, NOW, bytes(10)).jobs
    assert [job.spec.payload.channels for job in jobs] == [("mail",), ("pager",)]
    notice = jobs[0].spec.payload
    assert notice.title == "firing: r (100 alerts)"
    assert len(notice.body) <= 4000
    assert (notice.severity, notice.status, notice.dedup_key) == ("critical", "firing", f"{TENANT}/r/")
