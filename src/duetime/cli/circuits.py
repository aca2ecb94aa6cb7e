"""`duetime circuits`: targets that keep failing and are not called for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from duetime.cli.options import Json, client_of, segment
from duetime.cli.output import print_json, print_message, print_table, state, when

app = typer.Typer(no_args_is_help=True, help="Targets that keep failing and are not called for a while.")


@app.command("list")
def list_circuits(context: typer.Context, as_json: Json = False) -> None:
    """List targets that failed since they last succeeded: how often in a row, and whether the circuit is open.

    \b
    duetime circuits list
    duetime circuits list --json
    """
    answer = client_of(context).get("/circuits")
    if as_json:
        print_json(answer)
        return
    rows = [
        (it["circuit"], it["url"], state(it["state"]), str(it["failures"]), when(it["opened_at"]),
         when(it["next_probe_at"]))
        for it in answer["circuits"]
    ]  # fmt: skip
    print_table(
        ("circuit id", "url", "state", "failures", "opened", "tried again"), rows, "No target has failed lately."
    )


@app.command()
def close(
    context: typer.Context,
    circuit: Annotated[str, typer.Argument(help="The circuit's id, as `duetime circuits list` shows it.")],
    as_json: Json = False,
) -> None:
    """Close a circuit: its count is reset, and its target is called again. For admins.

    \b
    duetime circuits close 1c0ffee123456789
    """
    print_message(client_of(context).request("DELETE", f"/circuits/{segment(circuit)}"), as_json)
