"""The alert rules that are on from the first start. Their names are stable; a stored rule of a name replaces it."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.domain.alert_rules import AlertKind, AlertRule, Severity

# Of every tenant
OF_TENANTS: tuple[AlertRule, ...] = tuple(
    rule.filled()
    for rule in (
        AlertRule("failures", AlertKind.FAILURE_RATIO, description="More than 10 % of executions failed in 5 minutes."),
        AlertRule("queue-build-up", AlertKind.WAITING, description="More than 100 executions are due and do not run."),
        AlertRule(
            "lateness", AlertKind.LATENESS_P99, threshold=60, severity=Severity.INFO, group_by="rule",
            description="1 % of executions began more than a minute late.",
        ),
        AlertRule(
            "lateness-high", AlertKind.LATENESS_P99, threshold=120, for_seconds=300,
            description="1 % of executions began more than two minutes late, for 5 minutes.",
        ),
        AlertRule("not-run", AlertKind.NOT_RUN, description="A job did not run for as long as its expect_every."),
        AlertRule("dead-letters", AlertKind.DEAD_LETTERS, description="Executions ran out of attempts."),
        AlertRule("circuit-open", AlertKind.CIRCUIT_OPEN, description="A target keeps failing and is not called."),
        AlertRule("certificate", AlertKind.CERTIFICATE, description="The certificate of a target ends within 14 days."),
        AlertRule("burn-rate", AlertKind.BURN_RATE, description="A job uses up the error budget of its slo too fast."),
        AlertRule(
            "burn-rate-fast", AlertKind.BURN_RATE, threshold=5, severity=Severity.CRITICAL,
            description="A job uses up the error budget of its slo within days.",
        ),
    )
)  # fmt: skip

# Of the operator's tenant
OF_CLUSTER: tuple[AlertRule, ...] = tuple(
    rule.filled()
    for rule in (
        AlertRule("capacity", AlertKind.CAPACITY, description="The store is 80 % full."),
        AlertRule(
            "capacity-critical", AlertKind.CAPACITY, threshold=90, severity=Severity.CRITICAL,
            description="The store is 90 % full: creates will soon be refused.",
        ),
        AlertRule("saturation", AlertKind.SATURATION, description="A node has used 80 % of its places for 5 minutes."),
        AlertRule(
            "saturation-critical", AlertKind.SATURATION, threshold=90, for_seconds=60, severity=Severity.CRITICAL,
            description="A node has used 90 % of its places for a minute.",
        ),
        AlertRule("orphans", AlertKind.ORPHANS, description="Executions of expired nodes wait to be taken over."),
        AlertRule("node-gone", AlertKind.NODE_GONE, description="A node has expired: it did not leave by itself."),
        AlertRule("scheduler-stopped", AlertKind.SCHEDULER_STOPPED, description="Timers are due, and none is fired."),
        AlertRule("turn-errors", AlertKind.TURN_ERRORS, description="A service of a node fails again and again."),
        AlertRule("clock-offset", AlertKind.CLOCK_OFFSET, description="A node's clock differs from the database's."),
        AlertRule("database-gone", AlertKind.DATABASE_GONE, description="A node can't use the database."),
    )
)  # fmt: skip


def rules_of(stored: Iterable[AlertRule], is_operator: bool) -> dict[str, AlertRule]:
    """Returns a tenant's rules by name: stored ones, and the defaults that they do not replace."""
    defaults = (*OF_TENANTS, *OF_CLUSTER) if is_operator else OF_TENANTS
    rules = {rule.name: rule for rule in defaults}
    rules |= {rule.name: rule.filled() for rule in stored}
    return {name: rule for name, rule in rules.items() if is_operator or not rule.about.is_of_cluster}


DEFAULT_NAMES = frozenset(rule.name for rule in (*OF_TENANTS, *OF_CLUSTER))
