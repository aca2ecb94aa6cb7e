"""What each kind of alert rule measures: from a rule and the facts to readings. Pure.

A function per kind. It returns None if a fact that it needs is missing: then the rule's alerts keep their state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from duetime.domain.alert_facts import Facts, NodeFact, Seen, WatchedJob
from duetime.domain.alert_rules import AlertKind, AlertRule
from duetime.domain.alerts import Reading, reading
from duetime.domain.instants import DAY, SECOND, format_instant

Readings = Sequence[Reading] | None


def measure(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    """Returns the readings of a rule, which is filled, for one tenant; None if they can't be known now."""
    return _KINDS[rule.kind](rule, tenant, facts)


def _seen(rule: AlertRule, tenant: str, facts: Facts) -> Seen | None:
    subject = "" if rule.scope == "all" else rule.scope
    return facts.seen(tenant, subject, rule.window_seconds or 0)


def _of_scope(rule: AlertRule) -> tuple[str, str]:
    """Returns the subject of an alert about the rule's scope, and how a sentence names it."""
    return ("", "") if rule.scope == "all" else (rule.scope, f" of {rule.scope}")


def _failure_ratio(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    seen = _seen(rule, tenant, facts)
    if seen is None:
        return None
    count = seen.completed + seen.failed
    if not count or count < (rule.least_count or 0):
        return []
    subject, of = _of_scope(rule)
    share = 100 * seen.failed / count
    text = f"{share:.3g} % of {count:,} executions{of} failed in {_span(rule.window_seconds)}"
    return [reading(rule, subject, share, text)]


def _lateness(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    seen = _seen(rule, tenant, facts)
    if seen is None:
        return None
    late = seen.lateness.quantile(0.99)
    if late is None or seen.lateness.count < (rule.least_count or 0):
        return []
    subject, of = _of_scope(rule)
    text = f"1 % of executions{of} began {late / SECOND:,.1f} s late or later in {_span(rule.window_seconds)}"
    return [reading(rule, subject, late / SECOND, text)]


def _dead_letters(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    seen = _seen(rule, tenant, facts)
    if seen is None:
        return None
    subject, of = _of_scope(rule)
    text = f"{_number(seen.dead, 'execution')}{of} ran out of attempts in {_span(rule.window_seconds)}"
    return [reading(rule, subject, seen.dead, text)]


def _waiting(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    if facts.waiting is None:
        return None
    count = facts.waiting.get(tenant, 0)
    return [reading(rule, "", count, f"{_number(count, 'execution')} due and not running")]


def _not_run(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    if rule.scope == "all":
        return None if facts.expected is None else _expected(rule, facts.expected.get(tenant, ()), facts.now)
    if (jobs := (facts.jobs or {}).get((tenant, rule.name))) is None:
        return None
    return [_silence(rule, job, facts.now, job.last_run_at, "did not run") for job in jobs if job.is_active]


def _expected(rule: AlertRule, jobs: Sequence[WatchedJob], now: int) -> list[Reading]:
    """Returns how long past their expect_every jobs are silent."""
    return [
        _overdue(rule, job, now, job.expected_by, job.last_success_at, "had no success")
        for job in jobs
        if job.is_active and job.expected_by is not None
    ]


def _no_success(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    if rule.scope != "all":
        if (jobs := (facts.jobs or {}).get((tenant, rule.name))) is None:
            return None
        return [_silence(rule, job, facts.now, job.last_success_at, "had no success") for job in jobs if job.is_active]
    seen = _seen(rule, tenant, facts)
    if seen is None:
        return None
    if seen.completed or not seen.failed:  # without any execution there is nothing that could have succeeded
        return []
    text = f"none of {_number(seen.failed, 'execution')} succeeded in {_span(rule.window_seconds)}"
    return [reading(rule, "", rule.window_seconds or 0, text)]


def _silence(rule: AlertRule, job: WatchedJob, now: int, last_at: int | None, what: str) -> Reading:
    """Returns how long past the window of the rule a job is silent."""
    by = max(job.since, last_at or 0) + round((rule.window_seconds or 0) * SECOND)
    return _overdue(rule, job, now, by, last_at, what)


def _overdue(rule: AlertRule, job: WatchedJob, now: int, by: int, last_at: int | None, what: str) -> Reading:
    last = "yet" if last_at is None else f"since {format_instant(last_at)}"
    text = f"job '{job.name}' {what} {last}; that was expected by {format_instant(by)}"
    return reading(rule, f"job:{job.job_id}", max(0, now - by) / SECOND, text)


def _circuit_open(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    if facts.circuits is None:
        return None
    return [
        reading(rule, f"circuit:{it.circuit}", 1, f"{it.target} is not called after {it.failures} failures in a row")
        for it in facts.circuits
        if it.tenant == tenant
    ]


def _certificate(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    if facts.certificates is None:
        return None
    return [
        reading(
            rule, f"target:{it.target}", (it.ends_at - facts.now) / DAY,
            f"the certificate of {it.target} ends at {format_instant(it.ends_at)}",
        )
        for it in facts.certificates
        if it.tenant == tenant
    ]  # fmt: skip


def _burn_rate(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
    if facts.burns is None:
        return None
    return [
        reading(
            rule, f"job:{it.job_id}:{it.objective}", it.rate,
            f"job '{it.name}' uses up the error budget of its {it.objective} objective {it.actual:.3g} times too fast",
        )
        for it in facts.burns
        if it.tenant == tenant and rule.scope in ("all", f"job:{it.job_id}")
    ]  # fmt: skip


def _capacity(rule: AlertRule, _: str, facts: Facts) -> Readings:
    if facts.capacity is None:
        return None
    return [
        reading(
            rule, use.what, 100 * use.used / use.most,
            f"{use.used:,} of {use.most:,} {use.what} are used ({100 * use.used / use.most:.3g} %)",
        )
        for use in facts.capacity
        if use.most
    ]  # fmt: skip


def _saturation(rule: AlertRule, _: str, facts: Facts) -> Readings:
    return _of_nodes(
        rule, facts,
        lambda node: 100 * node.in_flight / node.limit if node.limit else None,
        lambda node, _: f"node {node.name} runs {node.in_flight:,} attempts of {node.limit:,} that it may run at once",
    )  # fmt: skip


def _clock_offset(rule: AlertRule, _: str, facts: Facts) -> Readings:
    return _of_nodes(
        rule, facts,
        lambda node: None if node.clock_offset is None else abs(node.clock_offset) / SECOND,
        lambda node, value: f"the clock of node {node.name} differs by {value:,.1f} s from the database's",
    )  # fmt: skip


def _turn_errors(rule: AlertRule, _: str, facts: Facts) -> Readings:
    return _of_nodes(
        rule, facts, lambda node: len(node.failing),
        lambda node, _: f"on node {node.name} the last turn failed of: {', '.join(node.failing)}",
    )  # fmt: skip


def _of_nodes(
    rule: AlertRule, facts: Facts, value_of: Callable[[NodeFact], float | None], text: Callable[[NodeFact, float], str]
) -> Readings:
    """Returns a reading for each living node that has a value."""
    if facts.nodes is None:
        return None

    def each() -> Iterator[Reading]:
        for node in facts.nodes or ():
            if node.is_alive and (value := value_of(node)) is not None:
                yield reading(rule, f"node:{node.name}", value, text(node, value))

    return list(each())


def _node_gone(rule: AlertRule, _: str, facts: Facts) -> Readings:
    if facts.nodes is None:
        return None
    alive = {node.name for node in facts.nodes if node.is_alive}  # a newer node may have the name of a dead one
    return [
        reading(
            rule, f"node:{node.name}", max(0, facts.now - node.reported_at) / SECOND,
            f"node {node.name} was last seen at {format_instant(node.reported_at)}, and did not leave by itself",
        )
        for node in facts.nodes
        if node.name not in alive
    ]  # fmt: skip


def _orphans(rule: AlertRule, _: str, facts: Facts) -> Readings:
    if facts.orphans is None:
        return None
    text = f"{_number(facts.orphans, 'execution')} of expired nodes not taken over"
    return [reading(rule, "", facts.orphans, text)]


def _scheduler_stopped(rule: AlertRule, _: str, facts: Facts) -> Readings:
    if facts.overdue_ms is None:
        return None
    seconds = facts.overdue_ms / SECOND
    return [reading(rule, "", seconds, f"the earliest timer is {seconds:,.0f} s overdue, and no node has fired it")]


def _told_by_the_node(rule: AlertRule, _: str, facts: Facts) -> Readings:
    """Without the database there are no facts: each node tells by itself that it is gone."""
    return []


def _span(seconds: float | None) -> str:
    count = round(seconds or 0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if count % size == 0 and count >= size:
            return f"{count // size} {unit}"
    return f"{count} s"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


_KINDS: dict[AlertKind, Callable[[AlertRule, str, Facts], Readings]] = {
    AlertKind.FAILURE_RATIO: _failure_ratio,
    AlertKind.LATENESS_P99: _lateness,
    AlertKind.WAITING: _waiting,
    AlertKind.NOT_RUN: _not_run,
    AlertKind.NO_SUCCESS: _no_success,
    AlertKind.DEAD_LETTERS: _dead_letters,
    AlertKind.CIRCUIT_OPEN: _circuit_open,
    AlertKind.CERTIFICATE: _certificate,
    AlertKind.BURN_RATE: _burn_rate,
    AlertKind.CAPACITY: _capacity,
    AlertKind.SATURATION: _saturation,
    AlertKind.ORPHANS: _orphans,
    AlertKind.NODE_GONE: _node_gone,
    AlertKind.SCHEDULER_STOPPED: _scheduler_stopped,
    AlertKind.TURN_ERRORS: _turn_errors,
    AlertKind.CLOCK_OFFSET: _clock_offset,
    AlertKind.DATABASE_GONE: _told_by_the_node,
}
