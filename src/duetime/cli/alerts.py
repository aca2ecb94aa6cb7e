"""`duetime alert …`: alerts, and the channels that their notices are sent to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from duetime.cli import channels
from duetime.cli.errors import BadUsage
from duetime.cli.options import Json, client_of, segment
from duetime.cli.output import print_json, print_line, print_message, print_table, when

app = typer.Typer(no_args_is_help=True, help="Alerts, their rules, and where their notices are sent.")
rule_app = typer.Typer(no_args_is_help=True, help="Add, change and remove alert rules.")
app.add_typer(channels.app, name="channel")
app.add_typer(rule_app, name="rule")

Name = Annotated[str, typer.Argument(help="The rule's name.")]


@app.command("list")
def list_alerts(
    context: typer.Context,
    history: Annotated[bool, typer.Option("--history", help="Show alerts that have resolved, latest first.")] = False,
    rule: Annotated[str | None, typer.Option(help="Only of this rule; with --history.")] = None,
    as_json: Json = False,
) -> None:
    """List what fires, why and since when; with --history, what fired.

    \b
    duetime alert list
    duetime alert list --history --rule failures
    """
    query = {"rule": rule, "limit": 100} if history else {}
    answer = client_of(context).get("/alerts/history" if history else "/alerts", query)
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["state"], it["severity"], it["rule"], when(it["since"]), when(it["resolved_at"]), it["summary"])
        for it in answer["alerts"]
    ]
    print_table(("state", "severity", "rule", "since", "resolved", "why"), rows, "No alert.")


@app.command()
def rules(context: typer.Context, as_json: Json = False) -> None:
    """List the alert rules: your tenant's own, and the defaults.

    \b
    duetime alert rules
    """
    answer = client_of(context).get("/alert-rules")
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["name"], it["kind"], it["scope"], _number(it["threshold"]), _number(it["window_seconds"]),
         _number(it["for_seconds"]), it["severity"], ", ".join(it["channels"]) or "all",
         "on" if it["enabled"] else "off", it["changed_by"] or "default")
        for it in answer["rules"]
    ]  # fmt: skip
    titles = ("name", "kind", "scope", "above", "window s", "for s", "severity", "channels", "state", "by")
    print_table(titles, rows, "no alert rules")


@rule_app.command("set")
def set_rule(
    context: typer.Context,
    name: Name,
    kind: Annotated[str | None, typer.Option(help="What is measured; needed for a new rule.")] = None,
    scope: Annotated[str | None, typer.Option(help="all, tag:name=value, or job:<id or key>.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The alert fires above it.")] = None,
    window: Annotated[float | None, typer.Option(help="Seconds that are looked back.")] = None,
    for_seconds: Annotated[float | None, typer.Option("--for", help="Seconds until it fires.")] = None,
    severity: Annotated[str | None, typer.Option(help="info, warning or critical.")] = None,
    channel: Annotated[list[str] | None, typer.Option("--channel", "-c", help="Who is told. Repeatable.")] = None,
    repeat: Annotated[float | None, typer.Option(help="Seconds until the notice is repeated; 0: never.")] = None,
    enabled: Annotated[bool | None, typer.Option("--on/--off", help="Whether the rule is on.")] = None,
    as_json: Json = False,
) -> None:
    """Add an alert rule, or change the named fields of one. The others keep their values.

    \b
    duetime alert rule set failures --threshold 25 --channel ops
    duetime alert rule set backup-runs --kind not_run --scope job:nightly-backup --window 90000
    duetime alert rule set lateness --off
    """
    client = client_of(context)
    given = {
        "kind": kind, "scope": scope, "threshold": threshold, "window_seconds": window, "for_seconds": for_seconds,
        "severity": severity, "channels": channel, "repeat_seconds": repeat, "enabled": enabled,
    }  # fmt: skip
    changes = {field: value for field, value in given.items() if value is not None}
    known = {it["name"]: it for it in client.get("/alert-rules")["rules"]}.get(name)
    if known is None and kind is None:
        raise BadUsage(f"there is no alert rule '{name}' yet: name its --kind; see docs/reference/alerts.md")
    kept = {} if known is None or (kind and kind != known["kind"]) else _sent(known)
    answer = client.request("PUT", f"/alert-rules/{segment(name)}", body=kept | changes)
    if as_json:
        print_json(answer)
    else:
        print_line(f"alert rule {answer['name']} is {'on' if answer['enabled'] else 'off'}")


@rule_app.command("remove")
def remove_rule(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Remove an alert rule. If it replaced a default, the default holds again.

    \b
    duetime alert rule remove backup-runs
    """
    print_message(client_of(context).request("DELETE", f"/alert-rules/{segment(name)}"), as_json)


@app.command("test")
def send_test(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Send a test notice to the channels of a rule.

    \b
    duetime alert test failures
    """
    print_message(client_of(context).post(f"/alert-rules/{segment(name)}/test"), as_json)


@app.command()
def silences(context: typer.Context, as_json: Json = False) -> None:
    """List the silences that have not ended.

    \b
    duetime alert silences
    """
    answer = client_of(context).get("/silences")
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["silence_id"], it["rule"] or "all", it["subject"] or "all", when(it["ends_at"]), it["created_by"],
         it["reason"])
        for it in answer["silences"]
    ]  # fmt: skip
    print_table(("silence id", "rule", "subject", "ends", "by", "reason"), rows, "no silences")


@app.command()
def silence(
    context: typer.Context,
    seconds: Annotated[float, typer.Argument(help="How long, from now on.")],
    rule: Annotated[str, typer.Option(help="Only alerts of this rule.")] = "",
    subject: Annotated[str, typer.Option(help="Only alerts about this, such as node:a or job:<id>.")] = "",
    reason: Annotated[str, typer.Option(help="Why, for others.")] = "",
    as_json: Json = False,
) -> None:
    """Hold back notices for a time. Alerts still fire and are listed; they are told afterwards if they still fire.

    \b
    duetime alert silence 3600 --reason "database upgrade"
    duetime alert silence 600 --rule node-gone --subject node:b
    """
    body = {"seconds": seconds, "rule": rule, "subject": subject, "reason": reason}
    answer = client_of(context).post("/silences", body)
    if as_json:
        print_json(answer)
    else:
        print_line(f"silence {answer['silence_id']} until {when(answer['ends_at'])}")


@app.command()
def unsilence(
    context: typer.Context,
    silence_id: Annotated[str, typer.Argument(help="The silence's id.")],
    as_json: Json = False,
) -> None:
    """End a silence. Alerts that still fire are told.

    \b
    duetime alert unsilence 0198c0de-1234-7abc-8def-0123456789ab
    """
    print_message(client_of(context).request("DELETE", f"/silences/{segment(silence_id)}"), as_json)


def _sent(rule: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a rule that a request may have."""
    return {field: value for field, value in rule.items() if field not in _SHOWN_ONLY}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


_SHOWN_ONLY = {"name", "is_default", "changed_at", "changed_by"}
