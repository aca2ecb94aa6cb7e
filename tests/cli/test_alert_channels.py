"""`duetime alert channel`: added, tested, listed without tokens, removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.conftest import Duetime
from security.inbox import Inbox, inbox

TOKEN = "T0K3N"


@pytest.fixture
def box() -> Iterator[Inbox]:
    with inbox() as made:
        yield made


def test_a_channel_is_added_from_standard_input_tested_and_removed(duetime: Duetime, box: Inbox) -> None:
    said = duetime.ok("alert", "channel", "add", "ops", "-", stdin=f"{box.url(f'/hook/{TOKEN}')}\n")
    assert said == f"ops is webhook http://127.0.0.1:{box.port}/…; try it: duetime alert channel test ops\n"
    assert duetime.ok("alert", "channel", "test", "ops") == "sent to ops\n"
    assert len(box.at(f"/hook/{TOKEN}")) == 1
    listed = duetime.ok("alert", "channel", "list")
    assert f"http://127.0.0.1:{box.port}/…" in listed
    assert TOKEN not in listed
    tested = duetime.json("alert", "channel", "test", "ops")
    assert tested["execution"]["state"] == "COMPLETED"
    assert duetime.json("alert", "channel", "remove", "ops")["name"] == "ops"
    assert duetime.ok("alert", "channel", "list") == "no alert channels\n"


def test_a_channel_of_a_service_names_its_kind(duetime: Duetime) -> None:
    made = duetime.json(
        "alert", "channel", "add", "chat", f"https://discord.com/api/webhooks/1/{TOKEN}", "--kind", "apprise"
    )
    assert (made["kind"], made["shown"]) == ("apprise", "https://discord.com/…")
    duetime.ok("alert", "channel", "remove", "chat")


def test_a_channel_that_fails_exits_1_with_the_reason(duetime: Duetime) -> None:
    duetime.ok("alert", "channel", "add", "broken", duetime.target + "/missing")
    result = duetime("alert", "channel", "test", "broken")
    assert result.exit_code == 1
    assert "it was not sent: 127.0.0.1 answered 404." in result.stderr
    duetime.ok("alert", "channel", "remove", "broken")


def test_an_empty_standard_input_and_a_service_that_is_none_are_refused(duetime: Duetime) -> None:
    assert "there is no URL on standard input" in duetime("alert", "channel", "add", "x", "-", stdin="").stderr
    result = duetime("alert", "channel", "add", "x", f"syslog://{TOKEN}")
    assert result.exit_code == 1
    assert "syslog:// is not a service that alerts can be sent to here" in result.stderr
    assert TOKEN not in result.stderr
