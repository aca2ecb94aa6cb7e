"""Alert rules, silences and alerts are promoted, and go on at the target."""

from __future__ import annotations

from pathlib import Path

from duetime.domain import commands as c
from duetime.domain.alert_rules import AlertKind, AlertRule
from duetime.domain.alerts import Alert, AlertState
from duetime.domain.silences import Silence
from duetime.store.sqlite import SqliteStore
from promotion.source import promotion
from samples import NOW, TENANT, new_id, one
from store.postgres_server import patient_store


async def test_rules_silences_and_alerts_are_promoted(source: Path, target: str) -> None:
    rule = AlertRule("own", AlertKind.WAITING, threshold=7)
    silence = Silence(new_id(), TENANT, "own", "", NOW, NOW + 100, "deploy", NOW, "ann")
    alert = Alert(
        new_id(),
        TENANT,
        "own",
        "waiting",
        "",
        "warning",
        AlertState.FIRING,
        NOW,
        9.5,
        "much waits",
        NOW,
        None,
        ("ops",),
    )
    before = SqliteStore(source)
    await before.start()
    node = await one(before, c.StartNode(NOW, "a"))
    epoch = await one(before, c.TakeAlerts(node))
    await before.apply([c.PutAlertRule(NOW, TENANT, rule, "ann"), c.AddSilence(NOW, silence)])
    assert await one(before, c.ApplyAlerts(NOW, node, epoch, TENANT, (alert,))) is True
    await before.stop()
    await promotion(source, target).run()
    store = patient_store(target)
    await store.start()
    try:
        assert [it.rule for it in await store.list_alert_rules(TENANT, 10)] == [rule]
        assert await store.list_silences(TENANT, NOW, 10) == [silence]
        assert await store.list_open_alerts(("", ""), 10) == [alert]
    finally:
        await store.stop()
