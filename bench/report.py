"""Shows what was measured: one table of ratios on the terminal, and docs/benchmarks.md with every figure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.processes import ROOT
from bench.results import Kind, Result
from bench.targets import Verdict

PAGE = ROOT / "docs" / "benchmarks.md"
METHOD = ROOT / "bench" / "method.md"  # the last part of the page


class Subject(msgspec.Struct, frozen=True):
    """A table: its title and the figure by which its rows are compared."""

    title: str
    headline: str
    unit: str
    more_is_better: bool = True
    compared: bool = True


TABLES = {
    "w1-single": Subject("W1: creates one by one, 64 connections", "per_second", "creates/s"),
    "w1-batch": Subject("W1: creates in one NDJSON batch", "per_second", "creates/s"),
    "w2": Subject("W2: a burst of webhooks due at one instant", "drain_per_second", "webhooks/s"),
    "w3": Subject("W3: 1,000 jobs due together every second", "p99_ms", "ms late (p99)", more_is_better=False),
    "w3-jitter": Subject(
        "W3: the same jobs spread by jitter", "p99_ms", "ms late (p99)", more_is_better=False, compared=False
    ),
    "w4": Subject("W4: pending jobs at rest", "rss_mb", "MB", more_is_better=False, compared=False),
    "w4-tick": Subject(
        "W4: the cost of a tick as jobs grow", "cpu_percent", "% of a core", more_is_better=False, compared=False
    ),
    "w5": Subject("W5: decisions recorded without the network", "per_second", "executions/s"),
    "functions": Subject(
        "Python functions: no-ops due at one instant, two worker processes", "drain_per_second", "calls/s"
    ),
    "limits": Subject("Limits: creates one by one, 64 connections", "per_second", "creates/s"),
    "pg-limits": Subject("Limits on PostgreSQL: creates one by one, 64 connections", "per_second", "creates/s"),
    "fairness": Subject(
        "Fairness: ten tenants every second, beside one with 20 hosts that hang and 100,000 due at once",
        "p99_ms",
        "ms late (p99)",
        more_is_better=False,
    ),
    "attack": Subject(
        "Attack: ten tenants every second, beside two that attack the node in every way they have",
        "p99_ms",
        "ms late (p99)",
        more_is_better=False,
    ),
    "pg-attack": Subject("On PostgreSQL: attack, the same", "p99_ms", "ms late (p99)", more_is_better=False),
    "pg-fairness": Subject("On PostgreSQL: fairness, the same", "p99_ms", "ms late (p99)", more_is_better=False),
    "pg-batch": Subject("On PostgreSQL: creates in one NDJSON batch", "per_second", "creates/s"),
    "pg-w2": Subject("On PostgreSQL: W2, a burst", "drain_per_second", "webhooks/s"),
    "pg-w3": Subject(
        "On PostgreSQL: W3, every second", "p99_ms", "ms late (p99)", more_is_better=False, compared=False
    ),
    "pg-w5": Subject("On PostgreSQL: W5, decisions", "per_second", "executions/s"),
    "pg-w5-two": Subject("On PostgreSQL: W5, two nodes on this machine", "per_second", "executions/s"),
    "pg-claim": Subject(
        "On PostgreSQL: a claim of 100 runs", "p50_ms", "ms (p50)", more_is_better=False, compared=False
    ),
}

HEADINGS = {
    "per_second": "per second",
    "drain_per_second": "drain, per second",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "first_ms": "first, ms",
    "last_ms": "last, ms",
    "seconds": "seconds",
    "missing": "missing",
    "repeated": "repeated",
    "cpu_percent": "CPU, % of a core",
    "machine_percent": "% of the machine's cores in use",
    "rss_mb": "RSS, MB",
    "rss_restarted_mb": "RSS after a restart, MB",
    "idle_cpu_percent": "idle CPU, % of a core",
    "ready_seconds": "ready after a restart, s",
    "ready_after_kill_seconds": "ready after kill -9, s",
}


def ratio(result: Result, results: Sequence[Result]) -> str:
    """How Duetime stands to this row: a share of a limit, a multiple of a peer."""
    subject = TABLES[result.table]
    ours = next((r for r in results if r.table == result.table and r.kind is Kind.US), None)
    if not subject.compared or result.kind is Kind.US or ours is None:
        return ""
    us, them = ours.figures.get(subject.headline), result.figures.get(subject.headline)
    if not us or not them:
        return ""
    better = us / them if subject.more_is_better else them / us
    return f"{better:.0%} of it" if result.kind is Kind.LIMIT else f"{better:.1f} ×"


def show(results: Sequence[Result], verdicts: Sequence[Verdict]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=130)
    table = Table(title="Duetime beside its peers and its limits, in one run")
    for heading in ("workload", "subject", "figure", "Duetime is"):
        table.add_column(heading, justify="right" if heading == "figure" else "left")
    for key, subject in TABLES.items():
        title = subject.title
        for result in (r for r in results if r.table == key):
            value = result.figures.get(subject.headline)
            figure = f"{_number(value)} {subject.unit}" if value is not None else result.note or "–"
            style = "bold" if result.kind is Kind.US else None
            table.add_row(title, result.subject, figure, ratio(result, results), style=style)
            title = ""
        table.add_section()
    console.print(table)
    for verdict in verdicts:
        console.print(f"  {'[green]holds[/]' if verdict.holds else '[red]FAILS[/]'}  {verdict.text}", highlight=False)


def write(results: Sequence[Result], verdicts: Sequence[Verdict], machine: Machine, command: str) -> None:
    parts = [
        "# Benchmarks",
        "",
        f"Written by `{command}`. Everything below was measured in one run on one machine: compare rows, not machines.",
        "A ratio says how Duetime stands to that row: a share of a bare limit, a multiple of a peer (more is better).",
        "",
        *_verdict_lines(verdicts),
    ]
    for key, subject in TABLES.items():
        rows = [r for r in results if r.table == key]
        if rows:
            parts += ["", f"## {subject.title}", "", *_markdown(rows, results)]
    parts += ["", *machine.lines(), "", METHOD.read_text()]
    PAGE.write_text("\n".join(parts))


def _verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    return ["## What must hold", "", *(f"- {'holds' if v.holds else '**fails**'}: {v.text}" for v in verdicts)]


def _markdown(rows: Sequence[Result], results: Sequence[Result]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row.figures))
    headings = ["", "", *(HEADINGS.get(name, name) for name in columns), "Duetime is"]
    lines = [_line(headings), _line(["---", "---", *("---:" for _ in columns), "---:"])]
    for row in sorted(rows, key=lambda r: list(Kind).index(r.kind)):
        figures = [_number(row.figures.get(name)) for name in columns]
        lines.append(_line([row.subject, row.kind.value, *figures, ratio(row, results)]))
    notes = [f"- {row.subject}: {row.note}." for row in rows if row.note]
    return [*lines, *(["", *notes] if notes else [])]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
