"""What commands print: JSON for machines, tables for people. All that a server sent is data, never markup.

stdout holds the answer and nothing else; stderr holds progress and failures.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_OF_A_PIPE = 240  # wide enough for every id: what is piped is searched and cut, not looked at

STYLES = {
    "PENDING": "blue",
    "QUEUED": "blue",
    "RUNNING": "cyan",
    "RETRYING": "yellow",
    "PAUSED": "yellow",
    "COMPLETED": "green",
    "FAILED": "red",
    "TIMEOUT": "red",
    "CANCELLED": "dim",
    "SKIPPED": "dim",
    "ok": "green",
    "healthy": "green",
    "degraded": "red",
    "warning": "yellow",
    "problem": "red",
    "trusted": "green",
    "doubtful": "red",
    "lost": "red",
    "CLOSED": "green",
    "OPEN": "red",
    "HALF_OPEN": "yellow",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))

Cell = str | Text | None


def stdout() -> Console:
    """Made at each use: tests and pipes exchange sys.stdout."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """As it is, but for what would steer a terminal; at once, for whoever follows."""
    sys.stdout.write(_CONTROL.sub("\ufffd", text) + "\n")
    sys.stdout.flush()


def print_line(*parts: Cell) -> None:
    stdout().print(Text.assemble(*(plain(part) for part in parts)), soft_wrap=True)


def print_failure(message: str, details: Iterable[str] = ()) -> None:
    console = stderr()
    console.print(Text.assemble(("duetime: ", "red"), plain(message)))
    for detail in details:
        console.print(Text.assemble("  ", plain(detail)))


def print_warning(message: str) -> None:
    stderr().print(Text.assemble(("warning: ", "yellow"), plain(message)))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str) -> None:
    """A row a line. `empty` is the sentence for no rows."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column.endswith("id"), overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    if table.row_count:
        stdout().print(table)
    else:
        print_line(empty)


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """One thing, a fact a line; facts that are missing are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value is not None and str(value) != "":
            table.add_row(name, plain(value))
    stdout().print(table)


def plain(value: Cell) -> Text:
    """Text without markup and without what could move a terminal's cursor or change its colours."""
    if isinstance(value, Text):
        return value
    return Text(_CONTROL.sub("�", value or ""))


def state(value: str | None) -> Text:
    return Text(value or "", style=STYLES.get(value or "", ""))


def when(instant: str | None, now: float | None = None) -> str:
    """`in 5 min`, `3 s ago`: for a list."""
    if instant is None:
        return ""
    seconds = datetime.fromisoformat(instant).timestamp() - (time.time() if now is None else now)
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def exactly(instant: str | None) -> str | None:
    """The instant, and how far away it is: for one thing."""
    return None if instant is None else f"{instant} ({when(instant)})"


def span(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds)} s"


def milliseconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"
