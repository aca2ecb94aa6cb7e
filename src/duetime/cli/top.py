"""`duetime top`: a live view of the cluster in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Json, client_of
from duetime.cli.output import print_json, stdout

REQUEST_SECONDS = 10.0
WIDEST = 140  # of a printed frame: wider panes are further apart, and say no more


def top(
    context: typer.Context,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.5, max=60, help="Seconds between two frames.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.", show_default=False)] = False,
    as_json: Json = False,
) -> None:
    """Watch the cluster: rate, lateness, queues, nodes, the worst jobs and targets, alerts. For admins.

    Keys: s sorts the jobs, / filters, the arrows select a job and Enter opens it, p pauses, ? helps, q quits.

    \b
    duetime top
    duetime top --interval 1
    duetime top --once                 # one frame, for a script or a ticket
    duetime top --json | jq '.jobs[0]'
    """
    from duetime.cli.client import Client
    from duetime.cli.live.gather import Gatherer
    from duetime.cli.live.terminal import is_terminal

    client: Client = client_of(context)
    client.wait_at_most(REQUEST_SECONDS)
    gatherer = Gatherer(client)
    if as_json:
        print_json(gatherer.frame())
        return
    from duetime.cli.live import panes, screen

    if once:
        console = stdout()
        width = min(console.width, WIDEST)
        console.print(panes.once(gatherer.frame(), width), width=width)
        return
    if not is_terminal():
        raise BadUsage("the live view needs a terminal; --once prints one frame, and --json the same for machines")
    gatherer.frame()  # a server that can't be read is told here, and not in the view
    screen.run(gatherer.frame, panes.draw, interval)
