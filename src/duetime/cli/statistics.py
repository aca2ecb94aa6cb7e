"""`duetime stats`: counts of jobs and executions, and how they end."""

from __future__ import annotations

from typing import Any

import typer

from duetime.cli.options import Json, client_of
from duetime.cli.output import milliseconds, print_facts, print_json, print_table


def stats(context: typer.Context, as_json: Json = False) -> None:
    """Show jobs by status, executions by state, what is late, and rates, errors and lateness of the last minutes.

    For admins, of their tenant; for the operator, the rates are those of all tenants. `late` counts what was due more
    than a second ago and has not started. `failed` includes timeouts.

    \b
    duetime stats
    duetime stats --json | jq .metrics.total.\\"5m\\".failure_ratio
    """
    client = client_of(context)
    counts, metrics = client.get("/stats"), client.get("/observability/metrics")
    if as_json:
        print_json({"stats": counts, "metrics": metrics})
        return
    print_facts(
        [
            *((f"jobs {name}", f"{number:,}") for name, number in counts["jobs"].items() if number),
            *((f"executions {name}", f"{number:,}") for name, number in counts["executions"].items() if number),
            ("late", _capped(counts, "late")),
            ("due in the next hour", _capped(counts, "due_next_hour")),
        ]
    )
    rows = [_row("all", window, figures) for window, figures in metrics["total"].items()]
    for kind, windows in metrics["by_type"].items():
        rows.append(_row(kind, "5m", windows["5m"]))
    for tenant, windows in metrics["by_tenant"].items():
        rows.append(_row(f"tenant {tenant}", "5m", windows["5m"]))
    header = ("of", "last", "per second", "ended", "failed", "lateness p50", "p99", "duration p50", "p99")
    print_table(header, rows, "Nothing has ended.")


def _capped(counts: Any, name: str) -> str:
    return f"{counts[name]:,}" + (" or more" if counts[f"{name}_is_capped"] else "")


def _row(name: str, window: str, figures: Any) -> tuple[str, ...]:
    late, took = figures["lateness"], figures["duration"]
    return (
        name, window, f"{figures['per_second']:,.2f}", f"{figures['executions']:,}",
        f"{figures['failed']:,} ({100 * figures['failure_ratio']:.1f} %)",
        milliseconds(late["p50_ms"]), milliseconds(late["p99_ms"]),
        milliseconds(took["p50_ms"]), milliseconds(took["p99_ms"]),
    )  # fmt: skip
