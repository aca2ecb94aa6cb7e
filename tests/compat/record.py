"""Freezes the present version for tests of later ones: its schemas, a database with rows, and its HTTP messages.

    PYTHONPATH=tests .venv/bin/python -m compat.record

Run it once for each release, on the commit of the release. It plays the scenario (scenario.py) on SQLite and on
PostgreSQL, and writes tests/compat/VERSION/:

    COMMIT                   the commit of src
    sqlite/, postgres/       schema.sql: a fresh schema; fresh.sql: its rows; rows.sql: rows of a database
                             that was used, instead of fresh.sql
    wire/OPERATION.json      requests and responses: one of each form for each kind of client, in the scenario's order

Files differ between two recordings only in ids, instants, ports and random secrets, unless something has changed.
The secrets belong to a removed node: add the lines that tests/scan.py prints to tests/scan_allowed.txt.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import apsw
import msgspec

import duetime
import duetime.domain.work
import duetime.wire
from compat.dump import postgres_rows, postgres_schema, sqlite_rows, sqlite_schema
from compat.frozen import HERE, Exchange, frames_of
from compat.messages import is_stream, kind_of, request_of, structs_in
from compat.scenario import Authorized, played
from duetime.registry.postgres import PostgresRegistry
from duetime.store.postgres.connections import Address
from duetime.store.postgres.schema import migrate
from duetime.store.sqlite.connection import FILE_NAME
from duetime.store.sqlite.connection import migrate as migrate_sqlite
from store.postgres_server import connected, fresh_database

LONGEST_TEXT = 2000  # a longer text was sent to be refused for its size: it is recorded shortened
# The number of polls and reports of a worker depends on timing. The first of each is recorded.
PROBES: dict[str, dict[str, Callable[[Any, Any], Any]]] = {
    "worker_poll": {"an assignment": lambda sent, got: got.get("assignments")},
    "worker_report": {
        "nothing but the heartbeat": lambda sent, got: not (sent.keys() & {"ended", "notes", "unbegun"}),
        "a result": lambda sent, got: any("result" in end for end in sent.get("ended", ())),
        "an error": lambda sent, got: _has_end(sent, "function_error"),
        "a rejection": lambda sent, got: _has_end(sent, "rejected"),
        "a retry": lambda sent, got: any("retry_after_seconds" in end for end in sent.get("ended", ())),
        "a log": lambda sent, got: any("text" in note for note in sent.get("notes", ())),
        "progress": lambda sent, got: any("progress" in note for note in sent.get("notes", ())),
        "a cancellation": lambda sent, got: got.get("cancel"),
    },
}


def _has_end(sent: Any, error_type: str) -> bool:
    return any(end.get("error_type") == error_type for end in sent.get("ended", ()))


def main() -> None:
    if subprocess.run(["git", "status", "--porcelain", "src"], capture_output=True, check=True).stdout:
        sys.exit("src has changes that are not committed: what is frozen must have a commit")
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%H", "--", "src"], capture_output=True, text=True, check=True
    ).stdout
    folder = HERE / duetime.__version__
    shutil.rmtree(folder, ignore_errors=True)
    write(folder / "COMMIT", commit)
    with tempfile.TemporaryDirectory(prefix="duetime-compat-") as temporary:
        Path(temporary).chmod(0o755)
        exchanges = record_sqlite(folder / "sqlite", Path(temporary, "sqlite"))
        cluster = asyncio.run(record_postgres(folder / "postgres", Path(temporary, "postgres")))
    messages = [*selected(exchanges), *cluster]
    if unseen := sorted(all_structs() - structs_of(messages)):
        sys.exit(f"no message has a {', '.join(unseen)}: add a step to the scenario that sends one")
    for operation, found in sorted(by_operation(messages).items()):
        text = json.dumps(msgspec.to_builtins(found), indent=1, sort_keys=True, ensure_ascii=False)
        write(folder / "wire" / f"{operation}.json", text.replace(str(HERE), "tests/compat") + "\n")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


# Databases


def record_sqlite(folder: Path, temporary: Path) -> list[Exchange]:
    with closing(apsw.Connection(":memory:")) as fresh:
        migrate_sqlite(fresh)
        write(folder / "schema.sql", sqlite_schema(fresh))
        write(folder / "fresh.sql", sqlite_rows(fresh))
    with played(temporary, None) as scenario:
        with closing(apsw.Connection(str(temporary / "data" / FILE_NAME), apsw.SQLITE_OPEN_READONLY)) as used, used:
            write(folder / "rows.sql", sqlite_rows(used))
        return named(scenario.recording.exchanges, scenario.raw)


async def record_postgres(folder: Path, temporary: Path) -> list[Exchange]:
    """Returns the parts of responses that differ from SQLite: the state of the cluster."""
    async with fresh_database() as url:
        await migrate(Address(url))
        registry = PostgresRegistry(url)
        await registry.start()
        await registry.stop()
        write(folder / "schema.sql", postgres_schema(url))
        async with connected(url) as connection:
            write(folder / "fresh.sql", await postgres_rows(connection))
    async with fresh_database() as url:
        return await asyncio.to_thread(_play_postgres, folder, temporary, url)


def _play_postgres(folder: Path, temporary: Path, url: str) -> list[Exchange]:
    async def dump() -> str:
        async with connected(url) as connection:
            return await postgres_rows(connection)

    with played(temporary, url) as scenario:
        write(folder / "rows.sql", asyncio.run(dump()))
        found = named(scenario.recording.exchanges, scenario.raw)
    return [
        msgspec.structs.replace(one, step="on PostgreSQL")
        for one in found
        if one.operation == "get_cluster" and one.step == "state"
    ]


# Messages


def named(exchanges: Sequence[Exchange], node: Authorized) -> list[Exchange]:
    """Adds the operation of each, by the paths of the node's own OpenAPI document."""
    document = node.get("/openapi.json").json()
    paths = [
        (operation["operationId"], method.upper(), re.compile(re.sub(r"\\{[^/]+?\\}", "[^/]+", re.escape(path)) + "/?"))
        for path, operations in sorted(document["paths"].items(), key=lambda item: "{" in item[0])
        for method, operation in operations.items()
    ]
    return [msgspec.structs.replace(one, operation=_operation(one.method, one.path, paths)) for one in exchanges]


def _operation(method: str, target: str, paths: Sequence[tuple[str, str, re.Pattern[str]]]) -> str:
    path = target.partition("?")[0]
    fitting = (name for name, wanted, pattern in paths if wanted == method and pattern.fullmatch(path))
    return next(fitting, "other")


def selected(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """The first of each form, and all of the step `reads`. The proxies may record more than the scenario sends."""
    seen: set[Any] = set()
    unprobed = {operation: dict(probes) for operation, probes in PROBES.items()}
    for one in exchanges:
        one = msgspec.structs.replace(one, request=_shortened(one.request), response=_shortened(one.response))
        if one.headers.get("accept") == "text/event-stream" and one.status == 200:
            one.response = _one_of_each(frames_of(one.response))
        if one.sender == "worker" and one.operation in unprobed and one.status == 200:
            probes = unprobed[one.operation]
            if fitting := [name for name, probe in probes.items() if probe(one.request, one.response)]:
                for name in fitting:
                    del probes[name]
                yield msgspec.structs.replace(one, step=", ".join(fitting))
            continue
        names = tuple(sorted(re.findall(r"[?&](\w+)=", one.path)))
        error = one.response["error"] if one.status >= 400 and isinstance(one.response, dict) else ""
        form = (
            one.sender,
            one.operation,
            one.status,
            error,
            names,
            *map(_form, (one.headers, one.request, one.response)),
        )
        if one.step == "reads" or form not in seen:
            seen.add(form)
            yield one
    missing = {name for probes in unprobed.values() for name in probes}
    if missing:
        raise SystemExit(f"the scenario was recorded without {', '.join(sorted(missing))}: record it again")


def all_structs() -> set[str]:
    """The names of all structs in HTTP messages, except those that are base classes."""
    modules = [import_module(f"duetime.wire.{found.name}") for found in iter_modules(duetime.wire.__path__)]
    found = {
        kind.__name__
        for module in [*modules, duetime.domain.work]
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    }
    return found - {"DefinitionView", "JobFields", "Wire"}


def structs_of(exchanges: Sequence[Exchange]) -> set[str]:
    found: set[str] = set()
    for one in exchanges:
        kind, sent = kind_of(one), request_of(one)
        if kind.request is not None and sent is not None:
            found |= {struct.__name__ for struct in structs_in(kind.request(sent))}
        if kind.server is not None and not is_stream(one):
            read = msgspec.json.decode(msgspec.json.encode(one.response), type=kind.server)
            found |= {struct.__name__ for struct in structs_in(read)}
    return found


def _shortened(value: Any) -> Any:
    match value:
        case str():
            return value if "event: " in value else value[:LONGEST_TEXT]
        case dict():
            return {name: _shortened(item) for name, item in value.items()}
        case list():
            return [_shortened(item) for item in value]
        case _:
            return value


def _form(value: Any, path: str = "") -> frozenset[tuple[str, str]]:
    """The paths of all fields, with their types."""
    match value:
        case dict():
            parts = [_form(item, f"{path}/{name}") for name, item in value.items()]
        case list():
            parts = [_form(item, f"{path}/-") for item in value]
        case _:
            parts = []
    return frozenset({(path, type(value).__name__)}).union(*parts)


def _one_of_each(frames: Sequence[str]) -> list[str]:
    """The first frame of each kind of event, by kind."""
    kinds: dict[str, str] = {}
    for frame in frames:
        kinds.setdefault(frame.partition("event: ")[2].partition("\n")[0], frame)
    return [frame for _, frame in sorted(kinds.items())]


def by_operation(exchanges: Sequence[Exchange]) -> dict[str, list[Exchange]]:
    found: dict[str, list[Exchange]] = {}
    for one in exchanges:
        found.setdefault(one.operation, []).append(one)
    return found


if __name__ == "__main__":
    main()
