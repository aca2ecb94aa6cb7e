"""One job in the live view: what it will do next, what holds it, and its last executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duetime.cli.output import Cell, exactly, milliseconds, plain, state, when

LINES = 22  # that all but the executions take


def job_pane(job: Mapping[str, Any] | None, job_id: str | None, height: int) -> RenderableType:
    if job is None or job.get("job_id") != job_id:
        return Group(Text(), plain(f"reading job {job_id} … (Esc goes back)"))
    if error := job.get("error"):
        return Group(Text(), plain(f"job {job_id} can't be read: {error} (Esc goes back)"))
    return Group(Text(), _facts(job), _executions(job["executions"], max(3, height - LINES)))


def _facts(job: Mapping[str, Any]) -> RenderableType:
    shown, why = job["shown"], job["why"]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    facts: Sequence[tuple[str, Cell]] = [
        ("job", f"{shown['name']}  {shown['job_id']}"),
        ("status", state(shown["status"])),
        ("schedule", f"{shown['schedule']} ({shown['timezone']})"),
        ("why", why["summary"]),
        *(("held by", hold) for hold in why["holds"]),
        ("next", exactly(shown["next_run_time"])),
        ("last", f"{shown['last_state'] or ''} {exactly(shown['last_run_time']) or ''}".strip()),
        ("last failure", why["last_failure"]),
        ("good, failed", f"{shown['success_count']:,}, {shown['failure_count']:,}"),
        ("lateness", f"p50 {milliseconds(shown['lateness_p50_ms'])}, p99 {milliseconds(shown['lateness_p99_ms'])}"),
        *((f"{it['kind']} objective", _objective(it)) for it in shown.get("objectives") or ()),
    ]
    for name, value in facts:
        if value is not None and str(value):
            table.add_row(name, plain(value))
    return table


def _objective(it: Mapping[str, Any]) -> str:
    reached = "nothing ran yet" if it["compliance"] is None else f"{it['compliance']:g} %"
    return f"{it['target']:g} % over {it['window']}: {reached}, {it['error_budget_left']:.0%} of the error budget left"


def _executions(executions: Sequence[Mapping[str, Any]], most: int) -> RenderableType:
    table = Table(title="last executions", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("scheduled", "state", "lateness", "took", "attempt", "result"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for it in executions[:most]:
        result = it["error_message"] or (f"HTTP {it['http_status']}" if it["http_status"] else it["reason"])
        table.add_row(
            when(it["scheduled_at"]), state(it["state"]), milliseconds(it["lateness_ms"]),
            milliseconds(it["duration_ms"]), str(it["attempt"]), plain(result),
        )  # fmt: skip
    return table
