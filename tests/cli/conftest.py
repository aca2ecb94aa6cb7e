from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from typer.testing import CliRunner

from duetime.cli.main import app
from patience import PATIENCE_SECONDS
from served import served, target

_names = count(1)
typer.testing._get_command = cache(typer.testing._get_command)  # typer builds all of sixty commands to run one


class Duetime:
    """Runs `duetime …` in this process. `url`: its server; None: the default, at which no server runs."""

    def __init__(self, url: str, target_url: str = "") -> None:
        self.url = url
        self.target = target_url

    def __call__(self, *args: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Any:
        return CliRunner().invoke(app, list(args), input=stdin, env={"DUETIME_URL": self.url, **(env or {})})

    def ok(self, *args: str, stdin: str | None = None) -> str:
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        return str(result.stdout)

    def json(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))

    def create(self, *flags: str, path: str = "/ok", schedule: str = "0 0 1 1 *") -> tuple[str, str]:
        """Creates a job that calls the target. Returns its name and id."""
        name = f"job-{next(_names)}"
        created = self.json(
            "job", "create", "--name", name, "--schedule", schedule, "--url", self.target + path, *flags
        )
        return name, created["job_id"]

    def run_until(self, job: str, state: str) -> dict[str, Any]:
        """Runs a job once. Returns its execution when it is in `state`."""
        execution_id = self.json("job", "run", job)["execution_id"]
        return self.wait_for(execution_id, state)

    def wait_for(self, execution_id: str, state: str) -> dict[str, Any]:
        def execution() -> dict[str, Any]:
            shown: dict[str, Any] = self.json("execution", "show", execution_id)["execution"]
            return shown

        return until(execution, lambda it: it["state"] == state)


def until(read: Callable[[], Any], reached: Callable[[Any], bool]) -> Any:
    """Polls until the condition holds: a server in another process has no signal to wait for."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(0.01)
    return value


@pytest.fixture(scope="session")
def duetime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duetime]:
    """Commands with a real server."""
    with target() as target_url, served(tmp_path_factory.mktemp("served")) as url:
        yield Duetime(url, target_url)


@pytest.fixture(scope="module")
def scripting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duetime]:
    """Commands with a server that allows scripts and SQL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUETIME_ALLOW_SCRIPTS", "true")
        patch.setenv("DUETIME_ALLOW_SQL", "true")
        patch.setenv("DUETIME_SQL_SQLITE_FOLDER", str(tmp_path_factory.mktemp("sqlite")))
        with served(tmp_path_factory.mktemp("scripting")) as url:
            yield Duetime(url)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Duetime:
    """Commands without a server, in an empty folder, without settings in the environment."""
    import os

    for name in [name for name in os.environ if name.startswith("DUETIME_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Duetime("http://127.0.0.1:9")
