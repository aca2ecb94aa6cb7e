"""Each kind of alert fires and resolves by its real cause: a failing target, a full queue, a dead node."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain.alert_facts import Facts
from duetime.domain.alert_readings import Readings, measure
from duetime.domain.alert_rules import AlertKind, AlertRule, Severity
from duetime.domain.alerts import Alert, AlertState
from duetime.domain.breaker import circuit_of
from duetime.domain.capacity import Capacity
from duetime.domain.channels import Kind as ChannelKind
from duetime.domain.errors import Overloaded
from duetime.domain.execution import Outcome
from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.job import RetryPolicy, Slo
from duetime.domain.lease import ALERTS, TIMER
from duetime.domain.notices import MOST_AN_HOUR
from duetime.domain.silences import Silence
from duetime.domain.states import ErrorType
from duetime.domain.statistics import StatisticsQuery, StatisticsRow
from duetime.domain.subscriptions import EVENT_TAG
from duetime.engine import alert_facts, alerts
from duetime.engine.alert_windows import DAYS_A_TURN
from duetime.engine.dispatcher import Limits
from duetime.engine.settings import WORKER
from duetime.events import Event
from duetime.ports.store import JobQuery, Store
from duetime.registry.memory import MemoryRegistry
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage
from samples import NOW, TENANT, add_execution, add_job, new_id, new_job, one, spec

ROLES = frozenset({TIMER, WORKER, ALERTS})
FAILURE = Outcome(ErrorType.CONNECTION_ERROR, "nobody listens")
ONCE = RetryPolicy(max_retries=0)
OLD = 7 * 60  # seconds after which no window of five minutes has it, rolled up to minutes


class Watch:
    """A stage whose engine evaluates alerts; the tenant of the tests is the operator's."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.store = stage.store
        self.clock = stage.clock

    @property
    def is_shared(self) -> bool:
        return isinstance(self.stage.registry, MemoryRegistry)

    async def start(self, limits: Limits | None = None, **settings: Any) -> None:
        known: dict[str, Any] = {"roles": ROLES, "operator_tenant": TENANT}
        await self.stage.join(limits, **known | settings)
        await self.put_channel()

    async def put_channel(self, name: str = "mail") -> None:
        put = c.PutChannel(self.clock.now(), TENANT, name, ChannelKind.WEBHOOK, "encrypted", "shown", "ann")
        assert await one(self.store, put) is None

    async def put(self, rule: AlertRule) -> None:
        assert await one(self.store, c.PutAlertRule(self.clock.now(), TENANT, rule, "ann")) is None
        await self.stage.engine.term.watched.run_once()

    async def run(self, count: int, outcome: Outcome = SUCCESS, **fields: Any) -> None:
        """Runs jobs that are due now."""
        self.stage.executor.answer(outcome)
        for _ in range(count):
            await self.stage.add_job(spec("immediate", **{"retry_policy": ONCE} | fields))
        await self.stage.tick()

    async def look(self) -> None:
        """The turns of all that alerts depend on."""
        term = self.stage.engine.term
        await term.statistics.run_once()
        await term.alerts.run_once()

    async def pass_time(self, seconds: float, step: float = 5.0, *, runs: bool = True) -> None:
        """Lets time pass with a turn of the alerts every few seconds. Without `runs` no timer fires."""
        end = self.clock.now() + round(seconds * SECOND)
        look_at = self.clock.now()
        while self.clock.now() < end:
            self.clock.set(min(end, self.clock.now() + (SECOND if self.is_shared else round(step * SECOND))))
            await self.stage.engine.term.membership.run_once()
            if self.clock.now() >= min(end, look_at + round(step * SECOND)):
                look_at = self.clock.now()
                if runs:
                    await self.stage.tick()
                await self.look()

    async def open(self) -> dict[str, Alert]:
        return {alert.rule: alert for alert in await self.store.list_alerts(TENANT, 100)}

    async def states(self) -> dict[str, str]:
        return {rule: str(alert.state) for rule, alert in (await self.open()).items()}

    async def told(self) -> list[str]:
        """Returns the titles of all notices, oldest first."""
        jobs = await self.store.list_jobs(JobQuery(TENANT, type="notice", order="asc", limit=100))
        return [job.spec.name for job in jobs]

    async def only(self, *rules: str) -> dict[str, Alert]:
        """Returns the open alerts, which must be these, and fire."""
        found = await self.open()
        assert {rule: str(alert.state) for rule, alert in found.items()} == dict.fromkeys(rules, "firing")
        return found

    def events(self) -> list[Event]:
        return [event for event in self.stage.events.list_gathered() if event.kind.startswith("alert.")]


@pytest.fixture
async def watch(stage: Stage) -> Watch:
    return Watch(stage)


# Each kind by its cause


async def test_a_failing_target_fires_and_resolves_when_its_failures_are_old(watch: Watch):
    await watch.start()
    await watch.put(AlertRule("dead-letters", AlertKind.DEAD_LETTERS, enabled=False))
    await watch.put(AlertRule("circuit-open", AlertKind.CIRCUIT_OPEN, enabled=False))
    await watch.run(9)
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only()  # 10 % is not more than 10 %
    await watch.run(2, FAILURE)
    await watch.look()
    found = await watch.only("failures")
    assert found["failures"].summary == "25 % of 12 executions failed in 5 min"
    assert await watch.told() == ["firing: failures: 25 % of 12 executions failed in 5 min"]
    await watch.pass_time(OLD)
    await watch.only()
    assert (await watch.told())[1:] == ["resolved: failures: 25 % of 12 executions failed in 5 min"]
    assert [event.kind for event in watch.events()] == ["alert.firing", "alert.resolved"]
    (over,) = await watch.store.list_alert_history(TENANT, 10)
    assert (over.rule, str(over.state)) == ("failures", "resolved")


async def test_a_rule_of_a_tag_counts_only_jobs_with_the_tag(watch: Watch):
    await watch.start()
    await watch.put(AlertRule("failures", AlertKind.FAILURE_RATIO, enabled=False))
    await watch.put(AlertRule("sales", AlertKind.FAILURE_RATIO, scope="tag:team=sales", least_count=3))
    for name in ("dead-letters", "circuit-open"):
        await watch.put(AlertRule(name, AlertKind.WAITING, enabled=False))
    await watch.run(4, FAILURE, tags={"team": "ops"})
    await watch.look()
    await watch.only()
    await watch.run(3, FAILURE, tags={"team": "sales"})
    await watch.look()
    assert (await watch.only("sales"))["sales"].subject == "tag:team=sales"


async def test_executions_that_run_out_of_attempts_fire(watch: Watch):
    await watch.start()
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")
    await watch.pass_time(OLD)
    await watch.only()


async def test_an_open_circuit_fires_until_its_target_is_back_and_tells_no_path(watch: Watch):
    await watch.start()
    await watch.put(AlertRule("dead-letters", AlertKind.DEAD_LETTERS, enabled=False))
    for _ in range(5):
        await watch.run(1, FAILURE, url="https://hook.example:8443/secret-token?x=1")
    await watch.look()
    (alert,) = (await watch.only("circuit-open")).values()
    assert "https://hook.example:8443 " in alert.summary
    assert "secret" not in alert.summary
    circuit = circuit_of(TENANT, "https://hook.example:8443/secret-token")
    assert await one(watch.store, c.CloseCircuit(watch.clock.now(), TENANT, circuit)) is None
    await watch.look()
    await watch.only()


async def test_a_full_queue_fires_after_a_minute_and_resolves_when_it_is_worked_off(watch: Watch):
    await watch.start(Limits(concurrency=1))
    watch.stage.executor.hold()
    await watch.put(AlertRule("queue-build-up", AlertKind.WAITING, threshold=3))
    for rule in ("lateness", "lateness-high", "saturation", "saturation-critical", "scheduler-stopped"):
        await watch.put(AlertRule(rule, AlertKind.WAITING, enabled=False))
    for _ in range(8):
        await watch.stage.add_job(spec("immediate"))
    await watch.stage.tick()
    await watch.pass_time(10)
    assert await watch.states() == {"queue-build-up": "pending"}
    await watch.pass_time(60)
    await watch.only("queue-build-up")
    watch.stage.executor.let_go()
    for _ in range(9):
        await watch.stage.tick()
    await watch.look()
    await watch.only()


async def test_executions_that_begin_late_fire(watch: Watch):
    await watch.start()
    for _ in range(2):
        await watch.stage.add_job(spec("immediate"))
    watch.clock.advance(90)
    await watch.stage.tick()
    await watch.look()
    found = await watch.only("lateness")
    assert found["lateness"].severity == Severity.INFO
    await watch.pass_time(OLD)
    await watch.only()


async def test_a_job_that_does_not_succeed_in_its_time_fires_until_it_does(watch: Watch):
    await watch.start()
    job_id = await watch.stage.add_job(spec("every 1h", expect_every="2h", retry_policy=ONCE))
    await watch.pass_time(3600, 600, runs=False)
    await watch.only()
    watch.clock.advance(3600)
    for rule in ("scheduler-stopped", "lateness", "lateness-high"):
        await watch.put(AlertRule(rule, AlertKind.WAITING, enabled=False))
    await watch.pass_time(20, runs=False)
    assert (await watch.only("not-run"))["not-run"].subject == f"job:{job_id}"
    await watch.stage.tick()  # the timer is back, and the job runs
    await watch.pass_time(20, runs=False)
    await watch.only()


async def test_a_paused_job_may_be_silent(watch: Watch):
    await watch.start()
    job_id = await watch.stage.add_job(spec("every 1h", expect_every="2h"))
    await one(watch.store, c.PauseJob(watch.clock.now(), TENANT, job_id, "ann", ""))
    await watch.pass_time(3 * 3600, 1200)
    await watch.only()


@pytest.mark.parametrize("kind", [AlertKind.NOT_RUN, AlertKind.NO_SUCCESS])
async def test_a_rule_for_a_job_has_its_own_span(watch: Watch, kind: AlertKind):
    await watch.start()
    await watch.put(AlertRule("own", kind, scope="tag:team=sales", window_seconds=7200))
    await watch.stage.add_job(spec("@daily", tags={"team": "sales"}))
    await watch.stage.add_job(spec("@daily"))
    await watch.pass_time(7200, 600, runs=False)
    await watch.only()
    await watch.pass_time(60, runs=False)
    await watch.only("own")


async def test_a_full_store_fires_at_80_and_at_90_percent(watch: Watch):
    await watch.start(capacity=Capacity(most_jobs=20))
    for _ in range(17):
        await add_job(watch.store, spec("@yearly"))
    await watch.pass_time(65)
    await watch.only("capacity")
    for _ in range(2):
        await add_job(watch.store, spec("@yearly"))
    await watch.pass_time(65)
    await watch.only("capacity", "capacity-critical")
    for job in (await watch.store.list_jobs(JobQuery(TENANT, type="http_request", limit=100)))[:14]:
        assert await one(watch.store, c.PurgeJob(TENANT, job.job_id)) is False
    await watch.look()
    await watch.only()


async def test_a_node_whose_places_are_full_fires(watch: Watch):
    await watch.start(Limits(concurrency=2))
    watch.stage.executor.hold()
    for _ in range(2):
        await watch.stage.add_job(spec("immediate", timeout_seconds=3600))
    await watch.stage.tick()
    await watch.pass_time(70)
    assert await watch.states() == {"saturation": "pending", "saturation-critical": "firing"}
    await watch.pass_time(240)
    await watch.only("saturation", "saturation-critical")
    watch.stage.executor.let_go()
    await watch.stage.settle()
    await watch.look()
    await watch.only()


async def test_timers_that_no_node_fires_fire(watch: Watch):
    await watch.start()
    for rule in ("lateness", "lateness-high"):
        await watch.put(AlertRule(rule, AlertKind.WAITING, enabled=False))
    await watch.stage.add_job(spec("immediate"))
    await watch.pass_time(60, runs=False)
    await watch.only()
    await watch.pass_time(35, runs=False)
    await watch.only("scheduler-stopped")
    await watch.stage.tick()
    await watch.look()
    await watch.only()


async def test_a_service_that_keeps_failing_fires(watch: Watch):
    await watch.start()
    watch.stage.engine.term.timer.failure = "TimedOut: the database did not respond"
    await watch.pass_time(35)
    assert (await watch.only("turn-errors"))["turn-errors"].summary.endswith("of: timer")
    watch.stage.engine.term.timer.failure = None
    await watch.look()
    await watch.only()


async def test_a_job_that_burns_its_error_budget_fires(watch: Watch):
    await watch.start()
    for name in ("failures", "dead-letters", "circuit-open"):
        await watch.put(AlertRule(name, AlertKind.WAITING, enabled=False))
    await watch.stage.add_job(spec("every 1m", slo=Slo(success=99), retry_policy=ONCE))
    await watch.stage.engine.term.watched.run_once()
    watch.stage.executor.answer(FAILURE)
    for _ in range(4):
        watch.clock.advance(60)
        await watch.stage.tick()
    await watch.look()
    await watch.stage.engine.term.burns.run_once()
    await watch.look()
    await watch.only("burn-rate", "burn-rate-fast")


# Several nodes


@pytest.fixture
async def pair(store: Store, clock: HandClock) -> list[Watch]:
    """Two nodes with the role `alerts`; the first is the owner."""
    registry = MemoryRegistry(clock, 5)
    watches = [Watch(Stage(store, clock, ScriptedExecutor())) for _ in range(2)]
    for watch, name in zip(watches, "ab", strict=True):
        watch.stage.registry = registry
        await watch.start(node_name=name)
        await watch.stage.engine.term.node_reports.run_once()
    for watch in watches:
        await watch.stage.engine.term.membership.run_once()
        await watch.look()
    assert [watch.stage.engine.term.alerts.is_owner for watch in watches] == [True, False]
    return watches


async def test_a_dead_node_fires_and_its_successor_resolves_it(pair: list[Watch], clock: HandClock):
    _, survivor = pair
    assert await survivor.states() == {}
    await survivor.pass_time(30)
    found = await survivor.only("node-gone")
    assert found["node-gone"].subject == "node:a"
    assert survivor.stage.engine.term.alerts.is_owner
    back = Watch(Stage(survivor.store, clock, ScriptedExecutor()))
    back.stage.registry = survivor.stage.registry
    await back.start(node_name="a")
    await back.stage.engine.term.node_reports.run_once()
    await survivor.stage.engine.term.membership.run_once()
    await survivor.look()
    await survivor.only()


async def test_a_node_that_leaves_by_itself_is_not_gone(pair: list[Watch]):
    leaving, survivor = pair
    await leaving.stage.engine.stop()
    await survivor.pass_time(60)
    await survivor.only()


async def test_executions_that_nobody_takes_over_fire(pair: list[Watch]):
    dead, survivor = pair
    await survivor.put(AlertRule("node-gone", AlertKind.NODE_GONE, enabled=False))
    await survivor.put(AlertRule("not-taken", AlertKind.ORPHANS, for_seconds=60))
    dead.stage.executor.hold()
    for number in range(20):
        job_id = f"019b76da-a800-7000-8000-{number * 0x9E3779B97F4A7C15 % 2**48:012x}"  # of shards of both nodes
        await dead.stage.add_job(spec("immediate", timeout_seconds=3600), job_id=job_id)
    await dead.stage.tick()
    assert dead.stage.executor.attempts
    await one(survivor.store, c.FenceNodes(survivor.clock.now(), (dead.stage.engine.node,)))
    await survivor.pass_time(70)
    assert (await survivor.states())["not-taken"] == "firing"
    await survivor.stage.engine.term.reconciler.run_once()
    await survivor.look()
    assert "not-taken" not in await survivor.states()


async def test_a_clock_that_was_moved_fires_until_it_is_right(store: Store, clock: HandClock):
    own = HandClock()
    watch = Watch(Stage(store, own, ScriptedExecutor()))
    watch.stage.registry = MemoryRegistry(clock, 60)
    await watch.start()

    async def pass_time(seconds: float) -> None:
        clock.advance(seconds)
        await watch.pass_time(seconds)

    await pass_time(5)
    await watch.only()
    own.jump(3)
    for _ in range(8):
        await pass_time(5)
    await watch.only("clock-offset")
    own.jump(-3)
    await pass_time(5)
    await watch.only()


async def test_the_owner_hands_over_and_the_earlier_one_writes_nothing(pair: list[Watch], clock: HandClock):
    """The owner decides, is suspended past its lease, and continues: the store refuses what it decided."""
    owner, other = pair
    await owner.put(AlertRule("dead-letters", AlertKind.DEAD_LETTERS, enabled=False))
    term = owner.stage.engine.term
    decided = c.ApplyAlerts(clock.now(), term.node, 1, TENANT, (), ())
    await other.pass_time(7)
    assert other.stage.engine.term.alerts.is_owner
    assert await one(owner.store, decided) is False
    await owner.look()  # it does not trust its lease any more
    assert not term.alerts.is_owner


async def test_two_nodes_that_both_think_that_they_are_the_owner_tell_once(pair: list[Watch]):
    """They have different views: the one that took the alerts last writes, and the other one sees that."""
    owner, other = pair
    for watch in pair:
        watch.stage.engine.term.alerts._view = _only_itself(watch)
    await owner.stage.add_job(spec("immediate"))
    owner.stage.executor.answer(FAILURE)
    for _ in range(3):
        await owner.stage.add_job(spec("immediate", retry_policy=ONCE))
    for watch in pair:
        watch.stage.executor.answer(FAILURE)
        await watch.stage.tick()
        await watch.stage.engine.term.statistics.run_once()
    await other.look()
    await owner.look()
    await other.look()
    assert [title for title in await other.told() if "dead-letters" in title] == [
        title for title in await other.told() if "dead-letters" in title
    ][:1]


def _only_itself(watch: Watch) -> Any:
    view = watch.stage.engine.term.membership.view
    assert view is not None
    node = watch.stage.engine.term.node
    return lambda: type(view)(view.now, tuple(m for m in view.members if m.node == node), view.shards, view.expired)


async def test_a_node_without_the_role_evaluates_nothing(stage: Stage):
    watch = Watch(stage)
    await watch.start(roles=frozenset({TIMER, WORKER}))
    await watch.run(5, FAILURE)
    assert watch.stage.engine.term.alerts not in watch.stage.engine.term.services
    await watch.look()
    assert await watch.states() == {}


# Notices


async def test_without_a_channel_an_alert_is_stored_and_published_and_told_once_there_is_one(watch: Watch):
    await watch.start()
    assert await one(watch.store, c.RemoveChannel(TENANT, "mail")) is None
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")
    assert await watch.told() == []
    assert [event.kind for event in watch.events()] == ["alert.firing"]
    await watch.put_channel("pager")
    await watch.look()
    assert len(await watch.told()) == 1


async def test_a_silence_holds_back_the_notice_and_not_the_alert(watch: Watch):
    await watch.start()
    silence = Silence(new_id(), TENANT, "dead-letters", "", NOW, NOW + MINUTE, "deploy", NOW, "ann")
    assert await one(watch.store, c.AddSilence(NOW, silence)) is None
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")
    assert await watch.told() == []
    await watch.pass_time(65)
    assert len(await watch.told()) == 1, "it still fires after the silence"


class LosingAnswers(FlakyStore):
    loses = False

    async def apply(self, commands: Any) -> Any:
        answers = await super().apply(commands)
        if self.loses and any(isinstance(command, c.ApplyAlerts) for command in commands):
            raise Overloaded("the connection broke after the commit")
        return answers


async def test_an_alert_that_is_written_twice_is_told_once(stage: Stage):
    """The write fails after it was applied: the next turn reads the alert with its notice, and sends no other."""
    store = LosingAnswers(stage.store)
    watch = Watch(stage)
    await watch.start(store=store)
    await watch.run(1, FAILURE)
    await stage.engine.term.statistics.run_once()
    store.loses = True
    with pytest.raises(Overloaded):
        await stage.engine.term.alerts.run_once()
    store.loses = False
    await watch.look()
    assert len(await watch.told()) == 1


async def test_a_rule_that_is_turned_off_ends_its_alert(watch: Watch):
    await watch.start()
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")
    await watch.put(AlertRule("dead-letters", AlertKind.DEAD_LETTERS, enabled=False))
    await watch.pass_time(5)
    await watch.only()
    assert [title.partition(":")[0] for title in await watch.told()] == ["firing", "resolved"]


async def test_tenants_see_only_their_own(watch: Watch):
    await watch.start()
    watch.stage.executor.answer(FAILURE)
    await watch.stage.add_job(spec("immediate", retry_policy=ONCE), tenant="globex")
    await watch.stage.tick()
    await watch.look()
    assert await watch.states() == {}
    assert [alert.rule for alert in await watch.store.list_alerts("globex", 10)] == ["dead-letters"]
    assert await watch.told() == []


# Tenants with very many rules and alerts


def hostile_rules(number: int) -> list[c.PutAlertRule]:
    """Rules of tenants that come before the others."""
    return [
        c.PutAlertRule(NOW, f"a{place // 5:03}", AlertRule(f"r{place % 5}", AlertKind.WAITING, enabled=False), "eve")
        for place in range(number)
    ]


async def test_rules_of_others_do_not_turn_off_a_rule(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alerts, "MOST_ROWS", 20)
    monkeypatch.setattr(alerts, "PAGE", 10)
    await watch.start()
    await watch.put(AlertRule("two", AlertKind.DEAD_LETTERS, threshold=1))
    await watch.put(AlertRule("dead-letters", AlertKind.DEAD_LETTERS, enabled=False))
    assert await watch.store.apply(hostile_rules(53)) == [None] * 53
    await watch.run(3, FAILURE)
    for _ in range(4):
        await watch.look()
    await watch.only("two")
    assert len(await watch.told()) == 1


async def test_alerts_of_others_do_not_make_an_alert_be_told_again(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    await watch.start()
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")
    monkeypatch.setattr(alerts, "MOST_ROWS", 20)
    monkeypatch.setattr(alerts, "PAGE", 10)
    owner = watch.stage.engine.term.alerts
    assert owner._epoch is not None
    for tenant in ("a1", "a2", "a3", "a4"):
        some = tuple(
            Alert(new_id(), tenant, "dead-letters", "", f"job:{place}", "warning", AlertState.PENDING, NOW, 1, "x")
            for place in range(7)
        )  # fmt: skip
        assert await one(watch.store, c.ApplyAlerts(NOW, owner._node, owner._epoch, tenant, some))
    await watch.look()
    await watch.look()
    await watch.look()
    await watch.only("dead-letters")
    assert len(await watch.told()) == 1
    assert await watch.store.list_open_alerts(("", ""), 100) == await watch.store.list_alerts(TENANT, 100)


class CountingReads(FlakyStore):
    """Keeps the queries for statistics of the alerts."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.queries: list[StatisticsQuery] = []

    async def list_statistics(self, query: StatisticsQuery) -> list[StatisticsRow]:
        self.queries.append(query)
        return await self._store.list_statistics(query)


async def test_many_long_windows_of_a_tenant_neither_delay_those_of_another_nor_read_all_at_once(stage: Stage):
    store = CountingReads(stage.store)
    watch = Watch(stage)
    await watch.start(store=store)
    for name in ("failures", "dead-letters", "circuit-open"):
        await watch.put(AlertRule(name, AlertKind.WAITING, enabled=False))
    long = 31 * 86_400
    await watch.put(AlertRule("month", AlertKind.FAILURE_RATIO, window_seconds=long, least_count=1))
    hostile = [
        AlertRule(f"r{place:02}", AlertKind.FAILURE_RATIO, scope=f"tag:n={place}", window_seconds=long)
        for place in range(100)
    ]
    assert await stage.store.apply([c.PutAlertRule(NOW, "a-evil", rule, "eve") for rule in hostile]) == [None] * 100
    await watch.run(1, FAILURE)
    await watch.stage.engine.term.statistics.run_once()
    store.queries.clear()
    await watch.stage.engine.term.alerts.run_once()
    await watch.only("month")
    assert all(query.until - query.since <= MINUTE for query in store.queries if query.tenant is None)
    assert all(query.subject is not None for query in store.queries if query.tenant is not None)
    assert len([query for query in store.queries if query.tenant == "a-evil"]) * 31 < DAYS_A_TURN


async def test_open_circuits_of_another_tenant_hide_none(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alert_facts, "MOST_CIRCUITS", 3)
    await watch.start()
    await watch.put(AlertRule("dead-letters", AlertKind.DEAD_LETTERS, enabled=False))
    for _ in range(5):
        await watch.run(1, FAILURE, url="https://hook.example/mine")
    await watch.pass_time(1, step=1)
    for place in range(4):
        for _ in range(5):
            hook = spec("immediate", retry_policy=ONCE, url=f"https://hook.example/{place}")
            await watch.stage.add_job(hook, tenant="a-evil")
    await watch.stage.tick()
    await watch.look()
    assert len(await watch.store.list_circuits("a-evil", 10)) == 4
    await watch.only("circuit-open")
    assert len(await watch.told()) == 1


async def told_of(watch: Watch, word: str) -> int:
    query = JobQuery(TENANT, type="notice", tag=(EVENT_TAG, f"alert.{word}"), limit=1000)
    return len(await watch.store.list_jobs(query))


async def test_more_notices_than_an_hour_may_have_follow_in_later_turns(watch: Watch):
    """40 jobs that are silent, each told to 31 channels; and the rule is then turned off."""
    await watch.start()
    for place in range(30):
        await watch.put_channel(f"mail{place}")
    await watch.put(AlertRule("not-run", AlertKind.NOT_RUN, group_by="subject"))
    for _ in range(40):
        await add_job(watch.store, spec("every 1h", expect_every="1m"))
    await watch.pass_time(65, step=5, runs=False)
    assert len(await watch.store.list_alerts(TENANT, 100)) == 40
    first = await told_of(watch, "firing")
    assert 200 <= first <= MOST_AN_HOUR
    await watch.put(AlertRule("not-run", AlertKind.NOT_RUN, enabled=False))
    await watch.run(1, FAILURE)
    await watch.pass_time(600, step=30, runs=False)
    assert await told_of(watch, "resolved") > 0


async def test_a_tenant_whose_rules_raise_an_error_does_not_stop_the_alerts_of_others(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
):
    def broken(rule: AlertRule, tenant: str, facts: Facts) -> Readings:
        if tenant == "a-evil":
            raise ValueError("a mistake")
        return measure(rule, tenant, facts)

    monkeypatch.setattr(alerts, "measure", broken)
    await watch.start()
    await watch.stage.add_job(spec("immediate", retry_policy=ONCE), tenant="a-evil")
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")


async def test_a_tenant_with_many_channels_is_told_and_does_not_stop_the_alerts_of_others(watch: Watch):
    await watch.start()
    for place in range(50):
        put = c.PutChannel(NOW, "a-evil", f"mail{place}", ChannelKind.WEBHOOK, "encrypted", "shown", "eve")
        assert await one(watch.store, put) is None
    await watch.stage.add_job(spec("immediate", retry_policy=ONCE), tenant="a-evil")
    await watch.run(1, FAILURE)
    await watch.look()
    await watch.only("dead-letters")
    assert len(await watch.told()) == 1
    assert len(await watch.store.list_jobs(JobQuery("a-evil", type="notice", limit=100))) == 50


async def test_a_queue_is_seen_behind_those_of_many_tenants(watch: Watch):
    await watch.start()
    await watch.put(AlertRule("queue", AlertKind.WAITING, threshold=0, for_seconds=0))
    tenants = [*(f"a{number}" for number in range(1000)), TENANT]
    jobs = [new_job(spec("immediate"), tenant=tenant) for tenant in tenants]
    await watch.store.apply([c.CreateJobs(NOW, (job,)) for job in jobs])
    for job in jobs:
        await add_execution(watch.store, job.job_id, NOW - 5 * SECOND, job.tenant)
    await watch.look()
    assert "queue" in await watch.states()
