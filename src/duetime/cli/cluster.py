"""`duetime cluster`: the nodes and shards, as the server sees them."""

from __future__ import annotations

import typer

from duetime.cli.options import Json, client_of
from duetime.cli.output import milliseconds, print_facts, print_json, print_table, state


def cluster(context: typer.Context, as_json: Json = False) -> None:
    """Show living nodes with their roles, leases and shards, and shards without an owner.

    \b
    duetime cluster
    duetime --url http://127.0.0.1:9000 cluster --json
    """
    answer = client_of(context).get("/cluster")
    if as_json:
        print_json(answer)
        return
    rows = [
        (str(node["id"]), node["name"], ", ".join(node["roles"]), milliseconds(node["lease_ends_in_ms"]) or "never",
         str(node["owned_shards"]), "yes" if node["runs_housekeeping"] else "")
        for node in answer["nodes"]
    ]  # fmt: skip
    print_table(("id", "name", "roles", "lease ends in", "shards", "housekeeping"), rows, "No node is alive.")
    unowned = answer["unowned_shards"]
    print_facts(
        [
            ("this node", f"{answer['node']['name']} (id {answer['node']['id']})"),
            ("standing", state(answer["node"]["standing"])),
            ("without an owner", ", ".join(map(str, unowned)) if unowned else f"none of {answer['shards']} shards"),
        ]
    )
