"""`duetime circuits`: targets that fail and are left alone for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from duetime.cli.options import Json, client_of

app = typer.Typer(no_args_is_help=True, help="Targets that keep failing: which are left alone, until when.")


@app.command("list")
def list_circuits(context: typer.Context, as_json: Json = False) -> None:
    """Show targets that failed since they last succeeded: how often in a row, and whether their circuit is open.

    \b
    duetime circuits list
    duetime circuits list --json
    """
    from duetime.cli.output import print_json, print_table, state, when

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
    """Close a circuit at once: its failures are forgotten, and its target is called again. For admins.

    \b
    duetime circuits close 1c0ffee123456789
    """
    from duetime.cli.output import print_json, print_line
    from duetime.client.calls import segment

    answer = client_of(context).request("DELETE", f"/circuits/{segment(circuit)}")
    if as_json:
        print_json(answer)
        return
    print_line(answer["message"])
