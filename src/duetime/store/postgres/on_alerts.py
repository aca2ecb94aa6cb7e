"""Commands on alerts: rules, silences, the owner of the alerts, and what a turn of it has decided."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain.alert_rules import check_rules
from duetime.domain.alerts import HISTORY
from duetime.domain.errors import no_alert_rule, no_silence
from duetime.domain.silences import check_silences
from duetime.store.postgres.on_jobs import JobCommands
from duetime.store.postgres.statements import Statements, text_of


class AlertCommands:
    def __init__(self, statements: Statements, jobs: JobCommands) -> None:
        self._db = statements
        self._jobs = jobs

    async def put_alert_rule(self, command: c.PutAlertRule) -> None:
        name = command.rule.name
        ((count, is_known),) = await self._db.rows("count_alert_rules", tenant=command.tenant, name=name)
        check_rules(count, bool(is_known))
        before = await self._db.value("get_alert_rule", tenant=command.tenant, name=name)
        await self._db.run(
            "put_alert_rule", tenant=command.tenant, name=name, rule=text_of(command.rule), now=command.now,
            changed_by=command.changed_by,
        )  # fmt: skip
        self._db.note(command.audit, None if before is None else msgspec.json.decode(before))

    async def remove_alert_rule(self, command: c.RemoveAlertRule) -> None:
        removed = await self._db.value("remove_alert_rule", tenant=command.tenant, name=command.name)
        if removed is None:
            raise no_alert_rule(command.name)
        self._db.note(command.audit, msgspec.json.decode(removed))

    async def add_silence(self, command: c.AddSilence) -> None:
        tenant = command.silence.tenant
        await self._db.run("remove_ended_silences", tenant=tenant, now=command.now)
        check_silences(await self._db.value("count_silences", tenant=tenant))
        await self._db.run("add_silence", **asdict(command.silence))
        self._db.note(command.audit)

    async def remove_silence(self, command: c.RemoveSilence) -> None:
        found = await self._db.value("remove_silence", tenant=command.tenant, silence_id=command.silence_id)
        if found is None:
            raise no_silence(command.silence_id)
        self._db.note(command.audit)

    async def take_alerts(self, command: c.TakeAlerts) -> int:
        await self._db.check_node(command.node)
        return int(await self._db.value("take_alerts", node=command.node))

    async def apply_alerts(self, command: c.ApplyAlerts) -> bool:
        await self._db.check_node(command.node)
        if await self._db.value("get_alerts_epoch") != command.epoch:
            return False
        for alert in command.changed:
            await self._db.run(
                "put_alert", id=alert.alert_id, tenant=command.tenant, rule=alert.rule, is_open=int(alert.is_open),
                at=alert.since if alert.resolved_at is None else alert.resolved_at, alert=text_of(alert),
            )  # fmt: skip
        for alert_id in command.dropped:
            await self._db.run("drop_alert", tenant=command.tenant, id=alert_id)
        if any(not alert.is_open for alert in command.changed):
            await self._db.run("trim_alerts", tenant=command.tenant, kept=HISTORY)
        if command.notices:
            await self._jobs.create_together(command.notices)
        return True
