"""`duetime connection …`: databases that SQL jobs may use."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Json, client_of

app = typer.Typer(no_args_is_help=True, help="Databases that SQL jobs may use.")

Name = Annotated[str, typer.Argument(help="What SQL jobs call it.")]


@app.command("list")
def list_connections(context: typer.Context, as_json: Json = False) -> None:
    """What there is; never a password.

    \b
    duetime connection list
    """
    from duetime.cli.output import print_json, print_table, when

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
        str, typer.Argument(help="Its URL, or - to read it from standard input: what is typed, others here can see.")
    ],
    as_json: Json = False,
) -> None:
    """Register a database, or give it another URL.

    \b
    duetime connection put reports sqlite:///reports.db
    echo "postgresql://app:secret@db.example:5432/app" | duetime connection put app -
    """
    from duetime.cli.output import print_json, print_line
    from duetime.client.calls import segment

    if url == "-":
        url = sys.stdin.readline().strip()
        if not url:
            raise BadUsage("there is no URL on standard input")
    answer = client_of(context).request("PUT", f"/connections/{segment(name)}", body={"url": url})
    if as_json:
        print_json(answer)
        return
    print_line(f"{answer['name']} is {answer['shown']}")


@app.command()
def remove(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Forget a database. Jobs that use it fail from then on.

    \b
    duetime connection remove reports
    """
    from duetime.cli.output import print_json, print_line
    from duetime.client.calls import segment

    answer = client_of(context).request("DELETE", f"/connections/{segment(name)}")
    if as_json:
        print_json(answer)
        return
    print_line(answer["message"])
