"""Settings for every test, however it is started."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import hypothesis
import pytest
import structlog
from structlog._config import BoundLoggerLazyProxy

from seeds import IS_STEADY

# On a busy machine an example may take any time: its duration is not what the test checks.
hypothesis.settings.register_profile(
    "duetime", max_examples=40 if IS_STEADY else 100, deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.load_profile("duetime")

# Variables around the test run do not apply to its nodes.
for name in [name for name in os.environ if name.startswith("DUETIME_") and not name.startswith("DUETIME_TEST")]:
    del os.environ[name]
# Many nodes run on one machine here, and the default port of the metrics is the same for all.
os.environ["DUETIME_METRICS_PORT"] = "0"
# Many tests share one target, and let it fail as often as they need.
os.environ["DUETIME_CIRCUIT_BREAKER_THRESHOLD"] = "0"
# A shell that starts the tests in the background makes them ignore Ctrl-C, and so would every process that a test
# starts to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# These tests need the machine for themselves. Clusters, and workers with their servers, mostly wait, and may run five
# at a time; all others run side by side.
ALONE: tuple[str, ...] = ("work/test_hostile_scripts.py",)
if os.geteuid() != 0:  # otherwise scripts share a user, and its limit on processes
    ALONE += ("executors/script",)
# Files that take long although they have few tests: a worker should not begin with them when all others are done.
LONG = (
    "api/test_schema.py", "promotion", "simulation", "property", "api/test_fuzz.py", "api/test_secrets_stay.py",
    "executors/test_ssrf_corpus.py", "docs", "contract/store", "generated", "api/test_slow_clients.py", "cli",
    "functions",
)  # fmt: skip
CLUSTERS = ("cluster", "work")
HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skips files without a test of the part that tests/run.py runs: reading them would take longer than some tests."""
    place = os.path.relpath(collection_path, HERE)
    match os.environ.get("DUETIME_TEST_PART"):
        case "clusters" if place != ".":
            return not place.startswith(CLUSTERS) or None
        case "alone" if place != ".":
            return not any(place.startswith(alone) or alone.startswith(place) for alone in ALONE) or None
        case "side by side":
            return place in CLUSTERS or None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _place(item).startswith(ALONE):
            item.add_marker(pytest.mark.alone)
        elif item.path.parent.name in CLUSTERS:
            item.add_marker(pytest.mark.cluster)
    items.sort(key=lambda item: next((at for at, name in enumerate(LONG) if _place(item).startswith(name)), len(LONG)))
    if seed := os.environ.get("DUETIME_TEST_SEED"):
        shuffle(items, random.Random(seed))


@pytest.fixture(autouse=True)
def logs_as_at_the_start() -> Iterator[None]:
    """A test that runs a command in this process configures its log: loggers must not keep that for later tests."""
    yield
    if not structlog.get_config()["cache_logger_on_first_use"]:
        return
    structlog.reset_defaults()
    for name, module in list(sys.modules.items()):
        if name.startswith("duetime.") and isinstance(log := vars(module).get("log"), BoundLoggerLazyProxy):
            vars(log).pop("bind", None)


def _place(item: pytest.Item) -> str:
    return os.path.relpath(item.path, HERE)


def shuffle(items: list[pytest.Item], order: random.Random) -> None:
    """Shuffles the files, and the tests within each: tests of a file stay together, and share its fixtures."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    order.shuffle(files)
    for tests in files:
        order.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports the failed tests to tests/run.py, for its summary."""
    if path := os.environ.get("DUETIME_TEST_FAILED"):
        reports = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
        Path(path).write_text("".join(f"{report.nodeid}\n" for report in reports))
