"""Faults planted in the running product, one at a time: the checker must report each of them.

A fault is a `sitecustomize` module on the path of the server's process only. The product does not contain it.
"""

from __future__ import annotations

import pytest

from cluster.processes import Server, wait_until
from cluster.scenario import Scenario, acknowledged

pytestmark = pytest.mark.slow

NO_RECONCILER = """
from duetime.engine.reconciler import Reconciler
async def run_once(self):
    return self._clock.now() + 60_000
Reconciler.run_once = run_once
"""

# The plan omits a due execution: its timer moves, and no execution is written.
FORGETFUL_PLAN = """
from duetime.engine.timer import Timer
whole = Timer._plan
async def plan(self, due, now):
    page = await whole(self, due, now)
    if len(page.executions) > 1:
        page.executions.pop(), page.claims.pop()
    return page
Timer._plan = plan
"""

# No fence: instants are not unique, and only every other fire moves its timers.
NO_FENCE = """
import msgspec
from duetime.domain import commands
from duetime.store.sqlite import SqliteStore, connection
load = connection.load_migrations
unfenced = lambda sql: sql.replace("CREATE UNIQUE INDEX executions_instant", "CREATE INDEX executions_instant")
connection.load_migrations = lambda: [(number, unfenced(sql)) for number, sql in load()]
whole, fires = SqliteStore.apply, [0]
async def apply(self, commands_):
    if type(commands_[0]) is commands.Fire:
        fires[0] += 1
        if fires[0] % 2:
            commands_ = [msgspec.structs.replace(commands_[0], moves=())]
    return await whole(self, commands_)
SqliteStore.apply = apply
"""

FAST_CLOCK = """
import time, types
from duetime.process import clock
clock.time = types.SimpleNamespace(
    time=lambda: time.time() + 3, time_ns=lambda: time.time_ns() + 3_000_000_000, monotonic=time.monotonic
)
"""

EAGER_SCHEDULE = """
from duetime.domain.schedule import Every
exact = Every.next_after
Every.next_after = lambda self, after: min(exact(self, after), after + self.period // 2)
"""

# The response is sent a minute before the commit, which a store must never do.
HASTY_STORE = """
import asyncio
from duetime.domain import commands
from duetime.store.sqlite import SqliteStore
whole = SqliteStore.apply
async def apply(self, commands_):
    if type(commands_[0]) is not commands.CreateJobs:
        return await whole(self, commands_)
    asyncio.get_running_loop().call_later(60, lambda: asyncio.ensure_future(whole(self, commands_)))
    return [None] * len(commands_)
SqliteStore.apply = apply
"""


def faulty(server: Server, fault: str) -> dict[str, str]:
    """Returns the environment in which the server's process has that fault."""
    folder = server.folder / "fault"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(fault)
    return {"PYTHONPATH": str(folder)}


def start_with(fault: str, server: Server, **settings: str) -> None:
    server.start(faulty(server, fault), **settings)


def due_together(scenario: Scenario, count: int, path: str = "/ok", lead_ms: int = 600) -> int:
    at = scenario.soon(lead_ms)
    scenario.create_batch([scenario.at(at, path) for _ in range(count)])
    return at


def wait_for_requests(scenario: Scenario, count: int) -> None:
    wait_until(lambda: scenario.receiver.count() >= count, 20, f"{count} requests")


def test_the_scenario_without_a_fault_passes(scenario: Scenario) -> None:
    start_with("", scenario.server)
    end_at = scenario.at(scenario.soon(2000))["schedule"]
    scenario.create(scenario.body("every 1s", end_at=end_at))
    due_together(scenario, 200)
    scenario.wait_for_quiet()
    scenario.assert_green()


def test_a_reconciler_that_does_nothing_leaves_orphans(scenario: Scenario) -> None:
    server = scenario.server.start()
    due_together(scenario, 200, "/slow/0.2")
    wait_for_requests(scenario, 64)
    server.kill()
    start_with(NO_RECONCILER, server)
    client = server.client
    waiting = "/executions?state=QUEUED&limit=1"
    wait_until(lambda: not client.get(waiting).json()["total"], 20, "what was queued has run")
    report = scenario.check()
    assert "ORPHAN" in report.verdicts, report


def test_a_plan_that_skips_an_execution_is_detected(scenario: Scenario) -> None:
    start_with(FORGETFUL_PLAN, scenario.server)
    due_together(scenario, 200)
    wait_for_requests(scenario, 100)
    pages = scenario.server.client.pages
    moved = lambda: not any(job["next_run_time"] for job in pages("/jobs", "jobs"))  # noqa: E731
    wait_until(moved, 20, "all timers have moved")
    running = "/executions?state=RUNNING&limit=1"
    wait_until(lambda: not scenario.server.client.get(running).json()["total"], 20, "all runs have ended")
    report = scenario.check()
    assert report.verdicts == {"MISSED"}, report


def test_without_the_fence_one_instant_has_two_executions(scenario: Scenario) -> None:
    start_with(NO_FENCE, scenario.server)
    due_together(scenario, 50)
    scenario.wait_for_quiet()
    report = scenario.check()
    assert "DUP-EXECUTION" in report.verdicts, report


def test_a_clock_that_is_ahead_causes_early_executions(scenario: Scenario) -> None:
    start_with(FAST_CLOCK, scenario.server)
    due_together(scenario, 20, lead_ms=3600)
    scenario.wait_for_quiet()
    report = scenario.check()
    assert "EARLY" in report.verdicts, report


def test_a_schedule_with_additional_instants_is_detected(scenario: Scenario) -> None:
    start_with(EAGER_SCHEDULE, scenario.server)
    scenario.create(scenario.body("every 1s", end_at=scenario.at(scenario.soon(2000))["schedule"]))
    scenario.wait_for_quiet()
    report = scenario.check()
    assert "EXTRA" in report.verdicts, report


def test_a_response_before_its_commit_loses_jobs(scenario: Scenario) -> None:
    start_with(HASTY_STORE, scenario.server)
    for _ in range(5):
        body = scenario.body("2099-01-01T00:00:00Z")
        answer = scenario.server.client.post("/jobs", body)
        assert answer.status == 201, answer
        scenario.jobs.append(acknowledged(body, answer.json()))
    scenario.kill()
    scenario.server.start()
    report = scenario.check()
    assert report.verdicts == {"LOST"}, report
