"""LOG_LEVEL: one level for all areas, and others for single areas."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from docs.pages import ROOT
from duetime.cli.main import app
from duetime.domain.log_levels import AREAS, LogLevels, parse_log_levels
from patience import PATIENCE_SECONDS


def test_a_level_alone_holds_for_all_areas():
    assert parse_log_levels(" Warning ") == LogLevels("warning")


def test_areas_have_levels_of_their_own():
    levels = parse_log_levels("info, engine=debug,api=warning")
    assert levels == LogLevels("info", {"engine": "debug", "api": "warning"})
    assert [levels.of(area) for area in ("engine", "api", "store")] == ["debug", "warning", "info"]
    assert levels.lowest == "debug"
    assert parse_log_levels("engine=debug").default == "info"


def test_libraries_log_warnings_unless_they_are_named():
    assert [parse_log_levels(text).of("libraries") for text in ("debug", "error", "info,libraries=info")] == [
        "warning", "error", "info",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loud", "the level must be one of debug, info, warning, error"),
        ("info,engin=debug", "there is no area 'engin'; did you mean engine?"),
        ("info,xyz=debug", "there is no area 'xyz'; areas are api, "),
        ("info,engine=loud", "the level of the area 'engine' must be one of"),
        ("info,engine=", "the level of the area 'engine' must be one of"),
        ("", "the level must be one of"),
        ("info,,", "the level must be one of"),
    ],
)
def test_a_bad_value_ends_the_start_with_2_and_names_the_area(text: str, said: str):
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_log_levels(text)
    result = CliRunner().invoke(app, ["serve"], env={"DUETIME_LOG_LEVEL": text})
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_every_package_that_logs_is_an_area():
    logging = re.compile(r"\blog\.(debug|info|warning|error)\(|\bdebug\(")
    source = ROOT / "src" / "duetime"
    found = {
        file.relative_to(source).parts[0].removesuffix(".py")
        for file in source.rglob("*.py")
        if logging.search(file.read_text())
    }
    assert found - {"assembly"} <= set(AREAS)
    assert "assembly" in AREAS


CODE = """
import logging
import structlog
from duetime.domain.log_levels import parse_log_levels
from duetime.telemetry.debugging import debug
from duetime.telemetry.logs import configure_logs
configure_logs(parse_log_levels("{levels}"))

def write(module):
    names = {{"__name__": module, "log": structlog.get_logger(), "debug": debug, "structlog": structlog}}
    exec("log.info(module + ' info', a=1)\\nlog.warning(module + ' warning')\\ndebug(module + ' debug')",
         names | {{"module": module}})

for module in ("duetime.engine.timer", "duetime.api.gate", "duetime.store.sqlite"):
    write(module)
logging.getLogger("uvicorn.error").info("library info")
try:
    raise ValueError("bad")
except ValueError:
    logging.getLogger("asyncio").warning("library warning %s", 1, exc_info=True)
logging.getLogger("opentelemetry.exporter").error("it names its endpoint")
"""


def lines(levels: str) -> list[dict[str, str]]:
    shown = subprocess.run(
        [sys.executable, "-c", CODE.format(levels=levels)], capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=True,
    ).stderr  # fmt: skip
    return [json.loads(line) for line in shown.splitlines()]


def test_a_line_is_written_if_its_area_logs_its_level():
    assert [line["event"] for line in lines("info,engine=debug,api=warning")] == [
        "duetime.engine.timer info", "duetime.engine.timer warning", "duetime.engine.timer debug",
        "duetime.api.gate warning", "duetime.store.sqlite info", "duetime.store.sqlite warning", "library warning 1",
    ]  # fmt: skip
    assert [line["event"] for line in lines("error,store=warning")] == ["duetime.store.sqlite warning"]


def test_lines_of_libraries_are_lines_like_others():
    (line,) = [line for line in lines("warning") if line["event"].startswith("library")]
    assert (line["level"], line["logger"]) == ("warning", "asyncio")
    assert "ValueError: bad" in line["exception"]
    assert any(line["event"] == "library info" for line in lines("info,libraries=info"))
