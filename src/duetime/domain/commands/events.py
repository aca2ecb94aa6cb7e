"""Commands on the log of events."""

from __future__ import annotations

from duetime.domain.commands.base import Command
from duetime.domain.event_log import EventRow


class AddEvents(Command[int | None], frozen=True):
    """Append a page of events to the log. Returns its number; None if this page was added before.

    The number is `now`, or the number after the last page if that is higher. Pages become visible in the order of their
    numbers: whoever has seen a page finds none with a smaller number later. `writer` (a random number of each process)
    and `sequence` (of its pages, from 1 on) identify the page, so that a repeated command adds it once.

    No node is fenced here: these events tell of what other commands have written. A command that comes alone takes no
    lock that a writer that stands still could keep.
    """

    writer: int
    sequence: int
    now: int
    rows: tuple[EventRow, ...]


class PruneEvents(Command[int], frozen=True):
    """Remove up to `limit` rows of the oldest pages: those numbered below `before`, and those beyond `most_bytes`.

    Also forgets writers that added nothing since `before`. Returns how many rows were removed.
    """

    before: int
    most_bytes: int
    limit: int
