"""All commands: exit codes, one sentence on stderr, help with examples, a quick start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cluster.processes import wait_until
from duetime import __version__
from duetime.cli.main import app
from node_forks import fork_server
from patience import PATIENCE_SECONDS
from store.postgres_server import fresh_database

PEM = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"
DUETIME = [sys.executable, "-m", "duetime.cli.main"]
HEAVY = (
    "litestar",
    "uvicorn",
    "uvloop",
    "apsw",
    "asyncio",
    "ssl",
    "http.client",
    "duetime.node",
    "duetime.settings.table",
    "duetime.domain.plan",
)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands(get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_each_command_shows_an_example_and_has_json(alone: Any, path: tuple[str, ...]) -> None:
    shown = alone.ok(*path, "--help")
    assert f"duetime {' '.join(path)}" in shown.split("Usage", 1)[1].split("\n", 2)[2]
    assert "--json" in shown


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    code = f"import sys, duetime.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("environment", [{}, {"DUETIME_JWT_SECRET": "x" * 32}], ids=["open", "with identity"])
def test_a_node_never_loads_rich_whose_tracebacks_show_local_variables(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    command = [sys.executable, "-X", "importtime", *DUETIME[1:], "serve", "--json", "--port", "0"]
    imported = tmp_path / "imported"
    with imported.open("w") as stderr, subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    names = {line.rpartition("|")[2].strip() for line in imported.read_text().splitlines()}
    assert "structlog.dev" in names
    # Not `rich` itself: some versions of Python also list an import that failed.
    assert [name for name in names if name.startswith(("rich.", "pygments"))] == []


def test_without_a_server_the_message_shows_how_to_start_one(alone: Any) -> None:
    for args in (["job", "list"], ["health"], ["execution", "list"], ["dead-letters", "list"], ["cluster"]):
        result = alone(*args)
        assert result.exit_code == 1
        assert result.stderr == "duetime: no Duetime at http://127.0.0.1:9; start one with: duetime serve\n"
        assert result.stdout == ""


def test_the_server_is_named_by_flag_before_environment(duetime: Any) -> None:
    flagged = duetime("--url", duetime.url, "health", "--json", env={"DUETIME_URL": "http://127.0.0.1:9"})
    assert json.loads(flagged.stdout)["status"] == "ok"


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port"])
def test_an_invalid_url_exits_2(alone: Any, url: str) -> None:
    result = alone("--url", url, "health")
    assert result.exit_code == 2
    assert "is not the URL of a server" in result.stderr


def test_another_kind_of_server_is_recognised(alone: Any) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        result = alone("--url", f"http://127.0.0.1:{other.server_address[1]}", "job", "list")
    assert result.exit_code == 1
    assert "the server is not a Duetime; check --url" in result.stderr


@pytest.mark.parametrize("args", [["job", "nothing"], ["job", "list", "--nothing"], ["job", "show"], ["nothing"]])
def test_bad_usage_exits_2(alone: Any, args: list[str]) -> None:
    assert alone(*args).exit_code == 2


def test_health_shows_each_part(duetime: Any) -> None:
    shown = duetime.ok("health")
    for word in ("status", "ok", "database", "timer", "healthy", "memory", "jobs"):
        assert word in shown


def test_job_names_complete_in_the_shell(duetime: Any) -> None:
    name, _ = duetime.create()
    env = {"_DUETIME_COMPLETE": "complete_bash", "COMP_WORDS": f"duetime job show {name[:-1]}", "COMP_CWORD": "3"}

    def completions() -> list[str]:
        result = subprocess.run(
            [Path(sys.executable).with_name("duetime")], env={**os.environ, **env, "DUETIME_URL": duetime.url},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return result.stdout.split()

    # The shell waits for at most a second, and then has no names: a busy machine may take longer.
    wait_until(lambda: name in completions(), PATIENCE_SECONDS, "the name is completed")


def test_config_shows_each_value_and_its_source(alone: Any, tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text('port = 9000\nsigning_secrets = ["whsec_c2VjcmV0"]\n')
    result = alone("config", "show", "--json", env={"DUETIME_DATA": "elsewhere"})
    found = {item["name"]: (item["value"], item["source"]) for item in json.loads(result.stdout)}
    assert found["PORT"] == ("9000", "duetime.toml")
    assert found["DATA"] == ("elsewhere", "DUETIME_DATA")
    assert found["HOST"] == ("127.0.0.1", "default")
    assert found["SIGNING_SECRETS"] == ("********", "duetime.toml")
    assert "c2VjcmV0" not in alone.ok("config", "show")


# serve


@pytest.mark.parametrize(
    ("args", "env", "says"),
    [
        (["--host", "0.0.0.0"], {}, "HOST: '0.0.0.0' is not a loopback address"),
        (["--host", "::"], {}, "Set DUETIME_JWT_SECRET (`openssl rand -base64 32` prints one) or DUETIME_JWKS_FILE"),
        ([], {"DUETIME_JWT_SECRET": "whsec_!!"}, "JWT_SECRET: '********' (from DUETIME_JWT_SECRET)"),
        ([], {"DUETIME_JWKS_FILE": "none.json"}, "JWKS_FILE: none.json: can't be read"),
        ([], {"DUETIME_JWT_SECRET": PEM}, "JWT_SECRET: is a public key"),
        (["--port", "70000"], {}, "PORT: '70000' (from --port) can't be used: must lie between 0 and 65535"),
        ([], {"DUETIME_LOG_LEVEL": "loud"}, "LOG_LEVEL: 'loud' (from DUETIME_LOG_LEVEL)"),
        ([], {"DUETIME_SIGNING_SECRETS": "whsec_!!"}, "SIGNING_SECRETS: '********' (from DUETIME_SIGNING_SECRETS)"),
    ],
)
def test_a_bad_setting_exits_2_and_is_named(alone: Any, args: list[str], env: dict[str, str], says: str) -> None:
    result = alone("serve", *args, env=env)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "whsec_!!" not in result.stderr


def test_a_port_in_use_exits_1_with_a_message(alone: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = alone("serve", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "Address already in use; choose another with --port" in result.stderr


def test_serve_prints_its_url_and_a_command_for_a_first_job(tmp_path: Path) -> None:
    command = [*DUETIME, "serve", "--port", "0", "--data", "there"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(5)]
        second = fork_server.run(["duetime", "serve", "--port", "0", "--data", "there"], tmp_path, os.environ)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    text = "".join(said)
    url = text.split()[2]
    assert url.startswith("http://127.0.0.1:")
    assert "data in there" in text
    assert f"{url}/docs" in text
    assert f"curl {url}/api/v1/jobs" in text
    assert second.returncode == 1
    assert "in use by another Duetime" in second.stderr


@pytest.mark.parametrize(
    ("host", "environment", "identity", "says"),
    [
        ("127.0.0.1", {}, "open", ["No identity is set up", "is an admin"]),
        ("127.0.0.1", {"DUETIME_JWT_SECRET": "x" * 32}, "required", ["Identity is required", "duetime token create"]),
        ("0.0.0.0", {"DUETIME_JWT_SECRET": "x" * 32}, "required", ["Identity is required", "authorization: Bearer $("]),
        ("127.0.0.1", {"DUETIME_JWKS_FILE": "jwks.json"}, "required", ["JWKS_FILE", "duetime token create --name"]),
    ],
)
def test_serve_prints_whether_identity_is_required(
    tmp_path: Path, host: str, environment: dict[str, str], identity: str, says: list[str]
) -> None:
    key = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [key]}))
    for flags in ([], ["--json"]):
        command = [*fork_server.command(), "serve", "--host", host, "--port", "0", *flags]
        with subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
            assert process.wait(timeout=PATIENCE_SECONDS) == 0
        if flags:
            assert json.loads(first)["identity"] == identity
        else:
            assert [text for text in says if text not in rest] == []


@pytest.mark.slow
async def test_serve_on_postgresql_names_the_database_and_no_password(tmp_path: Path) -> None:
    async with fresh_database() as url:
        command = [*fork_server.command(), "serve", "--json", "--port", "0", "--database-url", url]
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=subprocess.PIPE)
        assert process.stdout is not None
        said = json.loads(await process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert said["data"].startswith("PostgreSQL at ")
    assert said["data"].endswith(urlsplit(url).path)
    assert "@" not in said["data"]


def test_a_signal_right_after_the_start_stops_the_node_in_order(tmp_path: Path) -> None:
    command = [*DUETIME, "serve", "--json", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert '"stopped"' in said


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"duetime {__version__}\n")


def test_an_unusable_folder_for_sqlite_jobs_is_a_bad_setting_and_a_misspelt_name_is_a_warning(
    tmp_path: Path,
) -> None:
    settings = {"ALLOW_SQL": "true", "SQL_SQLITE_FOLDER": "relative", "ALLOW_SCRIPT": "true"}
    environment = os.environ | {f"DUETIME_{name}": value for name, value in settings.items()}
    ended = fork_server.run(["duetime", "serve", "--port", "0"], tmp_path, environment)
    assert ended.returncode == 2, ended.stderr
    assert "SQL_SQLITE_FOLDER: 'relative' can't be used: must be an absolute path" in ended.stderr
    assert "DUETIME_ALLOW_SCRIPT in the environment is not read: did you mean DUETIME_ALLOW_SCRIPTS?" in ended.stderr
