"""`duetime connection …`: databases that SQL jobs may use."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Json, client_of, segment
from duetime.cli.output import print_json, print_line, print_message, print_table, when

app = typer.Typer(no_args_is_help=True, help="Databases that SQL jobs may use.")

Name = Annotated[str, typer.Argument(help="Its name in SQL jobs.")]


@app.command("list")
def list_connections(context: typer.Context, as_json: Json = False) -> None:
    """List the connections, without their passwords.

    \b
    duetime connection list
    """
    answer = client_of(context).get("/connections")
    if as_json:
        print_json(answer)
        return
    rows = [(it["name"], it["shown"], when(it["created_at"]), it["created_by"]) for it in answer["connections"]]
    print_table(("name", "database", "registered", "by"), rows, "no connection is registered")


@app.command()
def put(
    context: typer.Context,
    name: Name,
    url: Annotated[
        str, typer.Argument(help="Its URL, or - for standard input: other users of the machine can see an argument.")
    ],
    as_json: Json = False,
) -> None:
    """Register a database, or change its URL.

    \b
    duetime connection put reports sqlite:///reports.db
    echo "postgresql://app:secret@db.example:5432/app" | duetime connection put app -
    """
    if url == "-":
        url = sys.stdin.readline().strip()
        if not url:
            raise BadUsage("there is no URL on standard input")
    answer = client_of(context).request("PUT", f"/connections/{segment(name)}", body={"url": url})
    if as_json:
        print_json(answer)
    else:
        print_line(f"{answer['name']} is {answer['shown']}")


@app.command()
def remove(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Remove a database. Jobs that use it fail from then on.

    \b
    duetime connection remove reports
    """
    print_message(client_of(context).request("DELETE", f"/connections/{segment(name)}"), as_json)
