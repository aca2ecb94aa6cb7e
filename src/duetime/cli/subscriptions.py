"""`duetime subscription …`: URLs that receive notifications."""

from __future__ import annotations

from typing import Annotated

import typer

from duetime.cli.options import Json, client_of

app = typer.Typer(no_args_is_help=True, help="URLs that receive notifications.")


@app.command("list")
def list_subscriptions(context: typer.Context, as_json: Json = False) -> None:
    """List the URLs that receive notifications, with their events.

    \b
    duetime subscription list
    """
    from duetime.cli.output import print_json, print_table, when

    answer = client_of(context).get("/subscriptions")
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["subscription_id"], it["url"], ", ".join(it["events"]), when(it["created_at"]), it["created_by"])
        for it in answer["subscriptions"]
    ]
    print_table(("subscription id", "url", "events", "since", "by"), rows, "no URL receives notifications")


@app.command()
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Where notifications are sent.")],
    event: Annotated[
        list[str] | None,
        typer.Option("--event", "-e", help="An event to send notifications of; all, if none is named."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send notifications to a URL: signed requests, tried again until they get through.

    \b
    duetime subscription add https://example.com/hooks/duetime
    duetime subscription add https://example.com/alerts -e execution.failed -e job.paused
    """
    from duetime.cli.output import print_json, print_line, print_warning

    answer = client_of(context).post("/subscriptions", {"url": url, "events": event or []})
    if as_json:
        print_json(answer)
        return
    print_line(f"{answer['subscription_id']} gets notifications of {', '.join(answer['events'])}")
    for warning in answer.get("warnings", ()):
        print_warning(warning)


@app.command()
def remove(
    context: typer.Context,
    subscription: Annotated[str, typer.Argument(help="The subscription's id.")],
    as_json: Json = False,
) -> None:
    """Tell a URL no more.

    \b
    duetime subscription remove 0198c0de-1234-7abc-8def-0123456789ab
    """
    from duetime.cli.output import print_json, print_line
    from duetime.client.calls import segment

    answer = client_of(context).request("DELETE", f"/subscriptions/{segment(subscription)}")
    if as_json:
        print_json(answer)
        return
    print_line(answer["message"])
