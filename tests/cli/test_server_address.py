"""The default server of commands: the one of the settings in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Duetime
from duetime.cli.options import own_url


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ("", "http://127.0.0.1:8080"),
        ("port = 9000", "http://127.0.0.1:9000"),
        ('host = "0.0.0.0"\nport = 9000', "http://127.0.0.1:9000"),
        ('host = "::"\nport = 9000', "http://[::1]:9000"),
        ('host = "10.1.2.3"', "http://10.1.2.3:8080"),
        ("port = 0", "http://127.0.0.1:8080"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_the_default_url_is_that_of_the_server_that_serve_would_start(settings: str, url: str) -> None:
    Path("duetime.toml").write_text(settings)
    assert own_url() == url


def test_a_command_uses_the_port_of_the_file(alone: Duetime) -> None:
    Path("duetime.toml").write_text("port = 9")
    result = alone("job", "list", env={"DUETIME_URL": ""})
    assert result.exit_code == 1
    assert "no Duetime at http://127.0.0.1:9;" in result.stderr


def test_a_url_takes_precedence_over_the_environment_and_that_over_the_file(alone: Duetime) -> None:
    Path("duetime.toml").write_text("port = 9")
    result = alone("job", "list", env={"DUETIME_URL": "", "DUETIME_PORT": "7"})
    assert "no Duetime at http://127.0.0.1:7;" in result.stderr
    result = alone("--url", "http://127.0.0.1:11", "job", "list", env={"DUETIME_PORT": "7"})
    assert "no Duetime at http://127.0.0.1:11;" in result.stderr


def test_an_invalid_file_is_named(alone: Duetime) -> None:
    Path("duetime.toml").write_text("port = ")
    result = alone("job", "list", env={"DUETIME_URL": ""})
    assert result.exit_code == 2
    assert "duetime.toml" in result.stderr
