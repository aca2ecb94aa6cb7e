"""What the live view shows of a frame, and what a key changes. Pure: it neither draws nor reads keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Pane = Literal["overview", "job", "help"]
Row = Mapping[str, Any]

SORTS = ("failures", "lateness", "name")
LONGEST_FILTER = 40
MOST_OF_TENANT = 5  # rows of one tenant, if there are others and no filter

KEYS = (
    ("q", "quit (also Ctrl-C)"),
    ("p", "pause: the frame stays as it is; again to go on"),
    ("r", "read a new frame now"),
    ("s", "sort the jobs by the next column: failures, lateness, name"),
    ("/", "filter jobs, targets and tenants by a text; Enter keeps it, Esc drops it"),
    ("up, down", "select a job (also k and j)"),
    ("Enter", "open the selected job: why it waits, and its last executions"),
    ("Esc", "back to the overview, or drop the filter"),
    ("?", "this help"),
)


@dataclass(frozen=True)
class View:
    pane: Pane = "overview"
    sort: str = SORTS[0]
    filter: str = ""
    is_typing: bool = False  # of the filter
    is_paused: bool = False
    selected: int = 0
    job_id: str | None = None  # the job that is open
    is_over: bool = False
    asks_now: bool = False  # for a new frame, or the job that was just opened


def shown_jobs(view: View, jobs: Sequence[Row]) -> list[Row]:
    """Returns the jobs that pass the filter, the worst first.

    Without a filter a tenant has few rows, so that a flood of late jobs hides nobody else's.
    """
    found = sorted(filtered(view, jobs, "name", "tenant", "type"), key=_ORDERS[view.sort])
    if view.filter or len({job["tenant"] for job in found}) < 2:
        return found
    seen = Counter[str]()
    return [job for job in found if _count(seen, job["tenant"]) <= MOST_OF_TENANT]


def _count(seen: Counter[str], tenant: str) -> int:
    seen[tenant] += 1
    return seen[tenant]


_ORDERS: Mapping[str, Callable[[Row], Any]] = {
    "failures": lambda job: (-job["failures"], -(job["lateness_ms"] or 0), job["name"]),
    "lateness": lambda job: (-(job["lateness_ms"] or 0), -job["failures"], job["name"]),
    "name": lambda job: (job["name"], job["job_id"]),
}


def filtered(view: View, rows: Sequence[Row], *fields: str) -> list[Row]:
    """Returns the rows that have the text of the filter in one of the fields."""
    wanted = view.filter.lower()
    return [row for row in rows if any(wanted in str(row.get(field) or "").lower() for field in fields)]


def press(view: View, key: str, jobs: Sequence[Row]) -> View:
    """Returns the view after a key. `jobs`: those of the frame that is shown."""
    view = replace(view, asks_now=False)
    if key == "ctrl-c":
        return replace(view, is_over=True)
    if view.is_typing:
        return _type(view, key)
    if key == "q":
        return replace(view, is_over=True)
    if key == "?":
        return replace(view, pane="overview" if view.pane == "help" else "help")
    if key == "p":
        return replace(view, is_paused=not view.is_paused)
    if key == "r":
        return replace(view, asks_now=True)
    if view.pane != "overview":
        return replace(view, pane="overview", job_id=None) if key == "esc" else view
    return _press_in_overview(view, key, shown_jobs(view, jobs))


def _press_in_overview(view: View, key: str, jobs: Sequence[Row]) -> View:
    selected = min(view.selected, max(0, len(jobs) - 1))
    match key:
        case "s":
            return replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
        case "/":
            return replace(view, is_typing=True)
        case "esc":
            return replace(view, filter="")
        case "up" | "k":
            return replace(view, selected=max(0, selected - 1))
        case "down" | "j":
            return replace(view, selected=min(max(0, len(jobs) - 1), selected + 1))
        case "enter" if jobs:
            return replace(view, pane="job", job_id=jobs[selected]["job_id"], selected=selected, asks_now=True)
    return view


def _type(view: View, key: str) -> View:
    """Returns the view after a key of the filter's text. The first match is selected."""
    match key:
        case "enter":
            return replace(view, is_typing=False)
        case "esc":
            return replace(view, is_typing=False, filter="", selected=0)
        case "backspace":
            return replace(view, filter=view.filter[:-1], selected=0)
    if len(key) == 1 and key.isprintable() and len(view.filter) < LONGEST_FILTER:
        return replace(view, filter=view.filter + key, selected=0)
    return view
