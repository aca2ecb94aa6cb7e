"""A tenant's admin registers forbidden databases: servers in the node's network, or Duetime's own."""

from __future__ import annotations

import secrets
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cluster.database import Database, Postgres
from cluster.processes import Server, wait_until
from executors.script.watching import on_linux
from patience import PATIENCE_SECONDS
from security.hostile_sql import Admin, Canary, node, peak_bytes

pytestmark = [pytest.mark.slow, on_linux]

RUN_A_PROGRAM = "DO $$ BEGIN CREATE TABLE got (line text); COPY got FROM PROGRAM 'id'; END $$"
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    postgres = Postgres()
    yield postgres
    postgres.close()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """A database on a server that trusts all connections from its own machine."""
    with postgres.database() as database:
        yield database


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Not started yet."""
    server = node(tmp_path / "node")
    yield server
    server.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A node with default settings, for attacks that leave it unchanged."""
    server = node(tmp_path_factory.mktemp("shared") / "node").start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node.example "
        "-keyout key.pem -out certificate.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    name = f"role_{secrets.token_hex(4)}"
    database.run(f"CREATE ROLE {name} LOGIN; GRANT ALL ON SCHEMA public TO {name}")
    yield name
    database.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


def has_run_a_program(database: Database) -> bool:
    return bool(database.rows("SELECT 1 FROM pg_class WHERE relname = 'got'"))


HOSTS = [
    "127.0.0.1",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "[::ffff:127.0.0.1]",
    "%6c%6f%63alhost",
    "localhost.",
]


def test_no_server_on_the_nodes_machine_is_ever_called(shared: Server) -> None:
    eve, canary = Admin(shared, "evil"), Canary()
    try:
        urls = [f"postgresql://me@{host}:{canary.port}/db?sslmode=disable" for host in HOSTS]
        jobs = [eve.begin(url, "SELECT 1") for url in urls]
        for host, job_id in zip(HOSTS, jobs, strict=True):
            ended = None if job_id is None else eve.ended(job_id)
            assert ended is None or ended["error_type"] in ("blocked_target", "connection_error"), (host, ended)
        assert canary.calls == 0
    finally:
        canary.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@%2Fvar%2Frun%2Fpostgresql/db",
        "postgresql://me@/db?host=/var/run/postgresql",
        "postgresql://me@public.example,127.0.0.1/db",
        "postgresql://me@public.example/db?host=127.0.0.1",
        "postgresql://me@public.example/db?service=own",
    ],
)
def test_sockets_several_hosts_and_services_are_refused(shared: Server, url: str) -> None:
    answer = Admin(shared, "evil").put("/connections/x", {"url": url})
    assert answer.status == 400


def test_no_program_runs_at_a_database_that_trusts_local_users(database: Database, shared: Server) -> None:
    eve = Admin(shared, "evil")
    for host in ("127.0.0.1", "localhost"):
        eve.run(database.url.replace("127.0.0.1", host), RUN_A_PROGRAM)
    assert not has_run_a_program(database)


def test_a_role_that_can_run_programs_is_refused(database: Database, role: str, server: Server) -> None:
    """The operator has allowed the server. Only the role limits the tenant: one with too many rights is refused."""
    server.start(SQL_ALLOWED_HOSTS=f"127.0.0.1:{database.server.port}")
    eve, url = Admin(server, "evil"), database.url.replace("postgres@", f"{role}@")
    ended = eve.run(database.url, RUN_A_PROGRAM)
    assert ended is not None
    assert (ended["state"], ended["error_type"]) == ("FAILED", "blocked_target")
    assert "SQL_ALLOW_SUPERUSERS" in ended["error_message"]
    for strong in ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files", "postgres"):
        database.run(f"GRANT {strong} TO {role}")
        ended = eve.run(url, RUN_A_PROGRAM)
        assert ended is not None
        assert (ended["error_type"], strong in ended["error_message"]) == ("blocked_target", True)
        database.run(f"REVOKE {strong} FROM {role}")
        wait_until(lambda: not _sessions(database, role), 20, "the role has no session from before", 0.1)
    ended = eve.run(url, RUN_A_PROGRAM)
    assert ended is not None
    assert ended["error_type"] == "sql_error", "the server itself refuses it to a role without rights"
    assert not has_run_a_program(database)
    ended = eve.run(url, "SELECT 1")
    assert ended is not None
    assert ended["state"] == "COMPLETED"


def _sessions(database: Database, role: str) -> bool:
    return bool(database.rows(f"SELECT 1 FROM pg_stat_activity WHERE usename = '{role}' AND state = 'active'"))


def test_the_operator_can_allow_superusers(database: Database, server: Server) -> None:
    server.start(SQL_ALLOWED_HOSTS="localhost", SQL_ALLOW_SUPERUSERS="true")
    ended = Admin(server, "evil").run(database.url.replace("127.0.0.1", "localhost"), "SELECT 1")
    assert ended is not None
    assert ended["state"] == "COMPLETED", ended


def test_nothing_runs_if_sql_is_off(database: Database, server: Server) -> None:
    on = {"SQL_ALLOWED_HOSTS": "127.0.0.0/8", "SQL_ALLOW_SUPERUSERS": "true"}
    server.start(**on)
    eve = Admin(server, "evil")
    assert eve.put("/connections/db", {"url": database.url}).status == 200
    job = {"name": "j", "type": "sql_query", "schedule": "on_demand", "retry_policy": {"max_retries": 0},
           "payload": {"connection": "db", "statement": "CREATE TABLE got (n int)"}}  # fmt: skip
    made = eve.post("/jobs", job).json()["job_id"]
    server.kill()
    server.start(**on, ALLOW_SQL="false")
    eve = Admin(server, "evil")
    for refused in (eve.post("/jobs", job), eve.put("/connections/other", {"url": database.url})):
        assert refused.status == 400
        assert "ALLOW_SQL=true" in refused.body.decode()
    assert eve.post(f"/jobs/{made}/run").status == 202
    ended = eve.ended(made)
    assert (ended["error_type"], "ALLOW_SQL" in ended["error_message"]) == ("blocked_target", True)
    assert not database.rows("SELECT 1 FROM pg_class WHERE relname = 'got'")


def test_duetimes_own_database_is_refused_under_another_name(database: Database, server: Server) -> None:
    server.start(
        DATABASE_URL=database.url, ENCRYPTION_KEYS=f"k1:{'A' * 43}=", SQL_ALLOWED_HOSTS="127.0.0.0/8,localhost",
        SQL_ALLOW_SUPERUSERS="true",
    )  # fmt: skip
    eve = Admin(server, "evil")
    assert eve.run(database.url, "SELECT 1") is None, "it can't even be registered"
    for host in ("localhost", "127.0.0.2"):
        ended = eve.run(database.url.replace("127.0.0.1", host), "CREATE TABLE got (n int)")
        assert ended is not None
        assert ended["error_type"] in ("blocked_target", "connection_error"), ended
    assert not has_run_a_program(database)


def test_values_of_120_megabytes_do_not_fill_the_nodes_memory(database: Database, role: str, server: Server) -> None:
    server.start(SQL_ALLOWED_HOSTS="127.0.0.1")
    eve, url = Admin(server, "evil"), database.url.replace("postgres@", f"{role}@")
    ended = eve.run(url, "SELECT 1")
    assert ended is not None
    assert ended["state"] == "COMPLETED"
    before = peak_bytes(server)
    statements = [
        "SELECT repeat('x', 120000000)",
        "SELECT repeat('x', 120000000)::bytea FROM generate_series(1, 10)",
        "SELECT array_fill(0, ARRAY[15000000])",
        "DO $$ BEGIN FOR i IN 1..1200 LOOP RAISE WARNING '%', repeat('x', 100000); END LOOP; END $$",
    ]
    jobs = [eve.begin(url, statement, timeout_seconds=60) for statement in statements]
    for statement, job_id in zip(statements, jobs, strict=True):
        assert job_id is not None
        ended = eve.ended(job_id)
        assert ended["error_type"] in ("sql_error", "database_busy"), (statement, ended)
        assert "was cut" in ended["error_message"], (statement, ended)
    assert peak_bytes(server) - before < 100 * MEBIBYTE


class AskingServer:
    """A tenant's PostgreSQL that requests the client's certificate, and records it."""

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*certificate)
        self._tls.load_verify_locations(certificate[0])
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self._tls.maximum_version = ssl.TLSVersion.TLSv1_2  # the handshake has the client's certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.seen: list[bool] = []  # whether there was a certificate, by connection
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), caller:
                caller.recv(8)  # the request for TLS
                caller.sendall(b"S")
                with self._tls.wrap_socket(caller, server_side=True) as talk:
                    self.seen.append(talk.getpeercert(binary_form=True) is not None)

    def close(self) -> None:
        self._listener.close()


def test_the_nodes_certificate_is_not_sent_to_a_tenants_database(
    server: Server, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / ".postgresql"
    own.mkdir()
    for file, name in zip(certificate, ("postgresql.crt", "postgresql.key"), strict=True):
        (own / name).write_bytes(file.read_bytes())
        (own / name).chmod(0o600)
    asking = AskingServer(certificate)
    named = {"PGSSLCERT": str(certificate[0]), "PGSSLKEY": str(certificate[1])}
    try:
        for environment in ({"HOME": str(tmp_path)}, named):
            with monkeypatch.context() as patch:  # nodes inherit it
                for name, value in {**environment, "PGPASSWORD": "s3cret"}.items():
                    patch.setenv(name, value)
                server.start(SQL_ALLOWED_HOSTS="127.0.0.1")
            for sslmode in ("prefer", "require"):
                Admin(server, "evil").run(f"postgresql://me@127.0.0.1:{asking.port}/db?sslmode={sslmode}", "SELECT 1")
            server.kill()
        assert asking.seen == [False] * 4
    finally:
        asking.close()
