"""The reference is complete: it documents everything that the code has, and nothing else."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.pages import ROOT, text
from duetime.api import problems
from duetime.cli.main import app as cli
from duetime.domain.errors import DuetimeError
from duetime.domain.job import JobStatus, Overlap
from duetime.domain.states import ErrorType, State, Trigger
from duetime.settings.names import FOREIGN
from duetime.settings.table import SETTINGS
from served import served


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


OF_OTHERS = "## Settings of other schedulers\n"
COMMANDS = dict(commands(get_command(cli)))


def codes(kind: type[DuetimeError] = DuetimeError) -> set[str]:
    return {kind.code}.union(*(codes(child) for child in kind.__subclasses__()))


def test_exactly_the_settings_are_documented_with_their_defaults_and_help() -> None:
    ours = text("docs/reference/settings.md").split(OF_OTHERS)[0]
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| (.*?) \|", ours, re.MULTILINE)
    assert rows == [(name, f"`{it.default}`" if it.default else "(empty)", it.help) for name, it in SETTINGS.items()]


def test_exactly_the_settings_of_other_schedulers_are_documented() -> None:
    section = text("docs/reference/settings.md").split(OF_OTHERS)[1].split("\n\nFor the command line")[0]
    names = [name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall("`(.*?)`", row)]
    assert sorted(names) == sorted(FOREIGN)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_is_documented_with_its_options(path: tuple[str, ...]) -> None:
    heading, page = f"### `duetime {' '.join(path)}`\n", text("docs/reference/cli.md")
    assert heading in page
    section = page.split(heading)[1].split("\n#")[0]
    for option in COMMANDS[path].params:
        if option.param_type_name == "option" and option.name not in ("help", "as_json"):
            assert f"`{option.opts[0]}`" in section


def test_no_unknown_command_is_documented() -> None:
    documented = re.findall(r"^### `duetime (.+)`$", text("docs/reference/cli.md"), re.MULTILINE)
    assert sorted(documented) == sorted(map(" ".join, COMMANDS))


def test_exactly_the_routes_are_documented(tmp_path: Path) -> None:
    with served(tmp_path) as url, urllib.request.urlopen(f"{url}/openapi.json") as answer:
        document = json.load(answer)
    routes = {f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations}
    documented = re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", text("docs/reference/api.md"), re.MULTILINE)
    assert set(documented) == routes
    assert len(documented) == len(routes)


def test_exactly_the_errors_are_documented() -> None:
    documented = re.findall(r"^\| `([A-Z_]+)` \| \d+ \|", text("docs/reference/errors.md"), re.MULTILINE)
    assert set(documented) == codes() | set(problems._TITLES) | {"FORBIDDEN"}


def test_every_error_is_documented_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", text("docs/reference/errors.md"), re.MULTILINE))
    for kind in (DuetimeError, *DuetimeError.__subclasses__()):
        assert rows[kind.code] == str(kind.status)


def test_every_error_type_is_documented() -> None:
    section = text("docs/reference/errors.md").split("## Why an attempt failed")[1]
    documented = re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)
    assert sorted(documented[1:]) == sorted(ErrorType)


def test_exactly_the_states_statuses_and_triggers_are_documented() -> None:
    documented = re.findall(r"^\| `([A-Z]+)` \|", text("docs/reference/states.md"), re.MULTILINE)
    assert sorted(documented) == sorted([*State, *JobStatus])
    section = text("docs/reference/states.md").split("`trigger`\n", 1)[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)[1:]) == sorted(Trigger)


def test_every_overlap_policy_is_documented() -> None:
    section = text("docs/how-to/catch-up-and-overlap.md").split("## What if the last execution")[1]
    assert sorted(re.findall(r"^\| `([a-z_]+)`.*? \|", section, re.MULTILINE)[1:]) == sorted(Overlap)


def test_every_event_is_documented() -> None:
    page = text("docs/reference/events.md")
    sources = "".join(file.read_text() for file in (ROOT / "src" / "duetime").rglob("*.py"))
    kinds = set(re.findall(r"publish\(\s*\"([a-z.]+)\"", sources))
    assert kinds
    for kind in kinds:
        assert f"`{kind}`" in page
