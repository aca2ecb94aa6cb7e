"""The states of alerts and their notices, over arbitrary readings, silences and quiet hours."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.domain.alert_rules import AlertKind, AlertRule, Escalation, QuietHours, Severity
from duetime.domain.alerts import CLEAR, MOST_OF_RULE, Alert, AlertState, Decision, end_all, evaluate, reading
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.silences import Silence, is_quiet
from samples import NOW, TENANT

SUBJECTS = ("", "a", "b")
STEP = 5 * SECOND
LIMIT = 100.0

rules = st.builds(
    AlertRule,
    name=st.just("r"),
    kind=st.just(AlertKind.WAITING),
    threshold=st.just(LIMIT),
    for_seconds=st.sampled_from([0.0, 5.0, 12.0, 30.0]),
    severity=st.sampled_from([Severity.WARNING, Severity.CRITICAL]),
    channels=st.sampled_from([(), ("mail",), ("mail", "pager")]),
    group_by=st.sampled_from(["rule", "subject"]),
    repeat_seconds=st.sampled_from([0.0, 20.0]),
    escalate=st.sampled_from([(), (Escalation(20, ("boss",)),), (Escalation(10, ("boss",)), Escalation(40, ("all",)))]),
    quiet_hours=st.sampled_from([None, QuietHours("00:00", "00:01"), QuietHours("00:00", "00:01", critical=True)]),
).map(AlertRule.filled)
# Values for each subject; None: no reading.
turns = st.lists(
    st.dictionaries(st.sampled_from(SUBJECTS), st.sampled_from([None, 0.0, 95.0, 101.0, 500.0]), max_size=3),
    min_size=1, max_size=40,
)  # fmt: skip
silences = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 30), st.sampled_from(["", "a"])).map(
        lambda it: Silence("s", TENANT, "", it[2], NOW + it[0] * STEP, NOW + (it[0] + it[1]) * STEP, "", NOW, "ann")
    ),
    max_size=2,
)


class World:
    """Applies decisions as the store does, and keeps what was told to whom."""

    def __init__(self, rule: AlertRule, quieted: list[Silence], channels: tuple[str, ...]) -> None:
        self.rule, self.silences, self.channels = rule, quieted, channels
        self.rows: dict[str, Alert] = {}
        self.firing: dict[str, list[str]] = {}  # by alert: channels that were told that it fires, each time
        self.resolved: dict[str, list[str]] = {}
        self.bad_since: dict[str, int] = {}
        self._ids = count()

    def turn(self, values: dict[str, float | None], now: int) -> Decision:
        readings = [reading(self.rule, subject, value, "s") for subject, value in values.items() if value is not None]
        for subject in SUBJECTS:
            if (values.get(subject) or 0) > LIMIT:
                self.bad_since.setdefault(subject, now)
            else:
                self.bad_since.pop(subject, None)
        known = [alert for alert in self.rows.values() if alert.is_open]
        decision = evaluate(
            self.rule, TENANT, readings, known, self.silences, self.channels, now, lambda: f"id{next(self._ids)}"
        )
        self.apply(decision)
        return decision

    def apply(self, decision: Decision) -> None:
        for alert_id in decision.dropped:
            del self.rows[alert_id]
        self.rows |= {alert.alert_id: alert for alert in decision.changed}
        for telling in decision.tellings:
            for alert in telling.firing:
                self.firing.setdefault(alert.alert_id, []).extend(telling.channels)
            for alert in telling.resolved:
                self.resolved.setdefault(alert.alert_id, []).extend(telling.channels)


@settings(max_examples=300)
@given(rules, turns, silences, st.sampled_from([(), ("chat",)]))
def test_alerts_follow_their_readings_and_notices_their_alerts(rule, values, quieted, channels) -> None:  # type: ignore[no-untyped-def]
    world = World(rule, quieted, channels)
    now = NOW
    for found in values:
        before = dict(world.rows)
        decision = world.turn(found, now)
        for alert in decision.moved:
            if alert.state is AlertState.FIRING:
                since = world.bad_since[alert.subject]
                assert now - since >= rule.for_seconds * SECOND, "it fires only after its time"
                assert alert.fired_at == now
            else:
                assert alert.state is AlertState.RESOLVED
                assert before[alert.alert_id].state is AlertState.FIRING
                assert (found.get(alert.subject) or 0) <= LIMIT * CLEAR
        for subject, since in world.bad_since.items():  # a silence changes no state
            if now - since >= rule.for_seconds * SECOND:
                assert any(row.subject == subject and row.state is AlertState.FIRING for row in world.rows.values())
        live = [row for row in world.rows.values() if row.state is not AlertState.RESOLVED]
        assert len({row.subject for row in live}) == len(live), "one alert for each subject"
        for telling in decision.tellings:
            assert telling.channels
            assert not is_quiet(rule, now)
            assert not any(s.covers(rule.name, one.subject, now) for one in telling.firing for s in quieted)
        now += STEP
    for _ in range(14):  # it is over, and so are the quiet hours
        world.turn({}, now)
        now += STEP
    assert not [row for row in world.rows.values() if row.is_open]
    for alert_id in world.rows:
        told, over = set(world.firing.get(alert_id, ())), world.resolved.get(alert_id, [])
        assert sorted(told) == sorted(over), "who was told that it fires is told once that it has resolved"


@given(turns)
def test_without_repeats_and_escalation_each_alert_is_told_once(values) -> None:  # type: ignore[no-untyped-def]
    rule = AlertRule(
        "r", AlertKind.WAITING, threshold=LIMIT, for_seconds=0, channels=("mail",), repeat_seconds=0
    ).filled()
    world, now = World(rule, [], ()), NOW
    for found in values:
        world.turn(found, now)
        now += STEP
    fired = {row.alert_id for row in world.rows.values() if row.fired_at is not None}
    assert world.firing == {alert_id: ["mail"] for alert_id in fired}


@given(rules, turns)
def test_a_turn_that_is_decided_again_decides_the_same(rule, values) -> None:  # type: ignore[no-untyped-def]
    """As after a crash before the write: the next owner has the same rows."""
    world, now = World(rule, [], ("chat",)), NOW
    for found in values:
        readings = [reading(rule, subject, value, "s") for subject, value in found.items() if value is not None]
        known = [alert for alert in world.rows.values() if alert.is_open]
        one, other = (
            evaluate(rule, TENANT, readings, known, [], ("chat",), now, iter(map(str, range(9))).__next__)
            for _ in range(2)
        )
        assert one == other
        world.turn(found, now)
        now += STEP


@given(turns)
def test_the_end_of_a_rule_ends_its_alerts_and_tells_who_was_told(values) -> None:  # type: ignore[no-untyped-def]
    rule = AlertRule("r", AlertKind.WAITING, threshold=LIMIT, for_seconds=5, channels=("mail",)).filled()
    world, now = World(rule, [], ()), NOW
    for found in values:
        world.turn(found, now)
        now += STEP
    world.apply(end_all([alert for alert in world.rows.values() if alert.is_open], now))
    assert not [row for row in world.rows.values() if row.is_open]
    assert world.resolved.keys() == world.firing.keys()


@given(st.integers(MOST_OF_RULE, 3 * MOST_OF_RULE))
def test_a_rule_has_a_bounded_number_of_alerts_and_those_that_fire_stay(number: int) -> None:
    rule = AlertRule("r", AlertKind.WAITING, threshold=LIMIT, for_seconds=0).filled()
    ids = map(str, count())
    first = evaluate(rule, TENANT, [reading(rule, "z", 500, "")], [], [], (), NOW, ids.__next__)
    many = [reading(rule, f"s{number}", 500, "") for number in range(number)] + [reading(rule, "z", 500, "")]
    second = evaluate(rule, TENANT, many, first.changed, [], (), NOW, ids.__next__)
    assert len(second.changed) == MOST_OF_RULE - 1
    assert second.omitted == number - (MOST_OF_RULE - 1)
    assert not second.dropped


def test_the_bounds_of_these_tests() -> None:
    assert NOW % HOUR == 0, "the quiet hours of these tests begin at NOW"
    assert is_quiet(AlertRule("r", AlertKind.WAITING, quiet_hours=QuietHours("00:00", "00:01")).filled(), NOW)
    assert not is_quiet(
        AlertRule("r", AlertKind.WAITING, quiet_hours=QuietHours("00:00", "00:01")).filled(), NOW + MINUTE
    )
