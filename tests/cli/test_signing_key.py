"""`duetime signing-key`: shows and rotates the key, with a real server."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Duetime
from served import served

MASTER = f"whsec_{b64encode(bytes(range(32))).decode()}"


@pytest.fixture
def signing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duetime]:
    monkeypatch.setenv("DUETIME_SIGNING_SECRETS", MASTER)
    with served(tmp_path) as url:
        yield Duetime(url)


def test_a_key_is_shown_rotated_and_ended(signing: Duetime) -> None:
    first = signing.json("signing-key", "show")
    lines = signing.ok("signing-key", "show").splitlines()
    assert lines[0] == first["secret"]  # alone on its line
    assert MASTER not in str(lines)
    second = signing.json("signing-key", "rotate", "--overlap", "7d")
    assert (second["version"], second["others"][0]["secret"]) == (2, first["secret"])
    shown = signing.ok("signing-key", "show")
    assert shown.splitlines()[0] == second["secret"]
    assert first["secret"] in shown
    assert "until" in shown
    refused = signing("signing-key", "rotate")
    assert refused.exit_code == 1
    assert "still signs" in refused.stderr
    assert first["secret"] not in signing.ok("signing-key", "rotate", "--overlap", "0s")


@pytest.mark.parametrize("overlap", ["long", "-1s"])
def test_an_overlap_that_is_not_a_duration_is_refused_without_a_request(alone: Any, overlap: str) -> None:
    result = alone("signing-key", "rotate", f"--overlap={overlap}")
    assert result.exit_code == 2
    assert "must be a duration" in result.stderr


def test_without_secrets_the_message_names_the_setting(duetime: Duetime) -> None:
    result = duetime("signing-key", "show", "--json")
    assert result.exit_code != 0
    assert "SIGNING_SECRETS" in json.dumps(result.stderr)
