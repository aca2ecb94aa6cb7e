"""How far a long command is, on stderr, if somebody looks."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """`what` follows the number: jobs, entries."""

    def __init__(self, what: str) -> None:
        from rich.progress import Progress as Bar
        from rich.progress import TextColumn, TimeElapsedColumn

        from duetime.cli.output import stderr

        columns = (TextColumn(f"looked at {{task.completed:,}} {what}"), TimeElapsedColumn())
        self._bar = Bar(*columns, console=stderr(), disable=not sys.stderr.isatty())
        self._task: Any = None

    def __enter__(self) -> Progress:
        self._task = self._bar.add_task("", total=None)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, seen: int) -> None:
        self._bar.update(self._task, completed=seen)
