"""Alert rules, silences, and the alerts that one owner writes together with their notices."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.alert_rules import MOST_RULES, AlertKind, AlertRule, QuietHours
from duetime.domain.alerts import HISTORY, Alert, AlertState
from duetime.domain.capacity import Capacity
from duetime.domain.errors import Conflict, NotFound, QuotaExceeded, StaleWrite
from duetime.domain.node_report import NodeFacts
from duetime.domain.notices import MOST_AN_HOUR, create_notices, make_notice
from duetime.domain.silences import MOST_SILENCES, Silence
from duetime.ports.store import AlertRuleRecord, AuditQuery, JobQuery, Store
from samples import NOW, TENANT, add_job, entry_of, new_id, one


def rule(name: str = "failures", **fields: object) -> AlertRule:
    return AlertRule(name, AlertKind.FAILURE_RATIO, **fields)  # type: ignore[arg-type]


def put(own: AlertRule, tenant: str = TENANT, now: int = NOW) -> c.PutAlertRule:
    return c.PutAlertRule(now, tenant, own, "ann")


def silence(tenant: str = TENANT, ends_at: int = NOW + 100, now: int = NOW) -> Silence:
    return Silence(new_id(), tenant, "failures", "", now, ends_at, "deploy", now, "ann")


def alert(**fields: object) -> Alert:
    known = {
        "alert_id": new_id(), "tenant": TENANT, "rule": "failures", "kind": "failure_ratio", "subject": "",
        "severity": "warning", "state": AlertState.FIRING, "since": NOW, "value": 12.5, "summary": "much failed",
        "fired_at": NOW,
    }  # fmt: skip
    return Alert(**known | fields)  # type: ignore[arg-type]


async def owner(store: Store, name: str = "a") -> tuple[int, int]:
    """Starts a node that takes the alerts. Returns (node, epoch)."""
    node = await one(store, c.StartNode(NOW, name))
    return node, await one(store, c.TakeAlerts(node))


# Rules


async def test_a_rule_is_read_as_it_was_last_stored_and_only_by_its_tenant(store: Store):
    assert await one(store, put(rule())) is None
    full = rule(threshold=20, channels=("mail",), quiet_hours=QuietHours("22:00", "07:00"), enabled=False)
    assert await one(store, put(full, now=NOW + 1)) is None
    assert await one(store, put(rule("b"), "globex")) is None
    expected = AlertRuleRecord(TENANT, full, NOW + 1, "ann")
    assert await store.list_alert_rules(TENANT, 10) == [expected]
    everything = await store.list_alert_rules(None, 10)
    assert [(it.tenant, it.rule.name) for it in everything] == [(TENANT, "failures"), ("globex", "b")]
    assert await store.list_alert_rules(None, 10, (TENANT, "failures")) == everything[1:]
    assert await store.list_alert_rules(None, 1) == everything[:1]


async def test_a_rule_is_removed_by_its_tenant_and_by_no_other(store: Store):
    await one(store, put(rule()))
    assert isinstance(await one(store, c.RemoveAlertRule("globex", "failures")), NotFound)
    assert await one(store, c.RemoveAlertRule(TENANT, "failures")) is None
    assert isinstance(await one(store, c.RemoveAlertRule(TENANT, "failures")), NotFound)
    assert await store.list_alert_rules(None, 10) == []


async def test_the_rules_of_a_tenant_are_limited(store: Store):
    await store.apply([put(rule(f"r{number}")) for number in range(MOST_RULES)])
    assert isinstance(await one(store, put(rule("more"))), Conflict)
    assert await one(store, put(rule("r1", threshold=1))) is None, "one that is there can be changed"
    assert await one(store, put(rule("more"), "globex")) is None


async def test_a_change_is_in_the_audit_with_the_rule_before_it(store: Store):
    await one(store, put(rule(threshold=20)))
    entry = entry_of("alert_rule.put", "failures")
    await one(store, c.PutAlertRule(NOW, TENANT, rule(), "ann", entry))
    await one(store, c.RemoveAlertRule(TENANT, "failures", entry_of("alert_rule.remove", "failures")))
    found = await store.list_audit(AuditQuery(TENANT, resource="failures"))
    assert [it.entry.before for it in reversed(found)] == [
        {"name": "failures", "kind": "failure_ratio", "threshold": 20.0},
        {"name": "failures", "kind": "failure_ratio"},
    ]  # fmt: skip


# Silences


async def test_a_silence_is_read_until_it_ends_and_only_by_its_tenant(store: Store):
    own, other = silence(), silence("globex", NOW + 50)
    for it in (own, other):
        assert await one(store, c.AddSilence(NOW, it)) is None
    assert await store.list_silences(TENANT, NOW, 10) == [own]
    assert await store.list_silences(None, NOW, 10) == [own, other]
    assert await store.list_silences(None, NOW + 50, 10) == [own]
    assert isinstance(await one(store, c.RemoveSilence("globex", own.silence_id)), NotFound)
    assert await one(store, c.RemoveSilence(TENANT, own.silence_id)) is None
    assert await store.list_silences(TENANT, NOW, 10) == []


async def test_the_silences_of_a_tenant_are_limited_and_ended_ones_make_room(store: Store):
    await store.apply([c.AddSilence(NOW, silence()) for _ in range(MOST_SILENCES)])
    assert isinstance(await one(store, c.AddSilence(NOW, silence())), Conflict)
    assert await one(store, c.AddSilence(NOW, silence("globex"))) is None
    assert await one(store, c.AddSilence(NOW + 100, silence(ends_at=NOW + 200))) is None


# Alerts


async def test_an_alert_is_open_until_it_is_over_and_then_in_the_history(store: Store):
    node, epoch = await owner(store)
    first, second, other = alert(told=("mail",), told_at=NOW), alert(subject="b"), alert(tenant="globex")
    assert await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (first, second))) is True
    assert await one(store, c.ApplyAlerts(NOW, node, epoch, "globex", (other,))) is True
    assert await store.list_alerts(TENANT, 10) == [first, second]
    assert await store.list_open_alerts(("", ""), 10) == [first, second, other]
    assert await store.list_open_alerts((TENANT, first.alert_id), 1) == [second]
    over = msgspec.structs.replace(second, state=AlertState.RESOLVED, resolved_at=NOW + 1)
    still_told = msgspec.structs.replace(first, state=AlertState.RESOLVED, resolved_at=NOW + 2)
    assert await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (over, still_told))) is True
    assert await store.list_alerts(TENANT, 10) == [still_told], "that it is over is still to be told"
    assert await store.list_alert_history(TENANT, 10) == [over]
    assert await store.list_alert_history("globex", 10) == []
    assert await store.list_alert_history(TENANT, 10, rule="other") == []


async def test_a_pending_alert_that_is_dropped_leaves_no_trace(store: Store):
    node, epoch = await owner(store)
    pending = alert(state=AlertState.PENDING, fired_at=None)
    await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (pending,)))
    await one(store, c.ApplyAlerts(NOW, node, epoch, "globex", (), (pending.alert_id,)))
    assert await store.list_alerts(TENANT, 10) == [pending], "it is not globex's"
    await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (), (pending.alert_id,)))
    assert await store.list_open_alerts(("", ""), 10) == []
    assert await store.list_alert_history(TENANT, 10) == []


async def test_the_history_is_paged_latest_first_and_bounded(store: Store):
    node, epoch = await owner(store)
    over = [alert(state=AlertState.RESOLVED, resolved_at=NOW + n // 2) for n in range(HISTORY + 7)]
    await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, tuple(over)))
    newest = sorted(over, key=lambda it: (it.resolved_at, it.alert_id), reverse=True)[:HISTORY]
    found: list[Alert] = []
    while page := await store.list_alert_history(
        TENANT, 300, before=(found[-1].resolved_at or 0, found[-1].alert_id) if found else None
    ):
        found += page
    assert found == newest


async def test_an_owner_writes_nothing_after_another_has_taken_the_alerts(store: Store):
    first, earlier = await owner(store, "a")
    second, later = await owner(store, "b")
    assert later > earlier
    notice = create_notices(TENANT, make_notice(["mail"], "t", "b", severity="info", status="firing"), NOW, bytes(10))
    stale = c.ApplyAlerts(NOW, first, earlier, TENANT, (alert(),), (), (notice,))
    assert await one(store, stale) is False
    assert await one(store, msgspec.structs.replace(stale, node=second)) is False
    assert await store.list_open_alerts(("", ""), 10) == []
    assert await store.count_jobs(JobQuery(TENANT)) == 0
    assert await one(store, c.ApplyAlerts(NOW, second, later, TENANT, (alert(),))) is True


async def test_a_fenced_node_neither_takes_the_alerts_nor_writes_them(store: Store):
    node, epoch = await owner(store)
    await one(store, c.FenceNodes(NOW, (node,)))
    assert isinstance(await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (alert(),))), StaleWrite)
    assert isinstance(await one(store, c.TakeAlerts(node)), StaleWrite)


@pytest.mark.usefixtures("several_connections")
async def test_of_nodes_that_take_the_alerts_at_once_one_writes(store: Store):
    nodes = [await one(store, c.StartNode(NOW, f"n{n}")) for n in range(4)]

    async def take(node: int) -> tuple[int, int]:
        (epoch,) = await store.apply([c.TakeAlerts(node)])
        assert isinstance(epoch, int)
        return node, epoch

    taken = await asyncio.gather(*map(take, nodes))
    assert sorted(epoch for _, epoch in taken) == [1, 2, 3, 4]
    answers = await asyncio.gather(
        *(store.apply([c.ApplyAlerts(NOW, node, epoch, TENANT, (alert(),))]) for node, epoch in taken)
    )
    assert sum(answer == [True] for answer in answers) == 1
    assert len(await store.list_alerts(TENANT, 10)) == 1


# Notices

_numbers = count(1)


def notices(channels: list[str]) -> tuple[c.CreateJobs, ...]:
    notice = make_notice(channels, "title", "body", severity="critical", status="firing")
    return (create_notices(TENANT, notice, NOW, (next(_numbers) << 20).to_bytes(10, "big")),)


async def test_an_alert_and_its_notices_are_written_together_or_not_at_all(store: Store):
    node, epoch = await owner(store)
    written = c.ApplyAlerts(NOW, node, epoch, TENANT, (alert(),), (), notices(["mail", "pager"]))
    assert await one(store, written) is True
    jobs = await store.list_jobs(JobQuery(TENANT))
    assert sorted(job.spec.payload.channels for job in jobs) == [("mail",), ("pager",)]  # type: ignore[union-attr]
    # The same ids again: the jobs are refused, and so is the alert.
    again = msgspec.structs.replace(written, changed=(alert(subject="b"),))
    assert isinstance(await one(store, again), Conflict)
    assert [it.subject for it in await store.list_alerts(TENANT, 10)] == [""]


async def test_notices_are_limited_and_then_the_alert_is_not_written(store: Store):
    node, epoch = await owner(store)
    many = tuple(notice for _ in range(MOST_AN_HOUR) for notice in notices(["mail"]))
    assert await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (), (), many)) is True
    refused = await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (alert(),), (), notices(["mail"])))
    assert isinstance(refused, QuotaExceeded)
    assert await store.list_alerts(TENANT, 10) == []


async def test_a_full_store_refuses_no_notice(make_store: MakeStore):
    store = make_store(Capacity(most_jobs=1))
    await store.start()
    try:
        await add_job(store)
        node, epoch = await owner(store)
        assert await one(store, c.ApplyAlerts(NOW, node, epoch, TENANT, (alert(),), (), notices(["mail"]))) is True
        assert await store.count_jobs(JobQuery(TENANT)) == 2
    finally:
        await store.stop()


async def test_a_node_that_leaves_takes_its_report_with_it_and_one_that_is_fenced_does_not(store: Store):
    nodes = [await one(store, c.StartNode(NOW, name)) for name in ("leaves", "gone")]
    for node, name in zip(nodes, ("leaves", "gone"), strict=True):
        await one(store, c.ReportNode(NOW, node, NodeFacts(name=name)))
    await one(store, c.StopNode(NOW, nodes[0]))
    await one(store, c.FenceNodes(NOW, (nodes[1],)))
    assert [report.node for report in await store.list_node_reports(10) if report.node in nodes] == [nodes[1]]
