"""`duetime alert channel …`: where notices of alerts are sent."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import Json, client_of, segment
from duetime.cli.output import print_json, print_line, print_message, print_table, when

TEST_SECONDS = 40.0  # longer than an attempt of a notice may take
PAUSE_SECONDS = 0.25

app = typer.Typer(no_args_is_help=True, help="Alert channels: where notices of alerts are sent.")

Name = Annotated[str, typer.Argument(help="The channel's name, which alert rules refer to.")]


@app.command("list")
def list_channels(context: typer.Context, as_json: Json = False) -> None:
    """List the alert channels, without their tokens.

    \b
    duetime alert channel list
    """
    answer = client_of(context).get("/alert-channels")
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["name"], it["kind"], it["shown"], when(it["created_at"]), it["created_by"]) for it in answer["channels"]
    ]
    print_table(("name", "kind", "sent to", "added", "by"), rows, "no alert channels")


@app.command()
def add(
    context: typer.Context,
    name: Name,
    url: Annotated[
        str, typer.Argument(help="Its URL, or - for standard input: other users of the machine can see an argument.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(help="webhook: our own signed request; apprise: a service such as Slack. By default by the URL."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add an alert channel, or change its URL. It can't be read back: it has tokens.

    \b
    duetime alert channel add ops https://example.com/hooks/alerts
    echo "slack://TokenA/TokenB/TokenC/#alerts" | duetime alert channel add slack -
    echo "mailtos://user:password@example.com?to=ops@example.com" | duetime alert channel add mail -
    """
    if url == "-":
        url = sys.stdin.readline().strip()
        if not url:
            raise BadUsage("there is no URL on standard input")
    answer = client_of(context).request("PUT", f"/alert-channels/{segment(name)}", body={"url": url, "kind": kind})
    if as_json:
        print_json(answer)
    else:
        print_line(f"{answer['name']} is {answer['kind']} {answer['shown']}; try it: duetime alert channel test {name}")


@app.command()
def remove(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Remove an alert channel. Notices to it fail from then on.

    \b
    duetime alert channel remove slack
    """
    print_message(client_of(context).request("DELETE", f"/alert-channels/{segment(name)}"), as_json)


@app.command("test")
def send_test(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Send a test notice, and wait until it has arrived or failed.

    \b
    duetime alert channel test slack
    """
    client = client_of(context)
    job_id = client.post(f"/alert-channels/{segment(name)}/test", {})["job_id"]
    execution = _end_of(client, job_id)
    if as_json:
        print_json({"name": name, "job_id": job_id, "execution": execution})
    if execution is None:
        raise CommandFailed(f"no node has sent it within {TEST_SECONDS:g} s; see: duetime job show {job_id}")
    if execution["state"] != "COMPLETED":
        raise CommandFailed(f"it was not sent: {execution['error_message'] or execution['state']}")
    if not as_json:
        print_line(f"sent to {name}")


def _end_of(client: Any, job_id: str) -> dict[str, Any] | None:
    """Returns the notice's execution after its first attempt; None if there was none in time."""
    until = time.monotonic() + TEST_SECONDS
    while time.monotonic() < until:
        found = client.get("/executions", {"job_id": job_id, "limit": 1})["executions"]
        if found and found[0]["state"] not in ("QUEUED", "RUNNING"):
            return dict(found[0])
        time.sleep(PAUSE_SECONDS)
    return None
