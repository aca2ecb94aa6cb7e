"""/api/v1/alert-rules: what is watched, and who is told. Defaults hold without being stored."""

from __future__ import annotations

import re

from litestar import Controller, Response, delete, get, post, put
from msgspec.structs import asdict, replace

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant
from duetime.domain.alert_notices import trial_jobs
from duetime.domain.alert_rules import MOST_RULES, NAME, AlertRule, check_rule
from duetime.domain.audit import entry
from duetime.domain.commands import PutAlertRule, RemoveAlertRule
from duetime.domain.default_alerts import DEFAULT_NAMES, rules_of
from duetime.domain.errors import Conflict, Forbidden, InvalidRequest, no_alert_rule
from duetime.domain.identity import Caller, Right, is_operator
from duetime.domain.ids import is_id
from duetime.ports.store import AlertRuleRecord
from duetime.wire.alerts import (
    AlertRuleList,
    AlertRuleMessage,
    AlertRuleRequest,
    AlertRuleTest,
    AlertRuleView,
    EscalationView,
    QuietHoursView,
)

MOST_CHANNELS = 1000
_NAME = re.compile(NAME)


class AlertRuleController(Controller):
    path = "/alert-rules"
    tags = ("alerts",)

    @get("/", summary="All alert rules: the tenant's own, and the defaults", right=Right.ADMIN)
    async def list_alert_rules(self, context: ApiContext, caller: Caller) -> AlertRuleList:
        stored, rules = await _rules(context, caller)
        return AlertRuleList([_view(rule, stored.get(name)) for name, rule in sorted(rules.items())])

    @get("/{name:str}", summary="An alert rule", right=Right.ADMIN)
    async def get_alert_rule(self, context: ApiContext, caller: Caller, name: str) -> AlertRuleView:
        stored, rules = await _rules(context, caller)
        return _view(_find(rules, name), stored.get(name))

    @put("/{name:str}", summary="Add an alert rule, or replace the one of that name", right=Right.ADMIN)
    async def put_alert_rule(
        self, request: AnyRequest, context: ApiContext, caller: Caller, name: str
    ) -> Response[AlertRuleView]:
        wanted = decode(await request.body(), AlertRuleRequest)
        if not _NAME.fullmatch(name):
            raise InvalidRequest.at(
                "/name", "must have 1 to 63 of a-z, 0-9, '.', '_' and '-', and not begin with a sign"
            )
        rule = AlertRule(name, **{field: getattr(wanted, field) for field in wanted.__struct_fields__})
        check_rule(rule)
        if rule.about.is_of_cluster and not is_operator(caller, context.operator_tenant):
            raise Forbidden(
                f"a rule of the kind {rule.kind} is about the whole cluster; only its operator can have one"
            )
        await _check_channels(context, caller, rule)
        rule = replace(rule, scope=await _scope(context, caller, rule.scope))
        now = context.clock.now()
        noted = entry(caller, now, "alert_rule.put", name, None, rule)
        await context.apply(PutAlertRule(now, caller.tenant, rule, caller.user_id, noted))
        return Response(_view(rule.filled(), AlertRuleRecord(caller.tenant, rule, now, caller.user_id)))

    @delete("/{name:str}", summary="Remove an alert rule; a default holds again", status_code=200, right=Right.ADMIN)
    async def remove_alert_rule(self, context: ApiContext, caller: Caller, name: str) -> AlertRuleMessage:
        if name in DEFAULT_NAMES and name not in (await _rules(context, caller))[0]:
            raise Conflict(f"'{name}' is a default, which can't be removed; turn it off with enabled: false")
        noted = entry(caller, context.clock.now(), "alert_rule.remove", name)
        await context.apply(RemoveAlertRule(caller.tenant, name, noted))
        what = "The default of that name holds again." if name in DEFAULT_NAMES else "Its alerts end."
        return AlertRuleMessage(name, f"Alert rule removed. {what}")

    @post("/{name:str}/test", summary="Send a test notice to a rule's channels", status_code=202, right=Right.ADMIN)
    async def test_alert_rule(self, context: ApiContext, caller: Caller, name: str) -> AlertRuleTest:
        rule = _find((await _rules(context, caller))[1], name)
        channels = rule.channels or await _channels(context, caller)
        if not channels:
            raise Conflict("there is no alert channel to send a test to; `duetime alert channel add` adds one")
        now = context.clock.now()
        command = trial_jobs(rule, channels[:20], caller.tenant, now, context.random_bytes(10))
        job_ids = tuple(job.job_id for job in command.jobs)
        noted = entry(caller, now, "alert_rule.test", name, None, {"job_ids": job_ids})
        await context.apply(replace(command, audit=(noted,)))
        context.engine.due_hint(now)
        return AlertRuleTest(name, job_ids, "Test notices created. Their executions tell whether they arrived.")


async def _rules(context: ApiContext, caller: Caller) -> tuple[dict[str, AlertRuleRecord], dict[str, AlertRule]]:
    """Returns the tenant's stored rules, and all of its rules, by name."""
    stored = {it.rule.name: it for it in await context.store.list_alert_rules(caller.tenant, MOST_RULES)}
    operates = is_operator(caller, context.operator_tenant)
    return stored, rules_of((it.rule for it in stored.values()), operates)


def _find(rules: dict[str, AlertRule], name: str) -> AlertRule:
    if name not in rules:
        raise no_alert_rule(name[:64])
    return rules[name]


async def _channels(context: ApiContext, caller: Caller) -> tuple[str, ...]:
    return tuple(it.name for it in await context.store.list_channels(caller.tenant, MOST_CHANNELS))


async def _check_channels(context: ApiContext, caller: Caller, rule: AlertRule) -> None:
    named = {f"/channels/{place}": name for place, name in enumerate(rule.channels)}
    for step, escalation in enumerate(rule.escalate):
        named |= {f"/escalate/{step}/channels/{place}": name for place, name in enumerate(escalation.channels)}
    known = set(await _channels(context, caller)) if named else set()
    for pointer, name in named.items():
        if name not in known:
            raise InvalidRequest.at(pointer, f"there is no alert channel '{name}'; add it first")


async def _scope(context: ApiContext, caller: Caller, scope: str) -> str:
    """Returns the scope with the id of its job, which may be named by its key."""
    if not scope.startswith("job:"):
        return scope
    name = scope.removeprefix("job:")
    find = context.store.get_job if is_id(name) else context.store.get_job_by_key
    record = await find(caller.tenant, name)
    if record is None:
        raise InvalidRequest.at("/scope", f"there is no job '{name[:64]}'")
    return f"job:{record.job_id}"


def _view(rule: AlertRule, stored: AlertRuleRecord | None) -> AlertRuleView:
    hours = rule.quiet_hours
    fields = {name: getattr(rule, name) for name in rule.__struct_fields__} | {
        "escalate": tuple(EscalationView(step.after_seconds, step.channels) for step in rule.escalate),
        "quiet_hours": None if hours is None else QuietHoursView(**asdict(hours)),
    }
    return AlertRuleView(
        **fields, is_default=rule.name in DEFAULT_NAMES,
        changed_at=None if stored is None else instant(stored.changed_at),
        changed_by=None if stored is None else stored.changed_by,
    )  # fmt: skip
