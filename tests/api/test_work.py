"""Jobs that run scripts, SQL and functions, over the API: rights, secrets, and errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from api.people import SETTINGS, Known, People
from api.person import FAR, refused
from cluster.processes import Receiver, Server

HIDDEN = "********"
SECRET = "hunter2-which-nobody-may-read"
SCRIPT = {"name": "s", "schedule": FAR, "type": "script", "payload": {"argv": ["true"]}}
SQL = {"name": "q", "schedule": FAR, "type": "sql_query", "payload": {"connection": "db", "statement": "SELECT 1"}}
CALL = {"name": "f", "schedule": FAR, "type": "python", "payload": {"function": "f"}}


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with authentication on which scripts and SQL are on."""
    folder = tmp_path_factory.mktemp("working")
    (folder / "sqlite").mkdir()
    server = Server(folder, **SETTINGS, SQL_SQLITE_FOLDER=str(folder / "sqlite")).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


@pytest.fixture
def people(working: Server, receiver: Receiver) -> People:
    return People(working, receiver)


def with_scopes(people: People, *scopes: str) -> Known:
    return people.as_user(people.acme, "cem", scopes=list(scopes))


class TestRights:
    @pytest.mark.parametrize(("body", "right"), [(SCRIPT, "script"), (SQL, "sql")])
    def test_a_type_needs_its_right_on_every_route(self, people: People, body: dict[str, Any], right: str) -> None:
        bare, able = with_scopes(people, "read", "write"), with_scopes(people, "read", "write", right)
        assert people.ada.put("/connections/db", {"url": "sqlite:///x.db"}).status == 200
        assert f"'{right}'" in refused(bare.post("/jobs", body), 403, "FORBIDDEN")
        refused(bare.put("/jobs/by-key/k", body), 403, "FORBIDDEN")
        assert bare.post("/jobs:batch", [body]).json()["refused"][0]["error"] == "FORBIDDEN"
        plain = bare.create()
        refused(bare.patch(f"/jobs/{plain}", {"type": body["type"], "payload": body["payload"]}), 403, "FORBIDDEN")
        made = able.post("/jobs", body)
        assert made.status == 201, made
        # A job of another user with more rights may not be changed into another script either.
        path = f"/jobs/{made.json()['job_id']}"
        refused(bare.patch(path, {"payload": body["payload"]}), 403, "FORBIDDEN")
        assert able.patch(path, {"payload": body["payload"]}).status == 200

    def test_a_function_needs_no_additional_right(self, people: People) -> None:
        assert people.ann.post("/jobs", CALL).status == 201

    def test_running_functions_needs_the_right_work(self, people: People) -> None:
        joining = {"name": "w", "functions": ["f"], "slots": 1}
        for path in ("join", "poll", "report", "leave"):
            assert "'work'" in refused(people.ann.post(f"/workers/{path}", joining), 403, "FORBIDDEN")
        worker = with_scopes(people, "work")
        joined = worker.post("/workers/join", joining)
        assert joined.status == 201, joined
        assert joined.json().keys() == {"worker_id", "lease_seconds"}
        refused(worker.get("/workers"), 403, "FORBIDDEN")
        (listed,) = people.ada.get("/workers").json()["workers"]
        assert (listed["name"], listed["functions"], listed["slots"], listed["user_id"]) == ("w", ["f"], 1, "cem")
        assert worker.post("/workers/leave", {"worker_id": joined.json()["worker_id"]}).status == 204
        assert people.ada.get("/workers").json() == {
            "workers": [],
            "limit": 100,
            "has_more": False,
            "next_cursor": None,
        }
        refused(worker.post("/workers/poll", {"worker_id": joined.json()["worker_id"], "free": 1}), 404, "NOT_FOUND")

    def test_connections_are_for_admins(self, people: People) -> None:
        able = with_scopes(people, "read", "write", "run", "sql", "work")
        refused(able.get("/connections"), 403, "FORBIDDEN")
        refused(able.put("/connections/db", {"url": "sqlite:///x.db"}), 403, "FORBIDDEN")
        refused(able.delete("/connections/db"), 403, "FORBIDDEN")


class TestConnections:
    def test_a_job_on_an_unknown_connection_is_refused_on_every_route(self, people: People) -> None:
        says = "there is no connection 'db': register it first"
        ada = people.ada
        assert says in refused(ada.post("/jobs", SQL), 400, "INVALID_REQUEST", "/payload/connection")
        assert says in refused(ada.put("/jobs/by-key/k", SQL), 400, "INVALID_REQUEST", "/payload/connection")
        assert says in ada.post("/jobs:batch", [SQL]).json()["refused"][0]["message"]
        plain = ada.create()
        change = {"type": "sql_query", "payload": SQL["payload"]}
        assert says in refused(ada.patch(f"/jobs/{plain}", change), 400, "INVALID_REQUEST", "/payload/connection")

    def test_a_job_whose_connection_was_removed_can_be_changed_but_not_to_an_unknown_one(self, people: People) -> None:
        ada = people.ada
        assert ada.put("/connections/db", {"url": "sqlite:///x.db"}).status == 200
        made = ada.post("/jobs", SQL)
        assert made.status == 201, made
        assert ada.delete("/connections/db").status == 200
        path = f"/jobs/{made.json()['job_id']}"
        assert ada.patch(path, {"priority": 9}).status == 200
        change = {"payload": {"connection": "none"}}
        refused(ada.patch(path, change), 400, "INVALID_REQUEST", "/payload/connection")
        secret = {"payload": {"statement": "SELECT ?", "parameters": [SECRET], "secret": ["/parameters/0"]}}
        refused(ada.patch(path, secret), 400, "INVALID_REQUEST", "/payload/connection")


class TestWhy:
    def test_why_names_a_function_until_a_worker_has_it(self, people: People) -> None:
        job_id = people.ada.post("/jobs", {**CALL, "schedule": "immediate"}).json()["job_id"]

        def holds() -> str:
            return " ".join(people.ada.get(f"/jobs/{job_id}/why").json()["holds"])

        assert "no worker has the function 'f': it waits until one joins that does" in holds()
        other = people.ada.post("/workers/join", {"name": "o", "functions": ["other"], "slots": 1})
        foreign = people.eve.post("/workers/join", {"name": "e", "functions": ["f"], "slots": 1})
        assert (other.status, foreign.status) == (201, 201)
        assert "no worker has the function 'f'" in holds()
        joined = people.ada.post("/workers/join", {"name": "w", "functions": ["f", "g"], "slots": 1})
        assert joined.status == 201
        assert "no worker has" not in holds()

    def test_why_names_no_function_of_a_cancelled_job(self, people: People) -> None:
        job_id = people.ada.post("/jobs", CALL).json()["job_id"]
        assert people.ada.post(f"/jobs/{job_id}/cancel").status == 200
        assert people.ada.get(f"/jobs/{job_id}/why").json()["holds"] == []


class TestWorkers:
    def test_messages_of_workers_are_checked(self, people: People) -> None:
        for body in ({}, {"name": "w", "functions": [], "slots": 1}, {"name": "w", "functions": ["f"], "slots": 0}):
            refused(people.ada.post("/workers/join", body), 400, "INVALID_REQUEST")
        joined = people.ada.post("/workers/join", {"name": "w", "functions": ["f"], "slots": 1}).json()["worker_id"]
        for wait in (-1, 31):
            asked = {"worker_id": joined, "free": 1, "wait_seconds": wait}
            refused(people.ada.post("/workers/poll", asked), 400, "INVALID_REQUEST", "/wait_seconds")
        for odd in (0, -1, 2**31, 2**63, 2**70):
            answer = people.ada.post("/workers/poll", {"worker_id": odd, "free": 1, "wait_seconds": 0})
            assert answer.status in (400, 404), answer
        for odd in ("", "x", "\u2603", "0198c0de-1234-7abc-8def-0123456789ab"):
            claim = {"execution_id": odd, "attempt": 1, "token": 2**60}
            ended = {**claim, "started_at": 0, "ended_at": 2**53}
            said = {"worker_id": joined, "running": [claim], "ended": [ended], "unbegun": [claim]}
            assert people.ada.post("/workers/report", said).json() == {"refused": [claim]}

    @pytest.mark.parametrize("field", ["running", "unbegun"])
    def test_a_report_that_names_executions_without_attempt_and_token_is_refused(
        self, people: People, field: str
    ) -> None:
        joined = people.ada.post("/workers/join", {"name": "w", "functions": ["f"], "slots": 1}).json()["worker_id"]
        odd = "0198c0de-1234-7abc-8def-0123456789ab"
        for said in (odd, {"execution_id": odd}, {"execution_id": odd, "attempt": 1}):
            body = {"worker_id": joined, "running": [], field: [said]}
            refused(people.ada.post("/workers/report", body), 400, "INVALID_REQUEST")

    def test_a_repeated_release_does_not_release_a_new_claim(self, people: People) -> None:
        ada = people.ada
        name = "given.back"
        worker = ada.post("/workers/join", {"name": "w", "functions": [name], "slots": 1}).json()["worker_id"]
        asked = {"worker_id": worker, "free": 1, "wait_seconds": 5}
        job_id = ada.create(
            **{**CALL, "schedule": "immediate", "payload": {"function": name}, "delivery": "at_most_once"}
        )
        claims = []
        for _ in range(2):
            (held,) = ada.post("/workers/poll", asked).json()["assignments"]
            claims.append({name: held[name] for name in ("execution_id", "attempt", "token")})
            said = {"worker_id": worker, "running": [], "unbegun": [claims[0]]}
            assert ada.post("/workers/report", said).json() == {}
        assert [claim["token"] for claim in claims] == [1, 2]
        assert ada.executions(job_id)[0]["state"] == "RUNNING"

    def test_a_function_is_polled_run_and_reported(self, people: People) -> None:
        ada = people.ada
        worker = ada.post("/workers/join", {"name": "w", "functions": ["f"], "slots": 1}).json()["worker_id"]
        payload = {"function": "f", "args": [1], "kwargs": {"key": SECRET, "plain": 2}, "secret": ["/kwargs/key"]}
        job_id = ada.create(**{**CALL, "schedule": "immediate", "payload": payload})
        shown = ada.get(f"/jobs/{job_id}").json()["payload"]
        assert shown["kwargs"] == {"key": HIDDEN, "plain": 2}
        (held,) = ada.post("/workers/poll", {"worker_id": worker, "free": 1, "wait_seconds": 5}).json()["assignments"]
        assert (held["args"], held["kwargs"]) == ([1], {"key": SECRET, "plain": 2})
        claim = {name: held[name] for name in ("execution_id", "attempt", "token")}
        said = {
            "worker_id": worker, "running": [], "notes": [{**claim, "text": f"got {SECRET}\n"}],
            "ended": [{**claim, "started_at": 1, "ended_at": 2, "result": f'"{SECRET}"'}],
        }  # fmt: skip
        assert ada.post("/workers/report", said).json() == {}
        (execution,) = ada.executions(job_id)
        assert (execution["state"], execution["attempt"]) == ("COMPLETED", 1)
        everything = [ada.get(f"/executions/{held['execution_id']}{part}").body.decode() for part in ("", "/logs")]
        assert "got " in everything[1]
        assert SECRET not in "".join(everything)


class TestScripts:
    def test_the_environment_is_encrypted_hidden_and_redacted(self, people: People, working: Server) -> None:
        ada = people.ada
        payload = {"script": 'echo "it is $PASSWORD"; echo "$PASSWORD" >&2', "env": {"PASSWORD": SECRET}}
        job_id = ada.create(**{**SCRIPT, "schedule": "immediate", "payload": payload})
        assert ada.get(f"/jobs/{job_id}").json()["payload"]["env"] == {"PASSWORD": HIDDEN}
        execution_id = ada.wait_for(job_id, "COMPLETED")
        logs = ada.get(f"/executions/{execution_id}/logs").json()["logs"]
        assert "it is " in logs
        shown_text = logs + ada.get(f"/executions/{execution_id}").body.decode() + ada.get("/audit").body.decode()
        assert SECRET not in shown_text
        files = b"".join(file.read_bytes() for file in working.data.rglob("*") if file.is_file())
        assert SECRET.encode() not in files

    def test_a_change_keeps_the_values_that_it_does_not_name(self, people: People) -> None:
        ada = people.ada
        payload = {"script": '[ "$A" = first ] && [ "$B" = third ]', "env": {"A": "first", "B": "second"}}
        job_id = ada.create(**{**SCRIPT, "payload": payload})
        assert ada.patch(f"/jobs/{job_id}", {"payload": {"env": {"B": "third"}}}).status == 200
        assert ada.post(f"/jobs/{job_id}/run").status == 202
        ada.wait_for(job_id, "COMPLETED")

    def test_a_change_of_type_needs_a_payload_of_that_type(self, people: People) -> None:
        ada, job_id = people.ada, people.ada.create()
        refused(ada.patch(f"/jobs/{job_id}", {"type": "script"}), 400, "INVALID_REQUEST")
        assert ada.patch(f"/jobs/{job_id}", {"type": "script", "payload": {"argv": ["true"]}}).status == 200
        found = ada.get(f"/jobs/{job_id}").json()
        assert (found["type"], found["payload"]["argv"]) == ("script", ["true"])


class TestSql:
    def test_a_connection_is_used_and_never_shown(self, people: People, working: Server) -> None:
        ada, file = people.ada, working.folder / "sqlite" / people.acme / "things.db"
        file.parent.mkdir()
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE things (name TEXT)")
        url = "postgresql://someone:" + SECRET + "@db.example:5432/app"
        answer = ada.put("/connections/far", {"url": url})
        assert answer.json()["shown"] == "db.example:5432/app"
        assert ada.put("/connections/db", {"url": "sqlite:///things.db"}).status == 200
        (db, far) = ada.get("/connections").json()["connections"]
        assert (db["name"], far["name"], far["created_by"]) == ("db", "far", "ada")
        assert SECRET not in ada.get("/audit").body.decode() + repr(far)
        payload = {
            "connection": "db", "statement": "INSERT INTO things VALUES (?) RETURNING name", "parameters": [SECRET],
            "secret": ["/parameters/0"],
        }  # fmt: skip
        job_id = ada.create(**{**SQL, "schedule": "immediate", "payload": payload})
        execution_id = ada.wait_for(job_id, "COMPLETED")
        assert sqlite3.connect(file).execute("SELECT name FROM things").fetchall() == [(SECRET,)]
        shown = ada.get(f"/jobs/{job_id}").json()["payload"]
        assert shown["parameters"] == [HIDDEN]
        shown_text = "".join(ada.get(f"/executions/{execution_id}{part}").body.decode() for part in ("", "/logs"))
        assert "1 row" in shown_text
        assert SECRET not in shown_text
        assert ada.delete("/connections/db").status == 200
        refused(ada.delete("/connections/db"), 404, "NOT_FOUND")
        assert ada.post(f"/jobs/{job_id}/run").status == 202
        failed = ada.wait_for(job_id, "FAILED")
        assert "There is no connection 'db'" in ada.get(f"/executions/{failed}").json()["execution"]["error_message"]

    @pytest.mark.parametrize(
        "url", ["", "mysql://host/db", "postgresql://", "sqlite:///", "sqlite:///relative.db?mode=odd", "no url"]
    )
    def test_an_invalid_url_is_refused_and_not_quoted(self, people: People, url: str) -> None:
        refused(people.ada.put("/connections/x", {"url": url}), 400, "INVALID_REQUEST", "/url")

    def test_duetimes_own_database_is_refused(self, people: People, working: Server) -> None:
        """A link to the database is no file of the tenant, and no path leads to it."""
        ada, own = people.ada, next(working.data.glob("*.db"))
        refused(ada.put("/connections/own", {"url": f"sqlite://{own}"}), 400, "INVALID_REQUEST", "/url")
        folder = working.folder / "sqlite" / people.acme
        folder.mkdir(exist_ok=True)
        (folder / "own.db").symlink_to(own)
        assert ada.put("/connections/own", {"url": "sqlite:///own.db"}).status == 200
        payload = {"connection": "own", "statement": "SELECT * FROM jobs"}
        job_id = ada.create(**{**SQL, "schedule": "immediate", "payload": payload})
        failed = ada.wait_for(job_id, "FAILED")
        assert "it is a link" in ada.get(f"/executions/{failed}").json()["execution"]["error_message"]


class TestLogs:
    def test_are_read_after_a_line_and_up_to_a_limit(self, people: People) -> None:
        ada = people.ada
        payload = {"script": "echo one; echo two; echo three"}
        job_id = ada.create(**{**SCRIPT, "schedule": "immediate", "payload": payload})
        path = f"/executions/{ada.wait_for(job_id, 'COMPLETED')}/logs"
        first = ada.get(f"{path}?lines=1").json()
        assert first["logs"] == "one\n"
        second = ada.get(f"{path}?lines=1&after={first['next_after']}").json()
        assert second["logs"] == "two\n"
        rest = ada.get(f"{path}?after={second['next_after']}").json()
        assert rest["logs"].startswith("three\n")
        assert rest["logs"].splitlines()[1].endswith("attempt 1: exited with 0")
        assert rest["next_after"] is None
        for query in ("lines=0", "lines=10001", "after=-1", "after=x"):
            refused(ada.get(f"{path}?{query}"), 400, "INVALID_REQUEST")
