"""`duetime alert …`: alerts, and the channels that their notices are sent to."""

from __future__ import annotations

import typer

from duetime.cli import channels

app = typer.Typer(no_args_is_help=True, help="Alerts, and where their notices are sent.")
app.add_typer(channels.app, name="channel")
