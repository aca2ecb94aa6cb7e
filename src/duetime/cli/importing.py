"""`duetime job import`: many jobs from a file, streamed to the server in batches, with a progress bar on stderr."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import Json, client_of
from duetime.cli.output import print_json, print_line, print_table, stderr

BATCH_LINES = 50_000
BATCH_BYTES = 64 * 1024 * 1024
LONGEST_LINE = 1024 * 1024  # the server refuses a longer one
PIECE_BYTES = 64 * 1024  # lines are sent in pieces of about this size
MOST_SHOWN = 20

Line = tuple[int, bytes]  # its number in the file, from 1, and its text


def import_jobs(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="NDJSON (one job a line) or a JSON array; - for stdin.")],
    as_json: Json = False,
) -> None:
    """Create many jobs from a file. A bad line does not affect the others; exit code 1 if any was refused.

    Give each job a `key`: then a second import of the same file creates no duplicates.

    \b
    duetime job import jobs.ndjson
    duetime job import jobs.json --json
    my-generator | duetime job import -
    """
    client = client_of(context)
    outcome = _Outcome()
    with _opened(file) as stream, _progress(_size(stream)) as advance:
        lines = _lines(stream, file, advance)
        try:
            while batch := _Batch.begin(outcome.accept(lines)):
                outcome.add(batch, client.post_lines("/jobs:batch", batch.pieces()))
        except CommandFailed as failure:
            raise CommandFailed(failure.message, (*failure.details, *outcome.so_far())) from None
    if as_json:
        print_json({"created_count": len(outcome.created), "refused_count": len(outcome.refused),
                    "created": outcome.created, "refused": outcome.refused})  # fmt: skip
    else:
        outcome.print()
    if outcome.refused:
        raise typer.Exit(1)


class _Batch:
    """The lines of one request, read while they are sent, with their numbers in the file."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.numbers: list[int] = []

    @classmethod
    def begin(cls, lines: Iterator[Line]) -> _Batch | None:
        """Returns a batch that starts with the next line, or None at the end."""
        first = next(lines, None)
        return None if first is None else cls(itertools.chain([first], lines))

    def pieces(self) -> Iterator[bytes]:
        sent, piece = 0, bytearray()
        while len(self.numbers) < BATCH_LINES and sent < BATCH_BYTES:
            number, text = next(self._lines, (0, b""))
            if not number:
                break
            self.numbers.append(number)
            piece += text + b"\n"
            if len(piece) >= PIECE_BYTES:
                sent += len(piece)
                yield bytes(piece)
                piece.clear()
        if piece:
            yield bytes(piece)


class _Outcome:
    def __init__(self) -> None:
        self.created: list[str] = []
        self.refused: list[dict[str, Any]] = []
        self._last_line = 0

    def accept(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Yields the lines to send. A line that is too long for the server is refused here."""
        for number, text in lines:
            if len(text) <= LONGEST_LINE:
                yield number, text
            else:
                message = f"the job has {len(text)} bytes; {LONGEST_LINE} are allowed"
                self.refused.append({"line": number, "error": "PAYLOAD_TOO_LARGE", "message": message, "errors": []})

    def add(self, batch: _Batch, answer: dict[str, Any]) -> None:
        self.created += answer["created"]
        self._last_line = batch.numbers[-1]
        for refused in answer["refused"]:
            index = refused.pop("index")
            self.refused.append({"line": batch.numbers[index], **refused})
        for error, indexes in answer["also_refused"].items():
            message = f"{error}: refused like earlier lines, for which the server gave the reason"
            for index in indexes:
                item = {"line": batch.numbers[index], "error": error, "message": message, "errors": []}
                self.refused.append(item)
        self.refused.sort(key=lambda item: item["line"])

    def so_far(self) -> Iterable[str]:
        if self._last_line:
            yield f"all lines up to {self._last_line:,} were sent: {len(self.created):,} jobs were created"

    def print(self) -> None:

        if self.refused:
            rows = [(str(item["line"]), item["message"]) for item in self.refused[:MOST_SHOWN]]
            print_table(("line", "refused because"), rows, "")
            if len(self.refused) > MOST_SHOWN:
                print_line(f"and {len(self.refused) - MOST_SHOWN:,} more; --json lists them all")
        print_line(f"{len(self.created):,} created, {len(self.refused):,} refused")


def _opened(file: str) -> IO[bytes]:
    if file == "-":
        return io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False))
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise BadUsage(f"{file}: {error.strerror or error}") from None


def _size(stream: IO[bytes]) -> int | None:
    import os
    import stat

    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _progress:  # noqa: N801 (used like a function: with _progress(size) as advance)
    """A progress bar of the bytes read, if stderr is a terminal."""

    def __init__(self, total: int | None) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("importing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=stderr(), disable=not sys.stderr.isatty())
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Callable[[int], None]:
        self._bar.start()
        return lambda count: self._bar.advance(self._task, count)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _lines(stream: IO[bytes], file: str, advance: Callable[[int], None]) -> Iterator[Line]:
    """Yields the lines that hold jobs. A file that is one JSON value is split into lines first."""
    first = stream.peek(512).lstrip()[:1] if isinstance(stream, io.BufferedReader) else b""
    if first == b"[" or file.endswith(".json"):
        yield from _items(stream.read(), file, advance)
        return
    for number, text in enumerate(stream, 1):
        advance(len(text))
        if not text.isspace():
            yield number, text.rstrip(b"\r\n")


def _items(data: bytes, file: str, advance: Callable[[int], None]) -> Iterator[Line]:
    """Yields the jobs of an array, numbered from 1, as if each had its own line."""
    try:
        jobs = json.loads(data)
    except ValueError as error:
        if file.endswith(".json") and b"\n" in data.strip():  # NDJSON in a file named .json
            yield from _lines(io.BytesIO(data), "", advance)
            return
        raise BadUsage(f"{file}: is not JSON: {error}") from None
    jobs = jobs if isinstance(jobs, list) else [jobs]
    for number, job in enumerate(jobs, 1):
        yield number, json.dumps(job, ensure_ascii=False).encode()
    advance(len(data))
