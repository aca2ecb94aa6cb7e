"""`duetime connection`, `duetime worker` and `logs --follow`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from cli.conftest import Duetime, until
from node_forks import fork_server
from patience import PATIENCE_SECONDS

JOBS = """
from duetime import Duetime
app = Duetime()
@app.job(schedule="@yearly", name="yearly")
def yearly(): return 1
@app.job(name="double")
def double(number: int) -> int: return 2 * number
"""


class TestConnection:
    def test_is_registered_listed_and_removed(self, scripting: Duetime) -> None:
        duetime = scripting
        assert "no connection is registered" in duetime.ok("connection", "list")
        said = duetime.ok("connection", "put", "reports", "sqlite:///reports.db")
        assert said.strip() == "reports is reports.db"
        secret = "postgresql://app:hunter2@db.example:5432/app"
        said = duetime.ok("connection", "put", "app", "-", stdin=f"{secret}\n")
        assert said.strip() == "app is db.example:5432/app"
        shown = duetime.ok("connection", "list") + json.dumps(duetime.json("connection", "list"))
        assert "reports" in shown
        assert "hunter2" not in shown
        for name in ("reports", "app"):
            assert "Jobs that use it fail" in duetime.ok("connection", "remove", name)
        assert duetime.json("connection", "list") == {"connections": []}

    def test_an_invalid_url_and_an_unknown_name_are_refused(self, duetime: Duetime) -> None:
        result = duetime("connection", "put", "x", "mysql://user:hunter2@host/db")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "hunter2" not in result.stderr
        assert duetime("connection", "put", "x", "-", stdin="\n").exit_code == 2
        assert duetime("connection", "remove", "not there").exit_code == 1


class TestWorker:
    def test_an_app_that_cannot_be_imported_is_reported_in_a_sentence(self, duetime: Duetime, tmp_path: Path) -> None:
        (tmp_path / "empty.py").write_text("from duetime import Duetime\napp = Duetime()\n")
        (tmp_path / "broken.py").write_text("import not_to_be_found\n")
        for spec, words in (
            ("nothing", "does not name an app"),
            (f"{tmp_path}/missing.py:app", "there is no file"),
            (f"{tmp_path}/empty.py:other", "has no 'other'"),
            (f"{tmp_path}/empty.py:app", "has no functions"),
            (f"{tmp_path}/broken.py:app", "not_to_be_found"),
        ):
            result = duetime("worker", spec)
            assert result.exit_code == 2, (spec, result.output)
            assert words in result.stderr, (spec, result.stderr)

    def test_runs_functions_until_a_signal_stops_it(self, scripting: Duetime, tmp_path: Path) -> None:
        (tmp_path / "app_of_a_test.py").write_text(JOBS)
        command = [*fork_server.command(), "worker", "app_of_a_test:app", "--name", "mine"]
        env = {**os.environ, "DUETIME_URL": scripting.url}
        with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as worker:
            until(
                lambda: [it["name"] for it in _get(scripting, "/workers")["workers"]], lambda names: names == ["mine"]
            )
            payload = {"function": "double", "args": [21]}
            body = {"name": "double", "type": "python", "schedule": "on_demand", "payload": payload}
            job_id = _post(scripting, "/jobs", body)["job_id"]
            assert scripting.run_until(job_id, "COMPLETED")["response"] == "42"
            assert "yearly" in scripting.ok("job", "list", "--name", "yearly")
            worker.terminate()
            _, said = worker.communicate(timeout=PATIENCE_SECONDS)
            assert (worker.returncode, "warning" in said, "error" in said) == (0, False, False), said
        assert _get(scripting, "/workers")["workers"] == []


class TestLogs:
    def test_have_the_output_of_a_script_once(self, scripting: Duetime) -> None:
        body = {"name": "once", "type": "script", "schedule": "on_demand", "payload": {"script": "echo said"}}
        _post(scripting, "/jobs", body)
        execution_id = scripting.run_until("once", "COMPLETED")["execution_id"]
        for command in (("job", "logs", "once"), ("job", "logs", "once", "-f"), ("execution", "logs", execution_id)):
            assert scripting.ok(*command).splitlines().count("said") == 1, command
        assert scripting.json("execution", "show", execution_id)["execution"]["response"] == "said\n"

    def test_are_followed_to_the_end(self, scripting: Duetime) -> None:
        payload = {"script": "echo one; echo two >&2; sleep 0.2; echo three"}
        body = {"name": "lines", "type": "script", "schedule": "on_demand", "payload": payload}
        _post(scripting, "/jobs", body)
        execution_id = scripting.json("job", "run", "lines")["execution_id"]
        followed = scripting.ok("execution", "logs", execution_id, "--follow").splitlines()
        assert {"one", "two", "three"} <= set(followed)
        assert any(line.endswith("attempt 1: exited with 0") for line in followed)
        assert (
            scripting.ok("job", "logs", "lines").splitlines() == scripting.ok("job", "logs", "lines", "-f").splitlines()
        )
        shown_lines = [json.loads(line) for line in scripting.ok("job", "logs", "lines", "-f", "--json").splitlines()]
        assert {(it["event"], it["text"]) for it in shown_lines} >= {
            ("stdout", "one"),
            ("stderr", "two"),
            ("stdout", "three"),
        }
        assert [int(it["number"]) for it in shown_lines] == sorted(int(it["number"]) for it in shown_lines)


def _get(duetime: Duetime, path: str) -> dict[str, list[dict[str, str]]]:
    from duetime.client import Client

    with Client(duetime.url) as client:
        found: dict[str, list[dict[str, str]]] = client.request("GET", f"/api/v1{path}")
        return found


def _post(duetime: Duetime, path: str, body: object) -> dict[str, str]:
    from duetime.client import Client

    with Client(duetime.url) as client:
        made: dict[str, str] = client.request("POST", f"/api/v1{path}", body=body)
        return made
