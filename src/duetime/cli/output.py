"""Output of commands: JSON for machines, tables for people. Text from a server is data, never markup.

The result goes to stdout, and nothing else; progress and failures go to stderr. rich is imported when it is used:
`duetime serve` and shell completion print no table.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDTH_OF_A_PIPE = 240  # wide enough for every id: grep and cut read it

COLOURS = {
    "blue": "PENDING QUEUED",
    "cyan": "RUNNING",
    "green": "COMPLETED ok healthy trusted CLOSED",
    "yellow": "RETRYING PAUSED warning HALF_OPEN degraded",
    "red": "FAILED TIMEOUT unhealthy problem doubtful lost OPEN",
    "dim": "CANCELLED SKIPPED",
}
STYLES = {state: colour for colour, states in COLOURS.items() for state in states.split()}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))

Cell: TypeAlias = "str | Text | None"


def stdout() -> Console:
    """Returns a new console: tests and pipes replace sys.stdout."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Prints text without control characters, and flushes it."""
    sys.stdout.write(_CONTROL.sub("\ufffd", text) + "\n")
    sys.stdout.flush()


def print_line(*parts: Cell) -> None:
    stdout().print(*map(plain, parts), sep="", soft_wrap=True)


def print_message(answer: dict[str, Any], as_json: bool) -> None:
    """Prints the message of a response, or the whole response as JSON."""
    if as_json:
        print_json(answer)
    else:
        print_line(answer["message"])


def print_failure(message: str, details: Iterable[str] = ()) -> None:
    console = stderr()
    console.print("duetime: ", style="red", end="")
    console.print(plain(message))
    for detail in details:
        console.print(" ", plain(detail))


def print_warning(message: str) -> None:
    console = stderr()
    console.print("warning: ", style="yellow", end="")
    console.print(plain(message))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], empty: str) -> None:
    """Prints one line for each row, or the sentence `empty` if there are none."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

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
    """Prints one line for each fact of one thing. Empty facts are left out."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value is not None and str(value) != "":
            table.add_row(name, plain(value))
    stdout().print(table)


def plain(value: Cell) -> Text:
    """Returns text without markup and without control characters, which could move the cursor or change colours."""
    from rich.text import Text

    return value if isinstance(value, Text) else Text(_CONTROL.sub("�", value or ""))


def state(value: str | None) -> Text:
    from rich.text import Text

    return Text(value or "", style=STYLES.get(value or "", ""))


def when(instant: str | None, now: float | None = None) -> str:
    """Returns how far away an instant is, for a list: `in 5 min`, `3 s ago`."""
    if instant is None:
        return ""
    seconds = datetime.fromisoformat(instant).timestamp() - (time.time() if now is None else now)
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def exactly(instant: str | None) -> str | None:
    """Returns an instant and how far away it is."""
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
