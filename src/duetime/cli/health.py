"""`duetime health`: the health of the server."""

from __future__ import annotations

import typer

from duetime.cli.options import Json, client_of
from duetime.cli.output import print_facts, print_json, state


def health(context: typer.Context, as_json: Json = False) -> None:
    """Show the health of the server, part by part. Exit code 1 if it is not healthy.

    \b
    duetime health
    duetime --url http://127.0.0.1:9000 health --json
    """
    answer = client_of(context).health()
    if as_json:
        print_json(answer)
    else:
        print_facts(
            [
                ("status", state(answer["status"])),
                *((name, state(value)) for name, value in answer["components"].items()),
                ("memory of jobs", f"{answer['memory']['current_bytes'] / 1_048_576:,.0f} MB"),
                ("jobs", f"{answer['jobs']['current_count']:,}"),
            ]
        )
    if answer["status"] != "ok":
        raise typer.Exit(1)
