"""`duetime cron`: explains schedules. It uses the code that plans jobs, and needs no server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import Json
from duetime.cli.output import exactly, print_facts, print_json, print_table, when

if TYPE_CHECKING:
    from duetime.domain.preview import SchedulePreview

app = typer.Typer(no_args_is_help=True, help="Explain schedules. Needs no server.")

Schedule = Annotated[str, typer.Argument(help="Cron of 5 or 6 fields, @daily, 'every 5m', or an instant.")]
Zone = Annotated[str, typer.Option("--timezone", "-z", help="Time zone, by its IANA name.")]
Gap = Annotated[Literal["shift", "skip"], typer.Option(help="A local time that the clock jumps over.")]
Overlap = Annotated[Literal["first", "last", "both"], typer.Option(help="A local time that comes twice.")]


@app.command("next")
def list_next(
    schedule: Schedule,
    timezone: Zone = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")] = 5,
    after: Annotated[str | None, typer.Option(help="Later than this instant; now if left out.")] = None,
    gap: Gap = "shift",
    overlap: Overlap = "first",
    as_json: Json = False,
) -> None:
    """List the next instants of a schedule.

    \b
    duetime cron next "0 9 * * MON-FRI" --timezone Europe/Berlin
    duetime cron next "0 12 L * *"              # noon on each month's last day
    duetime cron next "30 2 * * *" -z America/New_York -n 3 \\
        --after 2027-03-13T00:00:00Z
    """
    from duetime.domain.instants import format_instant
    from duetime.domain.preview import NO_TIMES

    seen = _preview(schedule, timezone, gap, overlap, after, count)
    instants = seen.instants
    if as_json:
        print_json({"schedule": schedule, "timezone": timezone, "next": [format_instant(at) for at in instants]})
        return
    rows = [(format_instant(at), _local(at, timezone), when(format_instant(at))) for at in instants]
    nothing = NO_TIMES if NO_TIMES in seen.warnings else "it does not fire again"
    print_table(("UTC", timezone, ""), rows, nothing)


@app.command()
def explain(
    schedule: Schedule, timezone: Zone = "UTC", gap: Gap = "shift", overlap: Overlap = "first", as_json: Json = False
) -> None:
    """Explain a schedule in plain language, with its next instant and possible surprises.

    \b
    duetime cron explain "0 0 * * 5#3"          # each month's third Friday
    duetime cron explain "30 2 * * *" --timezone Europe/Berlin
    """
    from duetime.domain.instants import format_instant

    seen = _preview(schedule, timezone, gap, overlap, None, 1)
    first = next(seen.instants, None)
    next_at = None if first is None else format_instant(first)
    if as_json:
        print_json({"description": seen.description, "next": next_at, "warnings": seen.warnings})
        return
    print_facts(
        [("means", seen.description), ("next", exactly(next_at)), *(("note", warning) for warning in seen.warnings)]
    )


def _preview(schedule: str, timezone: str, gap: str, overlap: str, after: str | None, count: int) -> SchedulePreview:
    from duetime.domain.errors import InvalidRequest
    from duetime.domain.instants import parse_instant
    from duetime.domain.job import Dst
    from duetime.domain.preview import preview

    begin = time.time_ns() // 1_000_000
    if after is not None:
        try:
            begin = parse_instant(after)
        except ValueError as error:
            raise BadUsage(f"--after: {error}") from None
    try:
        return preview(schedule, timezone, Dst(gap, overlap), begin, count)  # type: ignore[arg-type]
    except InvalidRequest as error:
        names = {"/timezone": "--timezone: ", "/schedule": ""}
        raise CommandFailed(names.get(error.errors[0].pointer, "") + error.errors[0].message) from None


def _local(at: int, timezone: str) -> str:
    from zoneinfo import ZoneInfo

    from duetime.domain.instants import to_datetime

    return to_datetime(at).astimezone(ZoneInfo(timezone)).strftime("%a %Y-%m-%d %H:%M:%S %z")
