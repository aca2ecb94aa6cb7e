"""The progress of a long command, if stderr is a terminal."""

from __future__ import annotations

import sys
from typing import Any

from duetime.cli.output import stderr


class Progress:
    """`what`: the unit of the number, such as jobs."""

    def __init__(self, what: str) -> None:
        from rich.progress import Progress as Bar
        from rich.progress import TextColumn, TimeElapsedColumn

        columns = (TextColumn(f"{{task.completed:,}} {what} read"), TimeElapsedColumn())
        self._bar = Bar(*columns, console=stderr(), disable=not sys.stderr.isatty())
        self._task: Any = None

    def __enter__(self) -> Progress:
        self._task = self._bar.add_task("", total=None)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, seen: int) -> None:
        self._bar.update(self._task, completed=seen)
