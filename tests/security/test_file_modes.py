"""The files of a node are for its owner only, and scripts can't read the node's arguments."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.people import database
from cluster.processes import Client, Server, wait_until
from duetime.cli.argv import typed_secrets
from duetime.cli.main import app
from executors.script.watching import on_linux
from node_forks import end_with_parent
from patience import PATIENCE_SECONDS


@contextmanager
def open_umask() -> Iterator[None]:
    """Sets a umask with which new files are open to everyone."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Returns the folder and everything below it that others have any right to; with its mode."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077 and not path.is_symlink():
            found[str(path)] = oct(mode)
    return found


def run_all(client: Client) -> None:
    """Creates jobs that write to the disk: a secret, and a log."""
    payload = {"script": "echo something; echo more >&2", "env": {"TOKEN": "s3cret-of-ann"}}
    body = {"name": "leaves a log", "schedule": "immediate", "type": "script", "payload": payload}
    job_id = client.post("/jobs", body).json()["job_id"]

    def ended() -> bool:
        rows = client.get(f"/jobs/{job_id}/executions").json()["executions"]
        return [row["state"] for row in rows] == ["COMPLETED"]

    wait_until(ended, 30, "the script has run")


def test_files_of_a_node_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    server = Server(tmp_path, ALLOW_SCRIPTS="true")
    server.data = tmp_path / "not" / "there" / "yet"
    with open_umask():
        server.start()
    run_all(server.client)
    wait_until(lambda: list(server.data.rglob("logs/**/*.*")), 10, "the log is on the disk")
    made = {path.name for path in server.data.rglob("*")}
    assert {"duetime.db", "duetime.db-wal", "duetime.db-shm", "encryption.keys", "logs"} <= made
    assert open_to_others(tmp_path / "not") == {}
    assert "rights" not in server.errors(), "there is nothing to warn of"
    server.close()


def test_files_of_a_rotation_and_a_migration_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with open_umask():
        for command in ("migrate", "keys rotate"):
            result = CliRunner().invoke(app, [*command.split(), "--data", str(data)])
            assert result.exit_code == 0, (command, result.output)
    assert {path.name for path in data.iterdir()} >= {"duetime.db", "encryption.lock"}
    assert open_to_others(data) == {}


def test_a_folder_that_is_open_to_others_is_logged_and_not_changed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    server = Server(tmp_path).start()
    wait_until(lambda: "users other than the owner have access to the data folder" in server.errors(), 10, "it warns")
    assert f"chmod go= '{data}'" in server.errors()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
    server.close()
    (data / "duetime.db").chmod(0o644)
    result = CliRunner().invoke(app, ["doctor", "--data", str(data)])
    (line,) = [line for line in result.output.splitlines() if "permissions" in line]
    assert "warning" in line.lower()
    assert "2 of" in result.output
    data.chmod(0o700)
    (data / "duetime.db").chmod(0o600)
    result = CliRunner().invoke(app, ["doctor", "--data", str(data)])
    (line,) = [line for line in result.output.splitlines() if "permissions" in line]
    assert "ok" in line.lower()


# Command lines

READS_ALL = "tail -v -n +1 /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo done"


def test_arguments_with_passwords_are_found() -> None:
    typed = "duetime --token=dt_1_2 serve --database-url postgresql://u:p@h/d promote postgres://a --url http://x"
    assert list(typed_secrets(typed.split())) == ["dt_1_2", "u:p@h/d", "a"]
    assert list(typed_secrets(["duetime", "serve", "--port", "0", "--token"])) == []


@on_linux
@pytest.mark.slow
def test_a_script_finds_no_password_of_the_database_in_the_list_of_processes(tmp_path: Path) -> None:
    password = "typed-by-an-operator"  # the server requests no password
    with database() as url:
        url = re.sub("//postgres:.*?@", f"//postgres:{password}@", url)
        assert password in url
        command = [str(Path(sys.executable).with_name("duetime")), "serve", "--port", "0", "--database-url", url]
        command += ["--data", str(tmp_path / "data")]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent,
            env={**os.environ, "DUETIME_ALLOW_SCRIPTS": "true"},
        ) as node:  # fmt: skip
            assert node.stdout is not None
            client = Client(int(node.stdout.readline().split("   ")[0].rpartition(":")[2]))
            body = {"name": "spy", "schedule": "immediate", "type": "script", "payload": {"script": READS_ALL}}
            job_id = client.post("/jobs", body).json()["job_id"]

            def ended() -> list[str]:
                rows = client.get(f"/jobs/{job_id}/executions").json()["executions"]
                return [row["execution_id"] for row in rows if row["state"] == "COMPLETED"]

            (execution_id,) = wait_until(ended, 30, "the script has run")
            seen = client.get(f"/executions/{execution_id}/logs").json()["logs"]
            node.terminate()
            assert node.wait(PATIENCE_SECONDS) == 0
    assert "--database-url postgresql://***" in seen, "it saw the node"
    assert password not in seen
