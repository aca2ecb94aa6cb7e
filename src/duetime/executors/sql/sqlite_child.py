"""Runs one statement on a SQLite file, in its own process. The statement commits by itself, or has no effect.

SQLite checks whether to stop only between two steps of its virtual machine, and one step may take minutes. So the
statement runs in a process that can be killed: the next process that opens the file rolls back an unfinished statement.
The process also has its own limits on memory, processor time and the size of the files that it writes.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import time
from contextlib import closing, suppress
from typing import Any

import apsw
import apsw.ext

from duetime.executors.script.system import limit_resource, receive_exactly
from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.problems import Failed, blocked, sqlite_refused, timed_out, wrong
from duetime.executors.sql.sqlite_files import Identity, check_opened, enter_folder, find_file, open_files
from duetime.executors.sql.sqlite_wire import GO, LENGTH, Opened, Problem, Request, Result, frame, request_of
from duetime.executors.sql.table import Table
from duetime.executors.sql.words import first_word

LONGEST_VALUE = 16 * 1024 * 1024
_STEPS = 5000  # of the virtual machine, between two checks whether to stop
_BUSY_SECONDS = 0.005
_CPU_SECONDS = 5  # beyond the statement's deadline: there may be no other process left that could kill it
_READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW
_READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW


class Ended(Exception):
    """The node has ended, or no longer wants the statement."""


def run(control: socket.socket) -> None:
    """Receives one request, runs it, and replies with the result or the problem."""
    request = request_of(_receive(control))
    statement = _Statement(request, control)
    signal.signal(signal.SIGTERM, lambda *_: statement.stop())
    reply: Result | Problem
    try:
        limit_process(request)
        reply = statement.run()
    except Failed as problem:
        reply = Problem(problem.error_type, problem.message)
    except (MemoryError, apsw.NoMemError):
        failed = wrong(
            f"The statement needs more memory than the {request.memory_bytes} bytes that it may have "
            "(SQL_SQLITE_MEMORY_LIMIT).",
            "SQLITE_NOMEM",
        )
        reply = Problem(failed.error_type, failed.message)
    control.sendall(frame(reply))


def limit_process(request: Request) -> None:
    """Sets this process's resource limits, which the kernel enforces, and SQLite's limit on its own memory."""
    os.umask(0o077)
    os.environ["SQLITE_TMPDIR"] = "."  # in the tenant's folder; SQLite unlinks a temporary file as it opens it
    limit_resource(resource.RLIMIT_CORE, 0)
    limit_resource(resource.RLIMIT_FSIZE, 2 * request.file_bytes)  # a journal is slightly larger than its file
    limit_resource(resource.RLIMIT_CPU, math.ceil(request.seconds) + _CPU_SECONDS)
    apsw.hard_heap_limit(request.memory_bytes)
    if held := _data_bytes():
        limit_resource(resource.RLIMIT_DATA, held + 3 * request.memory_bytes)  # values are copied on their way to JSON


def _data_bytes() -> int:
    """Returns the bytes that count for RLIMIT_DATA already, or 0 if the kernel does not report them."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


class _Statement:
    def __init__(self, request: Request, control: socket.socket) -> None:
        self._request = request
        self._control = control
        self._deadline = time.monotonic() + request.seconds
        self._is_stopped = False
        self._authorizer = Authorizer(is_vacuum=first_word(request.statement) == "VACUUM")

    def stop(self) -> None:
        """Makes the statement end at its next check."""
        self._is_stopped = True

    def run(self) -> Result:
        request = self._request
        folder = enter_folder(request.folder, request.tenant, make=request.mode == "rwc")
        identity = find_file(folder, request.name, request.mode)
        try:
            if request.mode == "ro" and os.path.exists(f"{request.name}-journal"):
                self._roll_back(identity)
            with closing(self._open(identity, _READ_ONLY if request.mode == "ro" else _READ_WRITE)) as connection:
                self._bound(connection)
                return self._execute(connection)
        except apsw.InterruptError:
            raise timed_out(request.timeout_seconds, "The statement did not end") from None
        except apsw.BusyError as problem:
            if self._must_stop():
                raise timed_out(request.timeout_seconds, f"{request.name} was locked by others, not free") from None
            raise sqlite_refused(problem, request.statement) from None
        except apsw.NoMemError:
            raise
        except apsw.Error as problem:
            if self._authorizer.refused:
                raise blocked(f"{self._authorizer.refused}, which a job can't do.") from None
            raise sqlite_refused(problem, request.statement) from None
        except UnicodeDecodeError:
            raise wrong("A text is no valid UTF-8: read it as CAST(column AS BLOB).", "SQLITE_MISMATCH") from None

    def _open(self, identity: Identity, flags: int) -> apsw.Connection:
        before = open_files()
        connection = apsw.Connection(self._request.name, flags=flags)
        check_opened(before, identity, self._request.name)
        connection.set_busy_handler(self._wait)
        connection.set_progress_handler(self._must_stop, _STEPS)
        return connection

    def _roll_back(self, identity: Identity) -> None:
        """Rolls back a statement that was killed. Without that, a read-only connection could not read the file."""
        with suppress(apsw.Error), closing(self._open(identity, _READ_WRITE)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def _bound(self, connection: apsw.Connection) -> None:
        page_size = connection.pragma("page_size")
        connection.pragma("max_page_count", max(1, self._request.file_bytes // page_size))
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.limit(apsw.SQLITE_LIMIT_WORKER_THREADS, 0)
        connection.authorizer = self._authorizer

    def _execute(self, connection: apsw.Connection) -> Result:
        request = self._request
        found = apsw.ext.query_info(connection, request.statement)
        _check_alone(connection, found)
        if found.bindings_count != len(request.parameters):
            raise wrong(
                f"The statement has {found.bindings_count} parameters, the job gives {len(request.parameters)}.",
                "SQLITE_RANGE",
            )
        self._control.sendall(frame(Opened()))
        if self._control.recv(1) != GO:
            raise Ended
        limits = SqlLimits(rows=request.rows, bytes=request.bytes)
        table = Table(limits, [column[0] for column in found.description])
        for row in connection.execute(found.first_query, request.parameters):
            table.add(row)
        if not found.description:
            table.row_count = connection.changes()
        return Result(table.row_count, table.encode())

    def _must_stop(self) -> bool:
        return self._is_stopped or time.monotonic() >= self._deadline

    def _wait(self, _: int) -> bool:
        """Called while another connection has locked the file. Returns whether to try again."""
        if self._must_stop():
            return False
        time.sleep(_BUSY_SECONDS)
        return True


def _check_alone(connection: apsw.Connection, found: Any) -> None:
    """Raises Failed unless the text is exactly one statement. SQLite itself says where the first statement ends."""
    if not found.has_vdbe:
        raise wrong("The statement is empty.", "SQLITE_MISUSE")
    remaining = found.query_remaining
    while remaining:
        try:
            after = apsw.ext.query_info(connection, remaining)
        except apsw.Error:
            after = None  # it can't be parsed, so it is not just a comment
        if after is None or after.has_vdbe:
            raise wrong("A job is one statement, this has several: make a job of each.", "SQLITE_MISUSE")
        remaining = after.query_remaining


def _receive(control: socket.socket) -> bytes:
    head = receive_exactly(control, LENGTH.size)
    body = receive_exactly(control, LENGTH.unpack(head)[0]) if head else b""
    if not body:
        raise Ended
    return body


# These pragmas only read. A value, if given, says what to read.
_ASKING = frozenset({
    "collation_list", "compile_options", "data_version", "database_list", "foreign_key_check", "foreign_key_list",
    "freelist_count", "function_list", "index_info", "index_list", "index_xinfo", "integrity_check", "module_list",
    "page_count", "pragma_list", "quick_check", "table_info", "table_list", "table_xinfo",
})  # fmt: skip
# These pragmas change the file in ways that its users are allowed anyway.
_DOING = frozenset({"application_id", "incremental_vacuum", "optimize", "user_version", "wal_checkpoint"})
# With a value, these pragmas change the file, this connection or the whole process. They may only be read.
_SETTINGS = frozenset({
    "auto_vacuum", "cache_size", "encoding", "foreign_keys", "journal_mode", "page_size", "schema_version",
    "synchronous",
})  # fmt: skip
_UNSAFE_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})


class Authorizer:
    """Refuses statements that access another SQLite file, or that change the file's settings for its other users.

    SQLite calls it while it prepares a statement. `refused` says what was refused, as the start of a sentence.
    """

    def __init__(self, *, is_vacuum: bool) -> None:
        self._is_vacuum = is_vacuum  # VACUUM attaches a file without a name, and begins its own transaction
        self.refused: str | None = None

    def __call__(self, action: int, first: str | None, second: str | None, _: str | None, __: str | None) -> int:
        self.refused = self.refused or self._refusal(action, first, second)
        return apsw.SQLITE_DENY if self.refused else apsw.SQLITE_OK

    def _refusal(self, action: int, first: str | None, second: str | None) -> str | None:
        match action:
            case apsw.SQLITE_ATTACH if not (self._is_vacuum and first == ""):
                return "VACUUM INTO writes another file" if self._is_vacuum else "ATTACH reaches another file"
            case apsw.SQLITE_DETACH:
                return "DETACH is for files that were attached"
            case apsw.SQLITE_TRANSACTION | apsw.SQLITE_SAVEPOINT if not self._is_vacuum:
                return "A job is one statement in a transaction of its own"
            case apsw.SQLITE_FUNCTION if (second or "").lower() in _UNSAFE_FUNCTIONS:
                return f"The function {(second or '').lower()} runs code from another file"
            case apsw.SQLITE_PRAGMA if not _is_allowed((first or "").lower(), second):
                return f"PRAGMA {(first or '').lower()} changes more than the data"
        return None


def _is_allowed(name: str, value: str | None) -> bool:
    return name in _ASKING or name in _DOING or (name in _SETTINGS and value is None)
