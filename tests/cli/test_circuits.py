"""`duetime circuits`: the list of failing targets, and the end of a circuit."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Duetime, until
from served import served


@pytest.fixture
def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duetime]:
    """Commands with a server that opens a circuit after one failure, and a target that does not listen."""
    monkeypatch.setenv("DUETIME_CIRCUIT_BREAKER_THRESHOLD", "1")
    with served(tmp_path) as url, socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        yield Duetime(url, f"http://127.0.0.1:{unheard.getsockname()[1]}")


def test_a_target_that_fails_is_listed_and_closed(strict: Duetime) -> None:
    assert strict.ok("circuits", "list") == "No target has failed lately.\n"
    assert strict.json("circuits", "list") == {"circuits": []}
    name, _ = strict.create("--retries", "0", path="/hook?n=1")
    strict.run_until(name, "FAILED")
    (circuit,) = until(lambda: strict.json("circuits", "list")["circuits"], bool)
    assert (circuit["url"], circuit["state"], circuit["failures"]) == (f"{strict.target}/hook", "OPEN", 1)
    shown = strict.ok("circuits", "list")
    assert circuit["circuit"] in shown
    assert "in 2 min" in shown
    strict.run_until(name, "SKIPPED")
    assert f"the circuit of {strict.target}/hook is open since" in strict.ok("job", "why", name)
    assert strict.json("circuits", "close", circuit["circuit"])["circuit"] == circuit["circuit"]
    assert strict.ok("circuits", "list") == "No target has failed lately.\n"


def test_an_unknown_circuit_exits_1_with_a_message(strict: Duetime) -> None:
    for name in ("1" * 16, "what else"):
        result = strict("circuits", "close", name)
        assert result.exit_code == 1
        assert "there is no circuit" in result.stderr
