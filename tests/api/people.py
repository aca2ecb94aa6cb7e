"""Servers with authentication, and their users: ann and bob of the tenant acme; ada, its admin; eve, admin of evil."""

from __future__ import annotations

import asyncio
import http.client
import secrets
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from api.person import FAR, OPEN
from cluster.processes import Answer, Client, Receiver, Server, now_ms, wait_until
from duetime.api.auth.tokens import sign
from patience import PATIENCE_SECONDS
from store.postgres_server import fresh_database

ORIGIN = "https://app.example.com"
FREE_ON_SQLITE, FREE_ON_POSTGRESQL = 20, 40  # requests an hour: few, so that none comes back while a test runs

JWT_SECRET = f"jwt/{secrets.token_hex(30)}"
SIGNING_KEY = secrets.token_bytes(24)
ENCRYPTION_KEY = secrets.token_bytes(32)
DATABASE_PASSWORD = f"pw-{secrets.token_hex(12)}"
SETTINGS = {
    "JWT_SECRET": JWT_SECRET,
    "SIGNING_SECRETS": f"whsec_{b64encode(SIGNING_KEY).decode()}",
    "CORS_ORIGINS": f"{ORIGIN},http://localhost:3000",
    "LOG_LEVEL": "debug",
    "ALLOW_SCRIPTS": "true",
    "ALLOW_SQL": "true",
    "SQL_ALLOWED_HOSTS": "public,127.0.0.0/8",
    "HEALTH_FAILURE_THRESHOLD": "1",  # tests make executions fail
    "WORKER_LEASE_SECONDS": "1h",  # a test is its own worker, and sends no heartbeats
}


def on_sqlite(folder: Path, **settings: str) -> Server:
    return Server(
        folder, **SETTINGS, **settings, FREE_REQUESTS_PER_HOUR=str(FREE_ON_SQLITE),
        SQL_SQLITE_FOLDER=str(folder / "sqlite"),
    )  # fmt: skip


def on_postgresql(folder: Path, url: str, **settings: str) -> Server:
    """Returns a node on the database at `url`. Its encryption keys are a setting: it has no folder for a file."""
    return Server(
        folder, **SETTINGS, **settings, DATABASE_URL=url, NODE_NAME=folder.name,
        FREE_REQUESTS_PER_HOUR=str(FREE_ON_POSTGRESQL), SQL_SQLITE_FOLDER=str(folder / "sqlite"),
        ENCRYPTION_KEYS=f"k1:{b64encode(ENCRYPTION_KEY).decode()}",
    )  # fmt: skip


@contextmanager
def database() -> Iterator[str]:
    """`fresh_database` for a fixture that is not asynchronous, with a password that the server ignores."""
    with asyncio.Runner() as runner:
        fresh = fresh_database()
        parts = urlsplit(runner.run(fresh.__aenter__()))
        user, _, where = parts.netloc.rpartition("@")
        user = user if ":" in user else f"{user or 'postgres'}:{DATABASE_PASSWORD}"
        try:
            yield urlunsplit(parts._replace(netloc=f"{user}@{where}"))
        finally:
            runner.run(fresh.__aexit__(None, None, None))


class Frame(NamedTuple):
    """One server-sent event."""

    number: str
    kind: str
    data: str


class Known(Client):
    """A client that sends a credential with each request."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        super().__init__(port)
        self.headers = dict(headers)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        return super().request(method, path, body, {**self.headers, **(headers or {})})

    def at(self, server: Server) -> Known:
        """Returns the same client for another node."""
        return Known(server.client.port, self.headers)

    @contextmanager
    def following(self, path: str = "/events", last: str | None = None) -> Iterator[Iterator[Frame]]:
        """The frames of a stream. When the block begins, the server listens."""
        resume = {} if last is None else {"Last-Event-ID": last}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", f"/api/v1{path}", headers={**self.headers, "Accept": "text/event-stream", **resume})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield _frames(response)
        connection.close()

    def create(self, schedule: str = FAR, url: str = "http://127.0.0.1:9/nobody", **fields: Any) -> str:
        body = {"name": "a job", "schedule": schedule, "payload": {"url": url}, **fields}
        answer = self.post("/jobs", body)
        assert answer.status == 201, answer
        return str(answer.json()["job_id"])

    def executions(self, job_id: str) -> list[dict[str, Any]]:
        answer = self.get(f"/jobs/{job_id}/executions")
        assert answer.status == 200, answer
        found: list[dict[str, Any]] = answer.json()["executions"]
        return found

    def wait_for(self, job_id: str, state: str, seconds: float = 15) -> str:
        """Returns the id of the job's only execution once it has this state."""

        def reached() -> list[str]:
            return [row["execution_id"] for row in self.executions(job_id) if row["state"] == state]

        (found,) = wait_until(reached, seconds, f"an execution of {job_id} is {state}")
        return found

    def wait_for_ends(self, job_ids: Sequence[str], seconds: float = 20) -> list[str]:
        """Returns the ids of the executions of all these jobs once each has ended."""

        def ended(job_id: str) -> list[str]:
            rows = self.executions(job_id)
            return [] if any(row["state"] in OPEN for row in rows) else [row["execution_id"] for row in rows]

        found = [wait_until(partial(ended, job_id), seconds, f"{job_id} has run") for job_id in job_ids]
        return [execution_id for ids in found for execution_id in ids]


def _frames(response: http.client.HTTPResponse) -> Iterator[Frame]:
    fields: dict[str, str] = {}
    while line := response.readline():
        name, colon, value = line.decode().rstrip("\n").partition(": ")
        if colon and name:
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif "event" in fields:
            yield Frame(fields.get("id", ""), fields["event"], fields.get("data", ""))
            fields = {}
        else:  # an id alone: from where a stream that breaks now is resumed
            fields = {}


def token(tenant: str, user_id: str, role: str = "user", tier: str = "enterprise", **claims: Any) -> str:
    named = {"tenant": tenant, "user_id": user_id, "role": role, "tier": tier, **claims}
    return sign(JWT_SECRET, "duetime", "duetime", named, now_ms(), 3600)


class People:
    """Users of new tenants, independent of other tests on the same server."""

    def __init__(self, server: Server, receiver: Receiver | None = None) -> None:
        mark = uuid.uuid4().hex[:8]
        self.server = server
        self._receiver = receiver
        self.acme, self.evil = f"acme-{mark}", f"evil-{mark}"
        self.ann, self.bob = self.as_user(self.acme, "ann"), self.as_user(self.acme, "bob")
        self.ada, self.eve = self.as_user(self.acme, "ada", "admin"), self.as_user(self.evil, "eve", "admin")

    @property
    def receiver(self) -> Receiver:
        assert self._receiver is not None, "this test has an inbox of its own"
        return self._receiver

    def as_user(self, tenant: str, user_id: str, role: str = "user", tier: str = "enterprise", **claims: Any) -> Known:
        signed = token(tenant, user_id, role, tier, **claims)
        return Known(self.server.client.port, {"Authorization": f"Bearer {signed}"})

    def with_key(self, key: str) -> Known:
        return Known(self.server.client.port, {"X-API-Key": key})

    def make_key(self, admin: Known, **fields: Any) -> dict[str, Any]:
        answer = admin.post("/api-keys", {"name": "a key", "tier": "enterprise", **fields})
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.json()
        return made


def listed(client: Client, path: str, field: str, name: Callable[[dict[str, Any]], Any]) -> tuple[list[Any], int]:
    """Returns the rows of a list, and its total."""
    answer = client.get(path)
    assert answer.status == 200, answer
    page = answer.json()
    return sorted(name(row) for row in page[field]), page["total"]
