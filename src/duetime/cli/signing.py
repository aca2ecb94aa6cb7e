"""`duetime signing-key …`: the key with which receivers verify requests."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Json, client_of
from duetime.cli.output import exactly, print_facts, print_json, print_line

app = typer.Typer(no_args_is_help=True, help="The key with which receivers verify requests: show it, rotate it.")


@app.command()
def show(context: typer.Context, as_json: Json = False) -> None:
    """Show the tenant's signing secret, and the other keys that sign its requests now. For admins.

    \b
    duetime signing-key show
    duetime signing-key show --json | jq -r .secret
    """
    _print(client_of(context).get("/signing-key"), as_json)


@app.command()
def rotate(
    context: typer.Context,
    overlap: Annotated[
        str, typer.Option(help="How long requests are also signed with the previous key; 0s if it leaked.")
    ] = "24h",
    as_json: Json = False,
) -> None:
    """Sign with a new key. Until the overlap ends, each request is also signed with the previous key.

    \b
    duetime signing-key rotate
    duetime signing-key rotate --overlap 7d
    duetime signing-key rotate --overlap 0s
    """
    from duetime.settings.values import duration

    try:
        seconds = int(duration(overlap))
    except ValueError as error:
        raise BadUsage(f"--overlap {error}") from None
    _print(client_of(context).post("/signing-key/rotate", {"overlap_seconds": seconds}), as_json)


def _print(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print_line(answer["secret"])
    print_line("Receivers of this tenant verify the header webhook-signature with this secret.")
    facts = [("version", str(answer["version"]))]
    if answer["rotated_at"]:
        facts.append(("rotated", f"{exactly(answer['rotated_at'])} by {answer['rotated_by']}"))
    for other in answer["others"]:
        end = f"until {exactly(other['until'])}" if other["until"] else "until the operator removes its secret"
        facts.append(("also signs", f"{other['secret']} (version {other['version']}), {end}"))
    print_facts(facts)
