"""Runs the files and commands of the how-tos on scripts, SQL, functions, logs and the client."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.processes import wait_until
from docs.pages import ROOT, blocks
from docs.test_commands import Terminal
from node_forks import end_with_parent
from served import served, target

HOW_TO = ROOT / "docs" / "how-to"
_FILE = re.compile(r"^```(?:python|ts) (?P<name>\w+\.\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Desk(Terminal):
    """A terminal in whose folder the files of a page are saved."""

    def open(self, page: Path) -> list[str]:
        """Saves the page's files. Returns the commands to run."""
        files = {match["name"]: match["code"] for match in _FILE.finditer(page.read_text(encoding="utf-8"))}
        for name, code in files.items():
            for written, real in self._ports.items():
                code = code.replace(written, real)
            (self._folder / name).write_text(code)
        return blocks(page, "bash run")

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Runs a command in the background, and stops it at the end."""
        with (self._folder / "other-window").open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self._folder, env=self._environment, stdout=out, stderr=out,
                preexec_fn=end_with_parent,
            )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0, (self._folder / "other-window").read_text()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A target listens on 9000."""
    monkeypatch.setenv("DUETIME_ALLOW_SCRIPTS", "true")
    monkeypatch.setenv("DUETIME_ALLOW_SQL", "true")
    (tmp_path / "sqlite").mkdir()
    monkeypatch.setenv("DUETIME_SQL_SQLITE_FOLDER", str(tmp_path / "sqlite"))
    with target() as target_url, served(tmp_path) as url:
        yield Desk(tmp_path, url, port_9000=target_url.removeprefix("http://"))


def test_the_page_on_functions_is_true(desk: Desk) -> None:
    page = HOW_TO / "python-functions.md"
    enqueue, curl, listed, result = desk.open(page)
    (worker,) = blocks(page, "bash")
    with desk.running(worker.strip()):
        desk.type(enqueue)
        assert '"status":"PENDING"' in desk.type(curl)
        wait_until(lambda: desk.type(listed).count("COMPLETED") == 4, 30, "four calls have run", 0.3)
        said = desk.type(f"{listed.strip()} --json")
        rejected, *_ = [row for row in json.loads(said)["executions"] if row["state"] == "FAILED"]
        assert (rejected["error_type"], rejected["attempt"]) == ("rejected", 1)
        assert "there is no customer" in rejected["error_message"]
        assert "2027-01-31" in said
        assert "invoice for acme" in "".join(
            desk.type(f"duetime execution logs {row['execution_id']}") for row in json.loads(said)["executions"]
        )
        assert "report" in desk.type("duetime job list"), "the declared job is created"
        assert "'due': '2027-05-31'" in desk.type(result)


def test_the_function_of_the_readme_runs(desk: Desk) -> None:
    desk.open(ROOT / "README.md")
    with desk.running("duetime worker jobs.py:app"):
        desk.type("python jobs.py")
        wait_until(lambda: "the report of yesterday" in desk.type("duetime execution list --json"), 30, "it ran", 0.3)


def test_the_page_on_embedding_is_true(desk: Desk) -> None:
    (run,) = desk.open(HOW_TO / "embed-in-a-program.md")
    assert "hello world" in desk.type(run)


def test_the_page_on_scripts_is_true(desk: Desk) -> None:
    made, followed = desk.open(HOW_TO / "run-scripts.md")
    assert desk.type(made).count('"status":"PENDING"') == 2
    said = desk.type(followed)
    assert "saving as" in said
    assert "attempt 1: exited with 0" in said
    assert "nightly" not in said, "values of env are secret"
    assert "/duetime-script-" in said
    assert "%" in said, "the output of df"


def test_the_page_on_sql_is_true(desk: Desk) -> None:
    register, made, history = desk.open(HOW_TO / "run-sql.md")
    assert "reports.db" in desk.type(register)
    assert desk.type(made).count('"status":"PENDING"') == 2
    (result,) = blocks(HOW_TO / "run-sql.md", "json")
    wait_until(lambda: json.dumps(result.strip().replace(" ", "")) in desk.type(history), 30, "it has run", 0.3)


def test_the_page_on_logs_is_true(desk: Desk) -> None:
    made, followed, python = desk.open(HOW_TO / "read-logs.md")
    desk.type(made)
    wait_until(lambda: desk.try_to_type(followed), 30, "it has begun", 0.3)
    for said in (desk.type(followed), desk.type(python)):
        lines = said.splitlines()
        assert [line for line in lines if line.isdecimal()][:5] == ["1", "2", "3", "4", "5"]
        assert "oops" in lines
        assert "attempt 1: exited with 0" in said


def test_the_page_on_the_client_is_true(desk: Desk) -> None:
    (run,) = desk.open(HOW_TO / "use-the-python-client.md")
    paused, created, refused = desk.type(run).splitlines()
    assert paused == "ping PAUSED"
    assert created == "2500 created"
    assert "CANCELLED" in refused


def test_an_at_most_once_job_is_not_retried(desk: Desk) -> None:
    made, letters = desk.open(HOW_TO / "deliver-at-most-once.md")
    desk.type(made)
    wait_until(lambda: "FAILED" in desk.type(letters), 30, "its one attempt has failed", 0.3)
    (row,) = json.loads(desk.type("duetime execution list --json"))["executions"]
    assert (row["state"], row["attempt"], row["dead"]) == ("FAILED", 1, True)
