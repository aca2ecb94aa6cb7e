"""Pages that list parts of the code list all of them, and nothing else."""

from __future__ import annotations

import re
import tomllib

from typer.testing import CliRunner

from docs.pages import ROOT, text
from duetime.cli.main import app as cli
from duetime.domain.identity import Right
from duetime.engine.service import Service

SOURCES = ROOT / "src" / "duetime"
ARCHITECTURE = text("docs/explanation/architecture.md")
ACTION = re.compile(r"\b(?:own_)?entry\((?:[^\"()]|\([^()]*\))*?\"([a-z_]+\.[a-z_]+)\"")


def test_exactly_the_actions_of_the_audit_are_named() -> None:
    written = {action for file in SOURCES.rglob("*.py") for action in ACTION.findall(file.read_text())}
    assert {"job.create", "job.sweep"} <= written
    (row,) = re.findall(r"^\| `action` \| (.*) \|$", text("docs/how-to/read-the-audit.md"), re.MULTILINE)
    assert set(re.findall(r"`([a-z_.]+)`", row)) == written


def test_every_loop_of_the_engine_is_named_with_its_file() -> None:
    import duetime.node  # noqa: F401 (loads all of them)

    modules = {kind.__module__ for kind in Service.__subclasses__()}
    files = {f"engine/{name.rpartition('.')[2]}.py" for name in modules if name.startswith("duetime.")}
    page = ARCHITECTURE.split("## The loops")[1].split("\n## ")[0]
    assert set(re.findall(r"^\|.*\| `(engine/[a-z_]+\.py)` \|$", page, re.MULTILINE)) == files


def test_the_documented_layers_are_the_enforced_ones() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    enforced = [sorted(layer.replace("duetime.", "").split(" | ")) for layer in contracts[0]["layers"]]
    block = ARCHITECTURE.split("## Layers")[1].split("```")[1]
    assert [sorted(line.split(" · ")) for line in block.strip().splitlines()] == enforced


def test_the_files_that_the_architecture_names_exist() -> None:
    named = set(re.findall(r"[\w/]+\.py\b", ARCHITECTURE))
    assert len(named) > 30, "the pictures name their files"
    assert [name for name in sorted(named) if not (SOURCES / name).exists() and not (ROOT / name).exists()] == []


def test_the_pictures_of_the_architecture_name_what_their_files_define() -> None:
    """`Class (file.py)`, `Class.method (file.py)` and `function (file.py)`."""
    pictured = re.findall(r"\b([A-Za-z_][\w.]*)\s+\(([\w/]+\.py)\)", ARCHITECTURE)
    assert len(pictured) > 50
    for name, file in pictured:
        source = (SOURCES / file).read_text()
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def|async def) {part}\b", source, re.MULTILINE), f"{file} has no {name}"


def test_every_right_is_named_in_the_help_of_scope_and_in_the_table_of_rights() -> None:
    help_text = CliRunner().invoke(cli, ["token", "create", "--help"], env={"COLUMNS": "400", "NO_COLOR": "1"}).output
    (line,) = [line for line in help_text.splitlines() if "--scope" in line and "Only this right" in line]
    for right in Right:
        assert re.search(rf"\b{right}\b", line), right
    table = text("docs/how-to/let-people-in.md").split("## Who may do what")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([a-z]+)`", row)} == set(Right)


def test_pages_of_functions_explain_where_output_goes() -> None:
    for page in ("docs/how-to/python-functions.md", "docs/how-to/read-logs.md"):
        assert "--pool process" in text(page), page
        assert "function printed" not in text(page), page
