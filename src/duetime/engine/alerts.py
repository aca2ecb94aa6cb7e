"""The evaluator of alert rules: one node of the cluster reads the facts, decides, and writes alerts and their notices.

The owner is the node of the role `alerts` that has been alive for longest (`domain.lease.alerts_owner`). It takes the
alerts in the store, which gives it an epoch, and each write carries the epoch: an earlier owner writes nothing after
that. An alert and the jobs of its notices are written in one transaction. So after a crash the next owner either finds
both, or decides again.

It holds no rules: `domain.alert_readings` measures, `domain.alerts` decides.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from duetime.domain.alert_facts import Facts
from duetime.domain.alert_notices import notice_jobs, shown
from duetime.domain.alert_readings import measure
from duetime.domain.alert_rules import AlertRule, Severity
from duetime.domain.alerts import FEW_SENT, MOST_SENT, Alert, AlertState, Decision, end_all, evaluate
from duetime.domain.commands import ApplyAlerts, TakeAlerts
from duetime.domain.default_alerts import rules_of
from duetime.domain.errors import QuotaExceeded
from duetime.domain.ids import make_id
from duetime.domain.instants import SECOND
from duetime.domain.lease import View, alerts_owner
from duetime.domain.node_report import NodeFacts
from duetime.domain.silences import Silence
from duetime.engine.alert_facts import FactsReader
from duetime.engine.objectives import Objectives
from duetime.engine.service import Service
from duetime.engine.settings import EngineSettings
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.store import AlertRuleRecord, Store, apply_one, result_of
from duetime.process.crash import crash_point
from duetime.telemetry.emitted import AlertsEvaluated, AlertsMoved
from duetime.telemetry.hub import Telemetry

EVERY = 5 * SECOND
PAGE = 1000
MOST_ROWS = 20_000  # rules, open alerts, silences and channels, of each, in one turn
MOST_TENANTS = 2000  # in one turn: further ones have theirs in the next turns, as those beyond MOST_ROWS have
LAST = "~"  # after all names of rules and ids of alerts
WRITES = 20  # tenants in one commit

log = structlog.get_logger()

T = TypeVar("T")


class _State(NamedTuple):
    """What the store holds of the tenants after `begin` up to `end`, by tenant. `end` None: up to the last one."""

    begin: str
    end: str | None
    stored: Mapping[str, list[AlertRule]]
    alerts: Mapping[str, list[Alert]]
    silences: Mapping[str, list[Silence]]
    channels: Mapping[str, list[str]]

    def covers(self, tenant: str) -> bool:
        return tenant > self.begin and (self.end is None or tenant <= self.end)


class _Made(NamedTuple):
    decision: Decision
    command: ApplyAlerts


class Alerts(Service):
    """`operator`: the tenant of the cluster's own alerts; empty: nobody's, then they are only logged.

    `view()`: the cluster as of the last heartbeat. `due_hint(due_at)`: jobs are due then.
    """

    def __init__(
        self, store: Store, clock: Clock, node: int, facts: FactsReader, events: EventHub,
        random_bytes: Callable[[int], bytes], telemetry: Telemetry, operator: str, *,
        view: Callable[[], View | None], is_trusted: Callable[[], bool], due_hint: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__("alerts", clock)
        self._store = store
        self._node = node
        self._facts = facts
        self._events = events
        self._random_bytes = random_bytes
        self._telemetry = telemetry
        self._operator = operator
        self._view = view
        self._is_trusted = is_trusted
        self._due_hint = due_hint
        self._epoch: int | None = None  # None: this node is not the owner
        self._begin = ""  # the last tenant of the turn before, if there are more tenants than one turn has

    @property
    def is_owner(self) -> bool:
        return self._epoch is not None

    async def run_once(self) -> int:
        if not self._is_trusted() or alerts_owner(self._view()) != self._node:
            self._epoch = None
            return self._clock.now() + SECOND
        if self._epoch is None:
            self._epoch = await apply_one(self._store, TakeAlerts(self._node))
            log.info("this node evaluates the alert rules", node=self._node, epoch=self._epoch)
        await self._evaluate(self._epoch)
        return self._clock.now() + EVERY

    async def _evaluate(self, epoch: int) -> None:
        began = time.perf_counter()
        state = await self._read_state()
        facts = await self._facts.read(has_subjects=_is_about_a_subject(state.stored))
        tenants = self._choose(facts.tenants() | set(state.alerts) | set(state.stored) | {self._operator}, state)
        rules = {tenant: rules_of(state.stored.get(tenant, ()), tenant == self._operator) for tenant in tenants}
        jobs, long = await self._facts.read_jobs(rules), await self._facts.read_long(rules)
        facts = msgspec.structs.replace(facts, jobs=jobs, long=long)
        omitted = 0
        for begin in range(0, len(tenants), WRITES):
            some = tenants[begin : begin + WRITES]
            made = []
            for tenant in some:
                if (one := self._make(epoch, tenant, rules[tenant], facts, state)) is not None:
                    made.append(one)
                await asyncio.sleep(0)  # a tenant with many rules takes its time
            omitted += sum(one.decision.omitted for one in made)
            changes = [one for one in made if one.decision.changed or one.decision.dropped]
            if not await self._write(changes, rules, facts, state):
                return
        firing = sum(alert.state is AlertState.FIRING for alerts in state.alerts.values() for alert in alerts)
        self._telemetry.emit(
            AlertsEvaluated(sum(map(len, rules.values())), firing, omitted, time.perf_counter() - began)
        )

    def _choose(self, tenants: set[str], state: _State) -> list[str]:
        """Returns the tenants of this turn: all, or those that come next if there are too many."""
        ordered = sorted(tenant for tenant in tenants if state.covers(tenant))
        chosen = ordered[:MOST_TENANTS]
        self._begin = chosen[-1] if len(chosen) < len(ordered) else state.end or ""
        return chosen

    def _decide(self, tenant: str, rules: Mapping[str, AlertRule], facts: Facts, state: _State, room: int) -> Decision:
        """Returns what becomes of a tenant's alerts. `room`: notices that it sends about; others follow later."""
        known: dict[str, list[Alert]] = defaultdict(list)
        for alert in state.alerts.get(tenant, ()):
            known[alert.rule].append(alert)
        silences = state.silences.get(tenant, ())
        channels = state.channels.get(tenant, ())
        made: list[Decision] = []
        for name in sorted(rules.keys() | known.keys(), key=lambda name: (not _is_critical(rules.get(name)), name)):
            rule, left = rules.get(name), room - sum(it.sent for it in made)
            if rule is None or not rule.enabled:
                made.append(end_all(known[name], facts.now, room=left))
                continue
            readings = measure(rule, tenant, facts)
            if readings is not None:
                made.append(
                    evaluate(
                        rule, tenant, readings, known[name], silences, channels, facts.now, self._new_id,
                        room=left,
                    )
                )  # fmt: skip
        return _joined(made)

    def _new_id(self) -> str:
        return make_id(self._clock.now(), self._random_bytes(10))

    async def _write(
        self, made: Sequence[_Made], rules: Mapping[str, Mapping[str, AlertRule]], facts: Facts, state: _State
    ) -> bool:
        """Writes the decisions. Returns False if another node owns the alerts now."""
        if not made:
            return True
        crash_point("alerts_decided")
        answers = await self._store.apply([one.command for one in made])
        crash_point("alerts_written")
        for one, answer in zip(made, answers, strict=True):
            tenant = one.command.tenant
            for room in (FEW_SENT, 0):  # the states count; who has to be told is told later
                if not isinstance(answer, QuotaExceeded):
                    break
                log.warning("too many notices: they follow later", tenant=tenant, error=answer.message)
                one = self._make(one.command.epoch, tenant, rules[tenant], facts, state, room) or one
                (answer,) = await self._store.apply([one.command])
            if not result_of(one.command, answer):
                log.warning("another node has taken the alerts", node=self._node, epoch=one.command.epoch)
                self._epoch = None
                return False
            self._publish(one.decision.moved, facts.now)
        if any(one.command.notices for one in made):
            self._due_hint(facts.now)
        return True

    def _make(
        self, epoch: int, tenant: str, rules: Mapping[str, AlertRule], facts: Facts, state: _State,
        room: int = MOST_SENT,
    ) -> _Made | None:  # fmt: skip
        """Returns what becomes of a tenant's alerts; None if an error in it, which must not stop those of others."""
        try:
            decision, now = self._decide(tenant, rules, facts, state, room), facts.now
            notices = tuple(notice_jobs(telling, tenant, now, self._random_bytes(10)) for telling in decision.tellings)
        except Exception as error:
            log.error("the alert rules of a tenant can't be evaluated", tenant=tenant, exc_info=error)
            return None
        return _Made(decision, ApplyAlerts(now, self._node, epoch, tenant, decision.changed, decision.dropped, notices))

    def _publish(self, moved: Sequence[Alert], now: int) -> None:
        if not moved:
            return
        for alert in moved:
            note = log.info if alert.state is AlertState.RESOLVED else log.warning
            note(
                f"an alert is {alert.state}", tenant=alert.tenant, rule=alert.rule, subject=alert.subject,
                severity=alert.severity, summary=alert.summary,
            )  # fmt: skip
            self._events.publish(f"alert.{alert.state}", now, alert.tenant, shown(alert))
        self._telemetry.emit(AlertsMoved(now, moved))

    async def _read_state(self) -> _State:
        """Reads on behind the tenants of the turn before. A tenant of which something may be missing is left for the
        next turn: without its open alerts, they would all be told again."""
        now, begin, store = self._clock.now(), self._begin, self._store
        rules = [(it.tenant, it.rule) for it in await self._read_rules(begin)]
        alerts = [(it.tenant, it) for it in await self._read_alerts(begin)]
        silences = [(it.tenant, it) for it in await store.list_silences(None, now, MOST_ROWS, begin)]
        channels = [(it.tenant, it.name) for it in await store.list_channels(None, MOST_ROWS, begin)]
        ends = [end for rows in (rules, alerts, silences, channels) if (end := _last_whole(rows)) is not None]
        return _State(
            begin, min(ends, default=None),
            _by_tenant(rules), _by_tenant(alerts), _by_tenant(silences), _by_tenant(channels),
        )  # fmt: skip

    async def _read_rules(self, begin: str) -> list[AlertRuleRecord]:
        found: list[AlertRuleRecord] = []
        after = (begin, LAST)
        while len(found) < MOST_ROWS:
            page = await self._store.list_alert_rules(None, PAGE, after)
            found += page
            if len(page) < PAGE:
                break
            after = (page[-1].tenant, page[-1].rule.name)
        return found

    async def _read_alerts(self, begin: str) -> list[Alert]:
        found: list[Alert] = []
        after = (begin, LAST)
        while len(found) < MOST_ROWS:
            page = await self._store.list_open_alerts(after, PAGE)
            found += page
            if len(page) < PAGE:
                break
            after = (page[-1].tenant, page[-1].alert_id)
        return found


def make_alerts(
    store: Store, clock: Clock, node: int, settings: EngineSettings, events: EventHub,
    random_bytes: Callable[[int], bytes], telemetry: Telemetry, *, view: Callable[[], View | None],
    own: Callable[[], NodeFacts], is_trusted: Callable[[], bool], due_hint: Callable[[int], None],
) -> tuple[Alerts, Objectives]:  # fmt: skip
    """Returns the evaluator, and the service that reads the objectives for its burn rates.

    The owner of the alerts is not always the node that reads objectives for the metrics, and these must not count
    twice: so this service emits to nobody.
    """
    burns = Objectives(store, clock, Telemetry(), lambda: alerts.is_owner)
    burns.name = "burn rates"
    facts = FactsReader(store, clock, node, settings.capacity, view, own, burns=burns.burning)
    alerts = Alerts(
        store, clock, node, facts, events, random_bytes, telemetry, settings.operator_tenant,
        view=view, is_trusted=is_trusted, due_hint=due_hint,
    )  # fmt: skip
    return alerts, burns


def _by_tenant(rows: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for tenant, row in rows:
        found[tenant].append(row)
    return found


def _last_whole(rows: Sequence[tuple[str, object]]) -> str | None:
    """Returns the last tenant of which all rows were read; None if no row of any tenant was left out.

    A tenant with more rows than a turn reads counts as whole: the others must go on.
    """
    if len(rows) < MOST_ROWS:
        return None
    last = rows[-1][0]
    return next((tenant for tenant, _ in reversed(rows) if tenant != last), last)


def _is_about_a_subject(stored: Mapping[str, Iterable[AlertRule]]) -> bool:
    return any(rule.scope != "all" for rules in stored.values() for rule in rules)


def _is_critical(rule: AlertRule | None) -> bool:
    return rule is not None and rule.severity is Severity.CRITICAL


def _joined(made: Sequence[Decision]) -> Decision:
    return Decision(
        tuple(alert for it in made for alert in it.changed), tuple(one for it in made for one in it.dropped),
        tuple(alert for it in made for alert in it.moved), tuple(one for it in made for one in it.tellings),
        sum(it.omitted for it in made),
    )  # fmt: skip
