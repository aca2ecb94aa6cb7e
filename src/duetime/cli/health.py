"""`duetime health`: the health of the server."""

from __future__ import annotations

from typing import Any

import typer

from duetime.cli.options import Json, client_of
from duetime.cli.output import print_facts, print_json, state


def health(context: typer.Context, as_json: Json = False) -> None:
    """Show the health of the node that responds: its parts, role and lease, and the jobs. Exit code 1 if it is not ok.

    degraded: it works, with a problem. unhealthy: it can't work. The last line says whether a load balancer gets a 200.

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
                *_node(answer.get("node") or {}),
                ("memory of jobs", f"{answer['memory']['current_bytes'] / 1_048_576:,.0f} MB"),
                ("jobs", f"{answer['jobs']['current_count']:,}"),
                *((f"jobs {name}", f"{number:,}") for name, number in _by_status(answer).items() if number),
                ("takes requests", "yes" if answer.get("takes_traffic", True) else "no: it responds 503"),
            ]
        )
    if answer["status"] != "ok":
        raise typer.Exit(1)


def _node(node: dict[str, Any]) -> list[tuple[str, str]]:
    if not node:
        return []
    does = ", housekeeping" if node["runs_housekeeping"] else ""
    return [
        ("node", f"{node['name']}, version {node['version']}"),
        ("roles", ", ".join(node["roles"])),
        ("lease", f"{node['standing']}, term {node['term']}, {node['owned_shards']} shards{does}"),
        ("event loop", f"{node['loop_lag_ms']:,.0f} ms late at most"),
    ]


def _by_status(answer: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = answer["jobs"].get("by_status") or {}
    return found
