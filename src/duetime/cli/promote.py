"""`duetime promote`: moves a SQLite node to PostgreSQL, with a progress bar and a comparison at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import Json
from duetime.cli.output import print_json, print_line, print_table, stderr

STOP_SLACK_SECONDS = 20.0  # in addition to the time that the settings give a node to stop
INTERRUPTED = 130


def promote(
    to: Annotated[str | None, typer.Option(help="postgresql://user:password@host/database: the target.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of the SQLite database.")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: stop a running node, migrate an older database.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo a promotion: nodes may start on the folder again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move a SQLite node to PostgreSQL: jobs, history, keys, and executions that have not ended.

    A node that runs on the folder is stopped first. Then the folder is marked, and no node starts on it again.
    The command may be interrupted at any point, and run again.

    \b
    duetime promote --to postgresql://user:password@host/duetime
    duetime promote --data /var/lib/duetime --to postgresql://user@host/duetime --yes
    duetime promote --undo --data /var/lib/duetime --to postgresql://user@host/duetime
    """
    if to is not None and not to.startswith(("postgresql://", "postgres://")):
        raise BadUsage("--to must begin with postgresql://, such as postgresql://user:password@host:5432/duetime")
    if to is None and not undo:
        raise BadUsage("the target is missing: duetime promote --to postgresql://user:password@host/duetime")
    if to is not None and "@" in to.partition("//")[2].partition("/")[2].partition("?")[0]:
        raise BadUsage("--to: a / in a password must be written %2F, a @ must be written %40")  # the URL is not shown
    from duetime.settings.loading import load

    settings = load({"DATA": data})
    stop_seconds = settings.dispatcher_drain_timeout + settings.http_shutdown_timeout
    folder = settings.data
    with _Person(yes) as person:
        done = _run(folder, to, person, stop_seconds + STOP_SLACK_SECONDS, undo)
    if undo:
        _print_undone(folder, done, as_json)
    else:
        _print_outcome(folder, done, as_json)


def _run(folder: Path, to: str | None, person: _Person, stop_seconds: float, undo: bool) -> Any:
    import asyncio

    from duetime.operate.promote import Promotion, PromotionFailed
    from duetime.store import StoreUnusable

    promotion = Promotion(folder, to, person, stop_seconds)
    try:
        return asyncio.run(promotion.undo() if undo else promotion.run())
    except (PromotionFailed, StoreUnusable, OSError) as error:
        raise CommandFailed(str(error)) from None
    except KeyboardInterrupt:
        raise CommandFailed("interrupted; run it again to go on", exit_code=INTERRUPTED) from None


class _Person:
    """The operator: sees messages on stderr, and answers questions on the terminal."""

    def __init__(self, yes: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._yes = yes
        self._console = stderr()
        columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self._console, disable=not sys.stderr.isatty())
        self._task: Any = None

    def __enter__(self) -> _Person:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False)

    def confirm(self, question: str) -> bool:
        if self._yes:
            return True
        if not sys.stdin.isatty():
            raise CommandFailed(f"{question} There is no terminal to answer on; use --yes.")
        return typer.confirm(question, err=True)

    def begin(self, rows: int) -> None:
        self._task = self._bar.add_task("", total=rows)
        self._bar.start()

    def advance(self, rows: int) -> None:
        self._bar.advance(self._task, rows)


def _print_outcome(folder: Path, outcome: Any, as_json: bool) -> None:
    from duetime.vault.key_file import FILE_NAME

    start = "duetime serve --database-url postgresql://…"
    if as_json:
        print_json(
            {
                "promotion_id": outcome.promotion_id, "data": str(folder), "target": outcome.target,
                "was_complete": outcome.was_complete, "seconds": round(outcome.seconds, 3),
                "checks": [check._asdict() for check in outcome.checks], "start_with": start,
            }
        )  # fmt: skip
        return
    rows = [(check.what, _shown(check.source), _shown(check.target)) for check in outcome.checks]
    print_table(("compared", str(folder), outcome.target), rows, "")
    print_line(
        f"{folder} was already promoted to {outcome.target}; there was nothing left to do."
        if outcome.was_complete
        else f"Both sides are equal: {folder} is now in {outcome.target}, after {outcome.seconds:.1f} s."
    )
    print_line(f"Start a node with: {start} (the URL of --to). No node starts on {folder} any more.")
    if (keys := folder / FILE_NAME).exists():
        print_line(
            f"Secrets stay encrypted: set ENCRYPTION_KEYS of the nodes to the keys in {keys}, separated by commas."
        )


def _print_undone(folder: Path, target: str, as_json: bool) -> None:
    if as_json:
        print_json({"data": str(folder), "target": target, "undone": True})
    else:
        print_line(
            f"Undone: {folder} is no longer marked as promoted to {target}. Start with: duetime serve --data {folder}"
        )


def _shown(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
