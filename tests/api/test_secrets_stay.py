"""Secrets arrive on every route, are sent to their target, and are found nowhere else.

Each secret has a unique text. The test searches for it, plain and encoded, in everything that can be read: responses,
streams, the command line, logs, and the bytes of the database.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import urllib.parse
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import apsw
import asyncpg
import pytest
from typer.testing import CliRunner

from api.people import DATABASE_PASSWORD, ENCRYPTION_KEY, JWT_SECRET, SIGNING_KEY, Known, People
from api.person import FAR
from cluster.processes import Answer, Receiver, Server
from collector import Collector
from duetime.cli.main import app

ENCRYPTED_TABLES = {"public.jobs", "public.connections", "public.alert_channels"}
ODD = ' "q\\u/+%&<é>'  # appended to each secret: characters that every encoding writes differently


class Secrets:
    """Secrets that are created on demand, each with its purpose."""

    def __init__(self) -> None:
        self.made: dict[str, list[tuple[str, bytes]]] = {}  # the forms of each, by purpose

    def new(self, purpose: str) -> str:
        core = f"mk{secrets.token_hex(12)}"
        self.note(purpose, core)
        return core + ODD

    def note(self, purpose: str, core: str | bytes) -> None:
        """A secret that exists already."""
        self.made[purpose] = forms(core if isinstance(core, bytes) else core.encode())

    def found_in(self, data: bytes) -> list[str]:
        """Returns the secrets in the data, and their forms."""
        return [f"{purpose}: {form}" for purpose, made in self.made.items() for form, text in made if text in data]


def forms(core: bytes) -> list[tuple[str, bytes]]:
    """Each text once, with the first form that has it."""
    found: dict[bytes, str] = {}
    for form, text in all_forms(core):
        found.setdefault(text, form)
    return [(form, text) for text, form in found.items()]


def all_forms(core: bytes) -> Iterator[tuple[str, bytes]]:
    """Letters and digits are the same when escaped. Base64 depends on the bytes before."""
    yield "as it is", core
    yield "hexadecimal", core.hex().encode()
    yield "percent-encoded", "".join(f"%{byte:02X}" for byte in core).encode()
    yield "quoted", urllib.parse.quote(core, safe="").encode()
    yield "in JSON", json.dumps(core.decode("latin-1"))[1:-1].encode()
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            sure = encode(bytes(before) + core)[(0, 2, 3)[before] : (before + len(core)) * 8 // 6]
            yield f"base64 ({before})", sure


def test_every_form_of_a_secret_is_found() -> None:
    known = Secrets()
    value = known.new("x")
    for shown in (
        value.encode(), json.dumps({"a": value}).encode(), urllib.parse.quote(value).encode(),
        value.encode().hex().encode(), b64encode(value.encode()), b64encode(f"u:{value}".encode()),
        urlsafe_b64encode(f"me:{value}".encode()),
    ):  # fmt: skip
        assert known.found_in(b"before " + shown + b" after"), shown
    assert not known.found_in(b"nothing of it")


Received = tuple[Mapping[str, str], bytes]  # headers and body


class Echo(BaseHTTPRequestHandler):
    """A target that responds with everything it received, in many encodings."""

    protocol_version = "HTTP/1.1"
    received: list[Received]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).received.append((dict(self.headers.items()), body))
        where, _, key = self.path.partition("?key=")
        value = self.headers.get("X-Secret") or self.headers.get("Authorization") or key
        value = value or json.loads(body)["deep"]["er"]
        data = value.encode()
        echoed = "\n".join(
            [value, json.dumps(value), urllib.parse.quote(value, safe=""), b64encode(data).decode(),
             b64encode(b"user:" + data).decode(), urlsafe_b64encode(b"u:" + data).decode()]
        )  # fmt: skip
        if self.path == "/garbage":
            self.wfile.write(f"{value} is no HTTP\r\n\r\n".encode("latin-1", "replace"))
            self.close_connection = True
            return
        self.send_response(200 if where.rstrip("/") == "/ok" else 500, f"because of {value}")
        self.send_header("X-Echo", value)
        self.send_header("Retry-After", value)
        self.send_header("Set-Cookie", f"secret={value}")
        self.send_header("Content-Length", str(len(echoed.encode())))
        self.end_headers()
        self.wfile.write(echoed.encode())

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def echo() -> Iterator[tuple[str, list[Received]]]:
    """Yields its URL, and the requests that it received."""
    kind = type("Echo", (Echo,), {"received": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", kind.received  # type: ignore[attr-defined]
        finally:
            server.shutdown()


class Scene:
    """Sends all secrets and runs the jobs. Then collects everything that can be read, by source."""

    def __init__(
        self, people: People, url: str, received: list[Received], servers: list[Server], collector: Collector
    ) -> None:
        self.collector = collector
        self.people, self.servers, self._url = people, servers, url
        self.received = received
        self.secrets = Secrets()
        self.sent: dict[str, str] = {}  # sent to the target, by purpose
        self.answers: list[tuple[str, Answer]] = []
        self.jobs: list[str] = []

    def ask(self, client: Known, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Sends a request and stores its response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = client.request(method, path, body, named)
        self.answers.append((f"{method} {path}", answer))
        return answer

    def job(self, purpose: str, path: str = "/ok", schedule: str = "immediate", **fields: Any) -> dict[str, Any]:
        """Returns a request with a secret in a header."""
        self.sent[purpose] = self.secrets.new(purpose)
        return {
            "name": purpose, "schedule": schedule, "retry_policy": {"max_retries": 0}, **fields,
            "payload": {"url": self._url + path, "headers": {"X-Secret": self.sent[purpose]}},
        }  # fmt: skip

    def marked(self, purpose: str, path: str = "/ok", schedule: str = "immediate") -> dict[str, Any]:
        """Returns a request with a marked secret in the body."""
        self.sent[purpose] = self.secrets.new(purpose)
        body = {"plain": "seen by all", "deep": {"er": self.sent[purpose]}}
        return {
            "name": purpose, "schedule": schedule, "retry_policy": {"max_retries": 0},
            "payload": {"url": self._url + path, "body": body, "secret": ["/body/deep/er"]},
        }  # fmt: skip

    # Ways in

    def play(self) -> None:
        ann = self.people.ann
        made = [
            self.ask(ann, "POST", "/jobs", self.job("create")),
            self.ask(ann, "POST", "/jobs/", self.job("create, by the framework")),
            self.ask(ann, "POST", "/jobs", self.job("create, the target fails", "/fail")),
            self.ask(ann, "POST", "/jobs", self.job("create, the target talks nonsense", "/garbage")),
            self.ask(ann, "POST", "/jobs", self.marked("a marked field")),
            self.ask(ann, "POST", "/jobs", self.marked("a marked field, the target fails", "/fail")),
            self.ask(ann, "PUT", "/jobs/by-key/one", self.job("by key")),
        ]
        once = self.job("idempotent")
        made += [self.ask(ann, "POST", "/jobs", once, idempotency_key="once") for _ in range(2)]
        again = {**once, "name": self.secrets.new("under a used idempotency key")}
        assert self.ask(ann, "POST", "/jobs", again, idempotency_key="once").status == 422
        assert [answer.status for answer in made] == [201] * len(made)
        self.jobs += {answer.json()["job_id"]: None for answer in made}
        self._batches()
        self._changes()
        self._work()
        self.people.ada.wait_for_ends(self.jobs)
        self._refusals()
        self._credentials()

    def _batches(self) -> None:
        lines = "\n".join(json.dumps(job) for job in (self.job("a line of NDJSON"), self.marked("a marked line")))
        for body, kind in (
            ([self.job("an item of JSON")], "application/json"),
            (lines.encode(), "application/x-ndjson"),
        ):
            answer = self.ask(self.people.ann, "POST", "/jobs:batch", body, content_type=kind)
            assert answer.json()["refused"] == []
            self.jobs += answer.json()["created"]

    def _work(self) -> None:
        """Secrets of other types of jobs: a script that prints its environment in every form, a database that does not
        exist, a function that returns its arguments."""
        ada = self.people.ada
        echoed = 'printf "%s\\n" "$S"; printf %s "$S" | base64; printf "u:%s" "$S" | base64 >&2; exit "$CODE"'
        password = self.secrets.new("the password of a connection").removesuffix(ODD)
        url = f"postgresql://someone:{password}@127.0.0.1:9/db"
        assert self.ask(ada, "PUT", "/connections/db", {"url": url}).status == 200
        payloads: list[tuple[str, dict[str, Any]]] = [
            ("script", {"script": echoed, "env": {"S": self.secrets.new("the environment of a script"), "CODE": "0"}}),
            ("script", {"script": echoed, "env": {"S": self.secrets.new("that of one that fails"), "CODE": "3"}}),
            ("sql_query", {"connection": "db", "statement": "SELECT $1", "secret": ["/parameters/0"],
                           "parameters": [self.secrets.new("a marked parameter")]}),
            ("python", {"function": "f", "kwargs": {"s": self.secrets.new("a marked argument")},
                        "secret": ["/kwargs/s"]}),
        ]  # fmt: skip
        for type_, payload in payloads:
            body = {"name": type_, "type": type_, "schedule": "immediate", "payload": payload}
            made = self.ask(ada, "POST", "/jobs", {**body, "retry_policy": {"max_retries": 0}})
            assert made.status == 201, made
            self.jobs.append(made.json()["job_id"])
        self._call(ada)
        self._channels(ada)

    def _channels(self, ada: Known) -> None:
        """Alert channels: one that gets its notice, one of apprise that does, and one that apprise can't read."""
        new = lambda purpose: self.secrets.new(purpose).removesuffix(ODD)  # noqa: E731
        where = self._url.removeprefix("http://")
        urls = {
            "hook": f"{self._url}/ok?key={new('the URL of a webhook channel')}",
            "service": f"json://user:{new('the URL of a service')}@{where}/ok",
            "unreadable": f"slack://{new('a URL that apprise can not read')}",
        }
        for name, url in urls.items():
            assert self.ask(ada, "PUT", f"/alert-channels/{name}", {"url": url}).status == 200
            tested = self.ask(ada, "POST", f"/alert-channels/{name}/test")
            assert tested.status == 202, tested
            self.jobs.append(tested.json()["job_id"])
        for refused in (f"syslog://{new('a service that is none')}", f"slack://{new('with a blank')}/a b",
                        f"https://ann:{new('as a password')}@x.example", new("without a scheme")):  # fmt: skip
            assert self.ask(ada, "PUT", "/alert-channels/refused", {"url": refused}).status == 400, refused

    def _call(self, worker: Known) -> None:
        """Acts as a worker. Its responses are not collected: they hold the secrets by design."""
        joined = worker.post("/workers/join", {"name": "w", "functions": ["f"], "slots": 1}).json()["worker_id"]
        polled = worker.post("/workers/poll", {"worker_id": joined, "free": 1, "wait_seconds": 10})
        (held,) = polled.json()["assignments"]
        claim, value = {name: held[name] for name in ("execution_id", "attempt", "token")}, held["kwargs"]["s"]
        assert value.endswith(ODD)
        said = {
            "worker_id": joined, "running": [],
            "notes": [{**claim, "text": f"called with {value}\n", "progress": {"with": value}}],
            "ended": [{**claim, "started_at": 0, "ended_at": 1, "error_type": "function_error",
                       "error_message": f"ValueError: {value}"}],
        }  # fmt: skip
        assert self.ask(worker, "POST", "/workers/report", said).json() == {}

    def _changes(self) -> None:
        """Replaces another secret, which must not stay anywhere either."""
        ann = self.people.ann
        for method, path in (("PUT", "/jobs/{id}"), ("PATCH", "/jobs/{id}"), ("PUT", "/jobs/by-key/{key}")):
            for form in (self.job, self.marked):
                purpose = f"{method} {path}, {form.__name__}"
                key = f"key-{len(self.jobs)}"
                first = {**form(f"before {purpose}", schedule=FAR), "key": key}
                job_id = self.ask(ann, "POST", "/jobs", first).json()["job_id"]
                del self.sent[f"before {purpose}"]
                second = form(purpose, schedule=FAR)
                changed = self.ask(ann, method, path.format(id=job_id, key=key), second)
                assert changed.status == 200, changed
                assert self.ask(ann, "POST", f"/jobs/{job_id}/run").status == 202
                self.jobs.append(job_id)

    def _refusals(self) -> None:
        """A refusal does not quote the request."""
        ann, new = self.people.ann, self.secrets.new
        good = {"url": self._url}
        for payload in (
            {"headers": {"X-Secret": new("with a line break") + "\r\n"}},
            {"headers": {"X-Secret": new("with a blank behind") + " "}},
            {"headers": {"X-Secret": new("outside latin-1") + "\u20ac"}},
            {"headers": {"X-Secret": new("too long") * 300}},
            {"headers": {"X-Secret": new("longer than any") * 1000}},
            {"headers": {"X-Secret": "encrypted:1:" + new("as if encrypted")}},
            {"headers": {"Host": new("in a header of ours")}},
            {"headers": {"not a name": new("under a bad name")}},
            {"headers": {"X-Secret": [new("in a list")]}},
            {"headers": {"X-Secret": {new("as a name in a value"): 1}}},
            {"headers": new("as all headers")},
            {"headers": [new("in place of headers")]},
            {"headers": {"X-Secret": new("with a NUL") + "\0"}},
            {"header": {"X-Secret": new("in an unknown field")}},
            {"body": {"a": new("where the mark points beside")}, "secret": ["/body/b"]},
            {"body": {"a": {"b": new("marked twice")}}, "secret": ["/body/a", "/body/a/b"]},
            {"body": {"a": "encrypted:" + new("as if encrypted, in the body")}, "secret": ["/body/a"]},
            {"body": {"a": new("with a mark that is none")}, "secret": [1]},
        ):
            job = {"name": "refused", "schedule": FAR, "payload": {**good, **payload}}
            for method, path in (
                ("POST", "/jobs"),
                ("PATCH", f"/jobs/{self.jobs[0]}"),
                ("PUT", "/jobs/by-key/refused"),
            ):
                assert self.ask(ann, method, path, job).status == 400, payload
            echoed = self.ask(ann, "POST", "/jobs:batch", json.dumps(job).encode(), content_type="application/x-ndjson")
            assert echoed.json()["refused_count"] == 1, payload
        broken = json.dumps(self.job("in broken JSON"))[:-5].encode()
        del self.sent["in broken JSON"]
        for path in ("/jobs", "/jobs/", "/jobs:batch"):
            self.ask(ann, "POST", path, broken)
        bad_schedule = self.job("beside a bad schedule", schedule="0 0 31 2 *")
        del self.sent["beside a bad schedule"]
        assert self.ask(ann, "POST", "/jobs", bad_schedule).status == 400

    def _credentials(self) -> None:
        people = self.people
        made = people.make_key(people.ada, user_id="ann")
        self.secrets.note("an API key", made["key"].rpartition("_")[2])
        bearer = people.with_key(made["key"])
        assert self.ask(bearer, "GET", "/jobs").status == 200
        for purpose, client in (("ann's token", people.ann), ("ada's token", people.ada)):
            self.secrets.note(purpose, client.headers["Authorization"].rpartition(".")[2])
        for purpose, headers in (
            ("a bad token", {"Authorization": "Bearer {}"}),
            ("a token with a bad signature", {"Authorization": people.ann.headers["Authorization"] + "{}"}),
            ("a password", {"Authorization": "Basic {}"}),
            ("a bad key", {"X-API-Key": "{}"}),
            ("a key with a bad secret", {"X-API-Key": f"dt_{made['key_id']}_{{}}{'a' * 30}"}),
        ):
            core = self.secrets.new(purpose).removesuffix(ODD)
            client = Known(people.server.client.port, {name: value.format(core) for name, value in headers.items()})
            assert self.ask(client, "GET", "/jobs").status == 401
        assert self.ask(people.ann, "GET", "/jobs", x_api_key=made["key"]).status == 401
        assert self.ask(people.ada, "DELETE", f"/api-keys/{made['key_id']}").status == 200

    # Ways out

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Every response of every GET."""
        ada = self.people.ada
        executions = [row["execution_id"] for row in ada.pages("/executions", "executions")]
        assert len(executions) >= len(self.jobs)
        for path, methods in ada.get("/openapi.json").json()["paths"].items():
            if "get" not in methods or path.endswith("/events"):
                continue
            ids = self.jobs if "{job_id}" in path else executions if "{execution_id}" in path else [""]
            for one in ids:
                asked = re.sub(r"{(job|execution)_id}", one, path.removeprefix("/api/v1"))
                asked = asked.replace("/alert-rules/{name}", "/alert-rules/failures")
                assert "{" not in asked
                query = "?verbose=true" if asked == "/health" else "?limit=100" if not one else ""
                for client in (ada, self.people.ann):
                    answer = client.get(asked + query)
                    yield f"GET {asked}", _whole(answer)
        for name, answer in self.answers:
            yield name, _whole(answer)

    def follow(self) -> Iterator[tuple[str, bytes]]:
        ada = self.people.ada
        last = ada.create(name="the last one")
        with ada.following(last="0") as frames:
            seen = []
            for frame in frames:
                seen.append(frame)
                if last in frame.data:
                    break
        assert len(seen) > len(self.jobs)
        yield "the events", repr(seen).encode()
        for job_id in self.jobs:
            for row in ada.executions(job_id):
                with ada.following(f"/executions/{row['execution_id']}/logs") as frames:
                    yield f"log of {job_id}", repr(list(frames)).encode()

    def type_commands(self) -> Iterator[tuple[str, bytes]]:
        server = self.servers[0]
        env = {f"DUETIME_{name}": value for name, value in server._settings.items()}
        env |= {"DUETIME_URL": f"http://127.0.0.1:{server.client.port}"}
        env |= {"DUETIME_TOKEN": self.people.ada.headers["Authorization"].split()[1]}
        job_id = self.jobs[0]
        (execution, *_) = self.people.ada.executions(job_id)
        for command in (
            f"job show {job_id} --json", f"job show {job_id}", "job list --json", f"job history {job_id} --json",
            f"job logs {job_id}", f"execution show {execution['execution_id']} --json", "dead-letters list --json",
            "config show", "config show --json", "token list --json", "health --json", "cluster --json",
        ):  # fmt: skip
            result = CliRunner().invoke(app, command.split(), env=env)
            is_degraded = "health" in command and '"status": "degraded"' in result.output  # on a busy machine
            assert result.exit_code == 0 or is_degraded, (command, result.output)
            yield f"duetime {command}", result.output.encode() + result.stderr.encode()

    def logs(self) -> Iterator[tuple[str, bytes]]:
        for server in self.servers:
            for file in sorted(server.folder.glob("server-*")):
                yield str(file), file.read_bytes()

    def traces(self) -> Iterator[tuple[str, bytes]]:
        """The exported spans of each execution, as they were sent."""
        for job_id in self.jobs:
            for row in self.people.ada.executions(job_id):
                self.collector.of(row["execution_id"], 1)
        for body in list(self.collector.bodies):
            yield "a trace", body


def _whole(answer: Answer) -> bytes:
    return repr(dict(answer.headers)).encode() + answer.body


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def scene(request: pytest.FixtureRequest, receiver: Receiver, collector: Collector) -> Iterator[Scene]:
    on_sqlite = request.param == "sqlite"
    servers = [request.getfixturevalue("guarded")] if on_sqlite else list(request.getfixturevalue("pair"))
    with echo() as (url, received):
        scene = Scene(People(servers[0], receiver), url, received, servers, collector)
        scene.secrets.note("JWT_SECRET", JWT_SECRET.removeprefix("jwt/"))
        scene.secrets.note("SIGNING_SECRETS", SIGNING_KEY)
        if on_sqlite:
            (line,) = (servers[0].data / "encryption.keys").read_text().split()
            scene.secrets.note("encryption.keys", line.partition(":")[2])
        else:
            scene.secrets.note("ENCRYPTION_KEYS", ENCRYPTION_KEY)
            scene.secrets.note("the password of DATABASE_URL", DATABASE_PASSWORD)
        scene.play()
        yield scene


def check(scene: Scene, gathered: Iterator[tuple[str, bytes]], is_kept: bool = False) -> int:
    """Checks that no text holds a secret, nor, except in the database, an encrypted one. Returns the amount of text."""
    size, leaks = 0, []
    for source, data in gathered:
        size += len(data)
        if b"encrypted:1:" in data and not is_kept:
            leaks.append(f"{source} holds what is encrypted")
        leaks += [f"{source} holds {found}" for found in scene.secrets.found_in(data)]
    assert not leaks, "\n".join(leaks[:20])
    return size


def test_the_target_gets_the_plain_secrets(scene: Scene) -> None:
    got = {headers["X-Secret"] for headers, _ in scene.received if "X-Secret" in headers}
    got |= {json.loads(body)["deep"]["er"] for _, body in scene.received if b'"deep"' in body}
    assert got == set(scene.sent.values())


def test_no_response_holds_a_secret(scene: Scene) -> None:
    assert check(scene, scene.read()) > 50_000


def test_no_stream_holds_a_secret(scene: Scene) -> None:
    assert check(scene, scene.follow()) > 1000


def test_the_command_line_shows_no_secret(scene: Scene) -> None:
    assert check(scene, scene.type_commands()) > 5000


def test_no_log_holds_a_secret(scene: Scene) -> None:
    """At the log level debug."""
    assert check(scene, scene.logs()) > 1000


def test_no_trace_holds_a_secret(scene: Scene) -> None:
    """Each execution and each request that created a job has one."""
    assert check(scene, scene.traces()) > 10_000
    assert {span.name for span in scene.collector.spans} >= {"request", "create", "execution", "fire", "attempt"}


async def test_the_database_holds_no_secret(scene: Scene) -> None:
    server = scene.servers[0]
    url = server._settings.get("DATABASE_URL")
    if url is None:
        assert check(scene, _files(server), is_kept=True) > 50_000  # including the write-ahead log
        connection = apsw.Connection(str(next(server.data.glob("*.db"))))
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.close()
        assert check(scene, _files(server), is_kept=True) > 50_000
    else:
        rows = [row async for row in _rows(url)]
        assert len({table for table, _ in rows}) > 8
        assert check(scene, iter(rows), is_kept=True) > 20_000
        assert {table for table, row in rows if b"encrypted:1:" in row} == ENCRYPTED_TABLES


def _files(server: Server) -> Iterator[tuple[str, bytes]]:
    for file in sorted(server.data.rglob("*")):
        if file.is_file() and file.name != "encryption.keys":
            yield str(file), file.read_bytes()


async def _rows(url: str) -> Any:
    """Every column of every row of every table, as text."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        for (table,) in tables:
            for row in await connection.fetch(f"SELECT row::text FROM {table} AS row"):
                yield table, row[0].encode()
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JWT_SECRET", "{}"),
        ("ENCRYPTION_KEYS", "k1:{}"),
        ("ENCRYPTION_KEYS", "{}"),
        ("SIGNING_SECRETS", "whsec_{}!"),
        ("DATABASE_URL", "mysql://user:{}@host/db"),
        ("DATABASE_URL", "postgresql://user:a#{}@host/db"),
        ("DATABASE_URL", "postgresql://user:a/{}@host/db"),
    ],
)
def test_a_setting_that_is_refused_is_not_quoted(name: str, value: str) -> None:
    known = Secrets()
    text = value.format(known.new(name).removesuffix(ODD))
    for command in ("config show", "serve"):
        result = CliRunner().invoke(app, command.split(), env={f"DUETIME_{name}": text})
        assert result.exit_code == 2, result.output
        assert not known.found_in(result.output.encode() + result.stderr.encode())
