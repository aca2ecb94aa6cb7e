"""A frame as text: figures, nodes, jobs, targets, tenants and alerts. Every state is a word; colours only repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from duetime.cli.live.details import job_pane
from duetime.cli.live.figures import SILENT_SECONDS
from duetime.cli.live.view import KEYS, Row, View, filtered, shown_jobs
from duetime.cli.output import Cell, milliseconds, plain, state

WIDE = 110  # columns from which two panes stand side by side
NARROW = 90
LEAST_JOBS = 3
ROWS = 5  # of a small pane
MOST_NODES = 20
ALL_ROLES = 4
ONCE_ROWS = 20
FRAME_LINES = 14  # that everything but the rows takes


def draw(view: View, frame: Mapping[str, Any], width: int, height: int) -> RenderableType:
    """Returns the whole screen. What does not fit is left out from the bottom, but never the heading."""
    if view.pane == "help":
        return Group(heading(view, frame), Text(), *_help())
    if view.pane == "job":
        return Group(heading(view, frame), job_pane(frame.get("job"), view.job_id, height))
    return Group(heading(view, frame), *overview(view, frame, width, max(LEAST_JOBS, height - FRAME_LINES - 2 * ROWS)))


def once(frame: Mapping[str, Any], width: int) -> RenderableType:
    """Returns one frame for a file or a pipe."""
    return Group(heading(View(), frame), *overview(View(selected=-1), frame, width, ONCE_ROWS))


def heading(view: View, frame: Mapping[str, Any]) -> RenderableType:
    words = [Text("duetime top", style="bold"), plain(str(frame.get("url") or "")), plain(str(frame.get("at") or ""))]
    if view.is_paused:
        words.append(Text("PAUSED (p goes on)", style="reverse"))
    if view.is_typing or view.filter:
        words.append(plain(f"filter: {view.filter}{'_' if view.is_typing else ''}"))
    words.append(Text("q quit  ? help", style="dim"))
    first = Text("  ").join(words)
    first.no_wrap = True
    if error := frame.get("error"):
        old = ", the figures are of the last frame" if frame.get("at") else ""
        return Group(first, Text.assemble(("no new frame: ", "red"), plain(str(error)), old))
    return first if frame.get("at") else Group(first, Text("reading the first frame …"))


def overview(view: View, frame: Mapping[str, Any], width: int, rows: int) -> list[RenderableType]:
    if not frame.get("at"):
        return []
    targets = filtered(view, frame["targets"], "target", "tenant")
    tenants = filtered(view, frame["tenants"], "tenant")
    return [
        figures(frame),
        *_beside(width, nodes_pane(frame["nodes"], width), alerts_pane(frame["alerts"])),
        jobs_pane(view, shown_jobs(view, frame["jobs"]), rows, width),
        *_beside(width, targets_pane(targets), tenants_pane(tenants)),
    ]


def _beside(width: int, left: RenderableType, right: RenderableType) -> list[RenderableType]:
    if width < WIDE:
        return [left, right]
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    grid.add_column(ratio=3)
    grid.add_column(ratio=2)
    grid.add_row(left, right)
    return [grid]


def figures(frame: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _figures(frame):
        table.add_row(name, plain(value))
    return table


def _figures(frame: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    rates = frame["rates"]
    yield "executions", "   ".join(f"{_rate(one['per_second'])}/s ({span})" for span, one in rates.items())
    yield "failed", "   ".join(f"{one['failure_percent']:.3g} % ({span})" for span, one in rates.items())
    for name in ("lateness", "duration"):
        yield name, "   ".join(f"{share} {milliseconds(value) or '-'}" for share, value in frame[name].items())
    yield "stages", "   ".join(f"{name} {_number(value)}" for name, value in frame["stages"].items())


def nodes_pane(nodes: Sequence[Row], width: int) -> RenderableType:
    columns = ("node", "state", "in flight", "queued", "lag", "unwritten", "shards", "roles")
    rows = [
        (node["name"], _node_state(node), f"{node['in_flight']:,}/{node['limit']:,}", f"{node['queued']:,}",
         milliseconds(node["loop_lag_ms"]), f"{node['unwritten']:,}", str(node["shards"]), _roles(node))
        for node in nodes
    ]  # fmt: skip
    return _pane("nodes", columns, rows, "for the operator only", MOST_NODES, 6 if width < NARROW else None)


def _roles(node: Row) -> str:
    return "all" if len(node["roles"]) == ALL_ROLES else ",".join(node["roles"])


def _node_state(node: Row) -> Text:
    if node["silent_seconds"] > SILENT_SECONDS:
        return Text(f"SILENT {node['silent_seconds']:.0f} s", style="red")
    if node["failing"]:
        return Text(f"failing: {', '.join(node['failing'])}", style="red")
    return state(node["standing"])


def alerts_pane(alerts: Sequence[Row]) -> RenderableType:
    rows = [(state(one["severity"]), one["rule"], one["summary"]) for one in alerts]
    return _pane("alerts firing", ("severity", "rule", "what"), rows, "none", ROWS, whole=2)


def jobs_pane(view: View, jobs: Sequence[Row], rows: int, width: int) -> RenderableType:
    selected = min(view.selected, len(jobs) - 1)
    first = max(0, min(selected - rows + 1, len(jobs) - rows))
    lines = [
        (f"{'>' if place == selected else ' '} {job['name']}", f"{job['failures']:,}",
         milliseconds(job["lateness_ms"] or None), job["last_error"] or "", job["tenant"], job["type"])
        for place, job in enumerate(jobs[first : first + rows], first)
    ]  # fmt: skip
    columns = ("  job", *_marked(view, ("failures", "lateness")), "last error", "tenant", "type")
    title = f"worst jobs of the last 5 minutes, by {view.sort} (s sorts, Enter opens)"
    return _pane(title, columns, lines, "none failed, and none was late", rows, 4 if width < NARROW else None)


def _marked(view: View, columns: Sequence[str]) -> list[str]:
    return [f"{name} ↓" if name == view.sort else name for name in columns]


def targets_pane(targets: Sequence[Row]) -> RenderableType:
    rows = [
        (one["target"], one["tenant"], state(one["circuit"] or "ok"), _number(one["running"]), _number(one["waiting"]),
         _number(one["failures"]))
        for one in targets
    ]  # fmt: skip
    columns = ("target", "tenant", "circuit", "running", "waiting", "failures in a row")
    return _pane("targets that fail or keep others waiting", columns, rows, "none", ROWS)


def tenants_pane(tenants: Sequence[Row]) -> RenderableType:
    rows = [
        (
            one["tenant"],
            _rate(one["per_second"]),
            _number(one["running"]),
            _number(one["waiting"]),
            _share(one["share"]),
        )
        for one in tenants
    ]
    columns = ("tenant", "per s", "running", "waiting", "of places")
    return _pane("tenants by places", columns, rows, "nothing runs or waits", ROWS)


def _pane(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    empty: str,
    most: int,
    first: int | None = None,
    whole: int = 0,
) -> RenderableType:
    """Returns a table of up to `most` rows. `first`: only so many columns, as the terminal is narrow.

    `whole`: so many columns are never shortened; the others share what is left.
    """
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, header_style="dim",
        show_edge=False, expand=whole > 0,
    )  # fmt: skip
    if not rows:
        return Group(Text(title, style="bold"), Text(f"  {empty}", style="dim"), Text())
    for place, column in enumerate(columns[:first]):
        ratio = 1 if place >= whole > 0 else None
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=ratio)
    for row in rows[:most]:
        table.add_row(*map(plain, row[:first]))
    rest = len(rows) - most
    return Group(table, Text(f"  and {rest:,} more" if rest > 0 else "", style="dim"))


def _help() -> list[RenderableType]:
    table = Table.grid(padding=(0, 3, 0, 2))
    for key, what in KEYS:
        table.add_row(Text(key, style="bold"), what)
    explained = (
        "executions: attempts that ended, for each second. lateness: from the scheduled instant to the first start.",
        "stages: late (due and not started), waiting and retrying (in the store), queued (claimed by a node), running,",
        "        unwritten (ended, and not written yet).",
        "A tenant saturates the nodes when it has most of the places and others wait.",
    )
    return [table, Text(), *(Text(f"  {line}") for line in explained)]


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
