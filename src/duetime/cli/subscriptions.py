"""`duetime subscription …`: URLs that get notifications of events."""

from __future__ import annotations

from typing import Annotated

import typer

from duetime.cli.options import Json, client_of, segment
from duetime.cli.output import print_json, print_line, print_message, print_table, print_warning, when

app = typer.Typer(no_args_is_help=True, help="URLs that get notifications of events.")


@app.command("list")
def list_subscriptions(context: typer.Context, as_json: Json = False) -> None:
    """List the URLs and their events.

    \b
    duetime subscription list
    """
    answer = client_of(context).get("/subscriptions")
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["subscription_id"], it["url"], ", ".join(it["events"]), when(it["created_at"]), it["created_by"])
        for it in answer["subscriptions"]
    ]
    print_table(("subscription id", "url", "events", "since", "by"), rows, "no subscriptions")


@app.command()
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="The URL that notifications are sent to.")],
    event: Annotated[
        list[str] | None,
        typer.Option("--event", "-e", help="An event to send; all, if none is named. May be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send notifications of events to a URL. They are signed, and retried if they fail.

    \b
    duetime subscription add https://example.com/hooks/duetime
    duetime subscription add https://example.com/alerts -e execution.failed -e job.paused
    """
    answer = client_of(context).post("/subscriptions", {"url": url, "events": event or []})
    if as_json:
        print_json(answer)
        return
    print_line(f"subscription {answer['subscription_id']}: {', '.join(answer['events'])}")
    for warning in answer.get("warnings", ()):
        print_warning(warning)


@app.command()
def remove(
    context: typer.Context,
    subscription: Annotated[str, typer.Argument(help="The subscription's id.")],
    as_json: Json = False,
) -> None:
    """Remove a subscription.

    \b
    duetime subscription remove 0198c0de-1234-7abc-8def-0123456789ab
    """
    print_message(client_of(context).request("DELETE", f"/subscriptions/{segment(subscription)}"), as_json)
