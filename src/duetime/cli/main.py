"""The command line: `duetime …`."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from duetime.settings import BadSetting, is_loopback, load_settings

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Runs jobs in due time.")
out = Console()
err = Console(stderr=True)


@app.callback()
def callback() -> None:
    """Duetime runs jobs in due time."""


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of the database.")] = None,
) -> None:
    """Serve the API and run jobs, until Ctrl-C."""
    from duetime.node import Node
    from duetime.store.sqlite import StoreUnusable
    from duetime.telemetry.logs import configure_logs

    flags = {"HOST": host, "PORT": None if port is None else str(port), "DATA": data}
    try:
        settings = load_settings(flags)
        configure_logs(settings["LOG_LEVEL"].value)
        if not is_loopback(settings["HOST"].value):
            raise BadSetting(
                f"HOST: '{settings['HOST'].value}' is not this machine alone, and this version has no identity yet: "
                "whoever reaches the port could run jobs. Listen on 127.0.0.1."
            )
    except BadSetting as error:
        err.print(f"[red]duetime:[/red] {error}")
        raise typer.Exit(2) from None

    def ready(url: str) -> None:
        out.print(f"Duetime serves [bold]{url}[/bold]  data in {settings['DATA'].value}  Ctrl-C stops it")
        out.print("No identity is set up: whoever can reach this port on this machine is its admin.")
        sys.stdout.flush()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Node(settings).serve(ready))
    except (StoreUnusable, OSError) as error:
        err.print(f"[red]duetime:[/red] {error}")
        raise typer.Exit(1) from None


def main() -> None:
    app()
