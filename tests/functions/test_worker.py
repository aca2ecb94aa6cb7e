"""A worker with a node in memory: assigned calls run and their ends are reported, also after failures."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import warnings
from collections import Counter
from typing import Any

import msgspec
import pytest

from duetime.domain.work import Polling
from duetime.functions.context import Context, Reject, Retry, current
from duetime.functions.registry import Registry
from duetime.functions.source import SourceRefused
from duetime.functions.worker import Backoff, Worker
from functions.jobs import APP, app
from functions.stage import NOW, Stage, working

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module", autouse=True)
def nothing_left_by_others() -> None:
    """Collects garbage of earlier tests, which would cause warnings during these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def registry_of(**functions: Any) -> Registry:
    registry = Registry()
    for name, function in functions.items():
        registry.register(function, name)
    return registry


class Gate:
    """Functions that record their start, and wait for a release."""

    def __init__(self, stage: Stage) -> None:
        self.begun: list[int] = []
        self.stopped: list[int] = []
        self._go = threading.Event()
        self._stage = stage
        self._loop = asyncio.get_running_loop()
        self.registry = registry_of(sync=self.sync, later=self.later, nothing=lambda: None)

    def sync(self, number: int, context: Context) -> int:
        self._say(self.begun, number)
        while not self._go.wait(0.005):
            if context.cancelled and number >= 0:  # a call with a negative number ignores it
                self._say(self.stopped, number)
                break
        return number

    async def later(self, number: int) -> int:
        self._say(self.begun, number)
        while not self._go.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                if number >= 0:
                    self._say(self.stopped, number)
                    raise
        return number

    def _say(self, where: list[int], number: int) -> None:
        where.append(number)
        self._loop.call_soon_threadsafe(self._stage.changed.set)

    def open(self) -> None:
        self._go.set()


KINDS = pytest.mark.parametrize("kind", ["sync", "later"])


# Results and errors


async def test_a_result_is_reported_as_json_and_arguments_are_converted():
    stage = Stage(on_wire=True)
    async with working(stage, app.registry, now=lambda: NOW):
        ended = await stage.run("add", 1, b=2)
    assert (ended.result, ended.error_type, ended.attempt, ended.started_at) == ("3", None, 1, NOW)
    assert ended.token == stage.claims[0].token


@pytest.mark.parametrize(
    ("function", "args", "kind", "message"),
    [
        ("fail", ["no paper"], "function_error", "ValueError: no paper"),
        ("fail", ["x" * 5000], "function_error", "ValueError: " + "x" * 1987 + "…"),
        ("fail", ["\ud800 half, \0 nul"], "function_error", "ValueError: ? half, \N{REPLACEMENT CHARACTER} nul"),
        ("leave", [3], "function_error", "SystemExit: 3"),
        ("reject", [], "rejected", "no such customer"),
        ("add", ["x"], "function_error", "ArgumentError: argument 'a' of add: Expected `int`, got `str`"),
        ("missing", [], "function_error", "this worker has no function 'missing'; start it with the app that has it"),
    ],
)  # fmt: skip
async def test_an_error_is_reported_with_its_type_and_text(function: str, args: list[Any], kind: str, message: str):
    stage = Stage()
    async with working(stage, app.registry):
        ended = await stage.run(function, *args)
        assert (ended.error_type, ended.error_message) == (kind, message)
        assert (await stage.run("add", 1)).result == "1", "the worker goes on"
    msgspec.json.decode(msgspec.json.encode(ended), type=type(ended))  # within the limits


async def test_a_function_can_raise_retry_with_a_delay():
    stage = Stage()
    async with working(stage, app.registry):
        ended = await stage.run("retry_later")
    assert (ended.error_type, ended.error_message) == ("function_error", "the other side is busy")
    assert ended.retry_after_seconds == 90


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 604_801, 10**400, "5", "soon", [], object()])
def test_an_invalid_delay_of_retry_is_refused(seconds: Any):
    with pytest.raises(ValueError, match="0 to 604800"):
        Retry(after_seconds=seconds)


class Unsaid(Exception):
    """An error whose text can't be read: str() raises SystemExit."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Bare(Retry):
    """A user's subclass that sets no attribute of Retry."""

    def __init__(self) -> None: ...


def later(after_seconds: Any) -> Retry:
    error = Retry(5, "later")
    error.after_seconds = after_seconds
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message", "seconds"),
    [
        (Reject(ValueError("no such customer")), "rejected", "no such customer", None),  # type: ignore[arg-type]
        (Reject(404), "rejected", "404", None),  # type: ignore[arg-type]
        (Retry(5, ValueError("busy")), "function_error", "busy", 5),  # type: ignore[arg-type]
        (Reject(Unsaid()), "rejected", "(its text is not available)", None),  # type: ignore[arg-type]
        (Bare(), "function_error", "the function raised Retry", None),
        (later(float("nan")), "function_error", "later", None),
        (later(float("inf")), "function_error", "later", None),
        (later(-1e300), "function_error", "later", None),
        (later("soon"), "function_error", "later", None),
        (Unsaid(), "function_error", "Unsaid: (its text is not available)", None),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_every_exception_of_a_function_ends_its_attempt(
    error: Exception, kind: str, message: str, seconds: float | None, is_async: bool
):
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    stage = Stage()
    async with working(stage, registry_of(fail=fail_async if is_async else fail, fine=lambda: 1)):
        ended = await stage.run("fail")
        assert (ended.error_type, ended.error_message, ended.retry_after_seconds) == (kind, message, seconds)
        assert (await stage.run("fine")).result == "1", "the worker goes on"
    msgspec.json.decode(msgspec.json.encode(ended), type=type(ended))  # within the limits


async def test_a_number_that_is_not_finite_is_no_result_and_no_progress():
    def save(context: Context) -> None:
        context.save_progress([float("nan")])

    stage = Stage()
    async with working(stage, registry_of(inf=lambda: {"a": float("inf")}, null=lambda: [None, "null"], save=save)):
        returned, fine, saved = await stage.run("inf"), await stage.run("null"), await stage.run("save")
    assert (returned.error_type, returned.result) == ("rejected", "{'a': inf}")
    assert "nan or an infinite number" in returned.error_message
    assert (fine.error_type, fine.result) == (None, '[null,"null"]')
    assert "ValueError: progress must be JSON" in saved.error_message


@pytest.mark.parametrize("pool", [{}, {"pool": "process", "app": APP}], ids=["thread", "process"])
async def test_failures_are_logged_with_their_traceback(caplog: pytest.LogCaptureFixture, pool: dict[str, Any]):
    stage = Stage()
    with caplog.at_level(logging.INFO, "duetime.functions"):
        async with working(stage, app.registry, slots=1, **pool):
            for name, args in (("add", [1]), ("fail", ["no paper"]), ("reject", []), ("retry_later", [])):
                await stage.run(name, *args)
    found = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "duetime.functions"]
    assert [level for level, _ in found] == ["ERROR", "ERROR", "INFO"]
    assert found[0][1].startswith("fail: attempt 1 of execution e1 ended with function_error: ValueError: no paper\n")
    assert "raise ValueError(message)" in found[0][1]
    assert found[1][1] == "reject: attempt 1 of execution e2 ended with rejected: no such customer"
    assert found[2][1].endswith("ended with function_error: the other side is busy")


async def test_results_that_cannot_be_stored_are_errors_of_the_function():
    stage = Stage(on_wire=True)
    async with working(stage, app.registry):
        one, two = await stage.run("unserialisable"), await stage.run("large")
    assert one.error_message == (
        "its result can't be written as JSON: Encoding objects of type object is unsupported; "
        "return a JSON value, or None"
    )
    assert two.error_message.startswith("its result has 20002 characters as JSON, and 16384 are the most")
    assert (one.error_type, two.error_type) == ("rejected", "rejected"), "once is enough: it would return the same"
    assert one.result.startswith("<object object at")
    assert two.result == '"' + "x" * 16_383


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, RecursionError])
async def test_no_exception_of_an_async_function_ends_the_worker(kind: type[BaseException]):
    async def raises() -> None:
        raise kind("x")

    stage = Stage()
    async with working(stage, registry_of(raises=raises, nothing=lambda: None)):
        assert (await stage.run("raises")).error_message == f"{kind.__name__}: x"
        assert (await stage.run("nothing")).error_type is None


# Logs and progress


async def test_the_output_of_a_call_is_in_its_own_log_only():
    stage = Stage()
    async with working(stage, app.registry):
        await asyncio.gather(*(stage.run("speak") for _ in range(20)))
        logging.getLogger("shop").error("outside of any call")
    for execution_id in stage.ends:
        assert stage.log_of(execution_id) == "one 1\nERROR two %\nthree\n"


async def test_async_functions_have_separate_logs_and_contextvars():
    seen = contextvars.ContextVar("seen", default=0)

    async def say(number: int) -> int:
        before = seen.get()
        seen.set(number)
        await asyncio.sleep(0)
        logging.getLogger().warning("I am %s", number)
        current().log(seen.get())
        return before

    def say_sync(number: int) -> int:
        before = seen.get()
        seen.set(number)
        return before

    stage = Stage()
    async with working(stage, registry_of(say=say, say_sync=say_sync)):
        for number in range(1, 31):
            stage.add("say" if number % 3 else "say_sync", number)
        await stage.until(lambda: all(stage.ends.values()))
    assert {ends[0].result for ends in stage.ends.values()} == {"0"}, "what one call sets is not there for another"
    assert stage.log_of("e0") == "WARNING I am 1\n1\n"


async def test_a_failed_functions_traceback_is_in_its_log():
    stage = Stage()
    async with working(stage, app.registry):
        await stage.run("fail", "no paper")
    log = stage.log_of("e0")
    assert log.startswith("Traceback (most recent call last):\n")
    assert log.endswith("ValueError: no paper\n")
    assert "calls.py" not in log, "the worker's own frames are of no use"


async def test_lines_are_reported_while_the_call_runs():
    stage = Stage()
    gate = Gate(stage)

    def talk(context: Context) -> None:
        context.log("begun")
        context.save_progress(50)
        gate.sync(1, context)

    async with working(stage, registry_of(talk=talk)):
        execution_id = stage.add("talk")
        await stage.until(lambda: stage.log_of(execution_id) == "begun\n")
        assert stage.progress[execution_id] == 50
        assert not stage.ends[execution_id]
        gate.open()
        await stage.end_of(execution_id)


async def test_a_log_is_cut_at_a_mebibyte_and_sent_before_the_end():
    stage = Stage(on_wire=True)
    async with working(stage, app.registry):
        ended = await stage.run("chatter", 3000)
    log = stage.log_of("e0")
    assert ended.error_type is None
    assert log.endswith("(the log of this attempt was cut here: it is longer than 1 MiB)\n")
    assert 1_048_576 <= len(log) < 1_048_576 + 200
    assert max(len(text) for _, text in stage.notes["e0"]) <= 65_536


async def test_the_next_attempt_has_the_saved_progress():
    stage = Stage(on_wire=True)
    async with working(stage, app.registry):
        assert (await stage.run("step")).result is None
        stage.again("e0")
        await stage.until(lambda: len(stage.ends["e0"]) == 2)
    assert stage.ends["e0"][1].result == '{"step":1}'
    assert stage.progress["e0"] == {"step": 2}


# Many calls


@pytest.mark.parametrize("name", ["nothing", "later"])
async def test_five_thousand_calls_all_run_exactly_once(name: str):
    runs: Counter[int] = Counter()

    def nothing(number: int) -> None:
        runs[number] += 1

    async def later(number: int) -> None:
        runs[number] += 1

    stage = Stage()
    for number in range(5000):
        stage.add(name, number)
    async with working(stage, registry_of(nothing=nothing, later=later), slots=16):
        await stage.until(lambda: not stage.waiting and not stage.held)
    assert runs == Counter(range(5000))
    assert {len(ends) for ends in stage.ends.values()} == {1}
    assert len(stage.reports) < 1000, "ends are reported together"
    assert max(stage.reports) <= 1000


@KINDS
async def test_as_many_calls_run_as_there_are_slots_and_no_more(kind: str):
    stage = Stage()
    gate = Gate(stage)
    for number in range(9):
        stage.add(kind, number)
    async with working(stage, gate.registry, slots=6):
        await stage.until(lambda: len(gate.begun) == 6)
        assert stage.frees[0] == 6
        assert len(stage.held) == 6, "what has no slot is left for other workers"
        gate.open()
        await stage.until(lambda: all(stage.ends.values()))
    assert sorted(gate.begun) == list(range(9))


async def test_prefetched_calls_that_wait_behind_long_calls_are_given_back():
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry, slots=2) as worker:
        stage.add("sync", 1)
        stage.add("sync", 2)
        await stage.until(lambda: len(gate.begun) == 2)
        ahead = stage.add("nothing")
        given = (await stage.poll(Polling(1, 1))).assignments
        worker._runner.offer(given)
        stage.polls[1] += 1  # the response has arrived
        await stage.until(lambda: ahead not in stage.held)
        assert [claim.execution_id for claim in stage.waiting] == [ahead]
        assert stage.unbegun == [given[0].claim]
        gate.open()
        await stage.end_of(ahead)
    assert len(stage.ends[ahead]) == 1


# Timeouts and cancels


@KINDS
async def test_a_call_that_exceeds_its_timeout_is_reported_as_timed_out(kind: str):
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry, slots=1):
        ended = await stage.run(kind, 1, timeout_seconds=0.5)
        assert (ended.error_type, ended.error_message) == ("timeout", "it ran longer than its timeout of 0.5 seconds")
        assert (await stage.run("nothing")).error_type is None, "the slot is free again"
    assert gate.stopped == [1]


@KINDS
async def test_a_call_that_ignores_its_timeout_is_reported_and_keeps_its_slot(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("duetime.functions.runner.GRACE_SECONDS", 0.1)
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry, slots=2):
        ended = await stage.run(kind, -1, timeout_seconds=0.5)
        assert ended.error_type == "timeout"
        stage.add(kind, 5)
        await stage.until(lambda: 5 in gate.begun)
        other = stage.add("nothing")
        assert other not in stage.held
        assert stage.frees[-1] == 1, "one of two slots is taken for as long as the function runs"
        gate.open()
        await stage.end_of(other)
    assert [len(ends) for ends in stage.ends.values()] == [1, 1, 1], "what it returned in the end was dropped"


@KINDS
async def test_a_running_call_that_is_cancelled_stops(kind: str):
    stage = Stage(lease_seconds=1.5)
    gate = Gate(stage)
    async with working(stage, gate.registry):
        one, two = stage.add(kind, 1), stage.add(kind, 2)
        await stage.until(lambda: len(gate.begun) == 2)
        stage.cancel(one)
        await stage.until(lambda: bool(stage.ends[one]))
        assert (stage.ends[one][0].error_type, stage.ends[one][0].error_message) == ("cancelled", "it was cancelled")
        assert gate.stopped == [1]
        gate.open()
        await stage.until(lambda: bool(stage.ends[two]))
    assert stage.ends[two][0].error_type is None


async def test_a_cancel_of_an_older_claim_stops_nothing():
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry) as worker:
        execution_id = stage.add("sync", 1)
        await stage.until(lambda: gate.begun == [1])
        (claim,) = worker._runner.running()
        worker._runner.cancel(msgspec.structs.replace(claim, token=claim.token - 1))
        gate.open()
        assert (await stage.end_of(execution_id)).error_type is None
    assert gate.stopped == []


# The source


async def test_a_silent_worker_keeps_its_lease():
    stage = Stage(lease_seconds=3, keeps_time=True)
    async with working(stage, app.registry):
        await stage.until(lambda: len(stage.reports) == 4)
    assert len(stage.joins) == 1


async def test_ends_wait_while_the_source_is_away_and_are_reported_once():
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry):
        ids = [stage.add("sync", number) for number in range(5)]
        await stage.until(lambda: len(gate.begun) == 5)
        stage.is_away = True
        gate.open()
        stage.changed.clear()
        await stage.changed.wait()  # it has tried to join
        assert len(stage.held) == 5
        stage.is_away = False
        await stage.until(lambda: all(stage.ends.values()))
        later = await stage.run("nothing")
    assert [stage.ends[e][0].result for e in ids] == ["0", "1", "2", "3", "4"]
    assert later.error_type is None
    assert len(stage.joins) == 1


async def test_a_report_whose_response_was_lost_is_sent_again_and_counts_once():
    stage = Stage()
    async with working(stage, app.registry):
        stage.loses_answers = True
        execution_id = stage.add("add", 1)
        await stage.until(lambda: sum(stage.reports) >= 2)
        stage.loses_answers = False
        assert (await stage.run("add", 2)).result == "2"
    assert len(stage.ends[execution_id]) == 1
    assert stage.refused == []


@KINDS
async def test_a_worker_that_lost_its_lease_abandons_its_calls_and_joins_again(kind: str):
    stage = Stage(lease_seconds=1.5)
    gate = Gate(stage)
    async with working(stage, gate.registry, slots=4):
        execution_id = stage.add(kind, 1)
        await stage.until(lambda: gate.begun == [1])
        stage.lose()
        await stage.until(lambda: gate.begun == [1, 1])
        assert gate.stopped == [1], "the first was told to stop"
        assert len(stage.joins) == 2
        gate.open()
        await stage.until(lambda: bool(stage.ends[execution_id]))
    assert stage.ends[execution_id][0].token == stage.claims[1].token
    assert stage.refused == []


async def test_nothing_begins_while_the_lease_is_in_doubt():
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry) as worker:
        worker._runner.trusted_until = 0.0
        execution_id = stage.add("nothing")
        later = stage.add("later", 1)
        await stage.until(lambda: {execution_id, later} <= set(stage.held))
        await asyncio.sleep(0)
        assert gate.begun == []
        assert not stage.ends[execution_id]
        worker._outbox.send_soon(at_once=True)  # a report renews it
        await stage.until(lambda: bool(stage.ends[execution_id]) and gate.begun == [1])
        gate.open()
        await stage.end_of(later)


async def test_a_refused_worker_stops_with_the_message():
    stage = Stage()
    stage.refusal = "this key may not run functions"
    with pytest.raises(SourceRefused, match="this key may not run functions"):
        await Worker(stage, app.registry).run()


async def test_a_worker_waits_for_a_source_that_is_away():
    stage = Stage()
    stage.is_away = True
    worker = Worker(stage, app.registry)
    running = asyncio.create_task(worker.run())
    await stage.changed.wait()
    stage.is_away = False
    await stage.until(lambda: bool(stage.joins))
    worker.stop()
    await running
    assert stage.left == [1]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the waits of a worker before its next poll, and skips them."""
    taken: list[float] = []

    async def sleep(_: Backoff, seconds: float, __: asyncio.Event) -> None:
        taken.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Backoff, "sleep", sleep)
    return taken


async def test_a_source_that_returns_nothing_at_once_is_polled_less_and_less_often(pauses: list[float]):
    stage = Stage()
    stage.is_hasty = True
    async with working(stage, app.registry):
        await stage.until(lambda: stage.polls.get(1, 0) >= 10)
        assert len(pauses) >= 9, "there is a pause after each"
        assert sum(pauses[:9]) >= 3
        stage.is_hasty = False
        assert (await stage.run("add", 1)).result == "1"


async def test_a_poll_waits_for_retry_after_even_if_reports_succeed(
    pauses: list[float],
):
    stage = Stage(lease_seconds=0.03)
    stage.busy_seconds = 7
    async with working(stage, app.registry):
        await stage.until(lambda: stage.polls.get(1, 0) >= 5 and len(stage.reports) >= 5)
        assert min(pauses) >= 7
        stage.busy_seconds = None
        assert (await stage.run("add", 1)).result == "1"


def test_invalid_arguments_of_a_worker_are_reported():
    with pytest.raises(ValueError, match="has no functions"):
        Worker(Stage(), Registry())
    with pytest.raises(ValueError, match="1 to 1000; it is 0"):
        Worker(Stage(), app.registry, slots=0)
    with pytest.raises(ValueError, match="needs `app`"):
        Worker(Stage(), app.registry, pool="process")


# Stopping


@KINDS
async def test_a_stopping_worker_takes_no_calls_and_waits_for_running_ones(kind: str):
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry, slots=2) as worker:
        ids = [stage.add(kind, number) for number in range(2)]
        await stage.until(lambda: len(gate.begun) == 2)
        worker.stop()
        later = stage.add(kind, 9)
        reports = len(stage.reports)
        await stage.until(lambda: len(stage.reports) > reports)
        assert stage.left == [], "it waits for what runs"
        gate.open()
        await stage.until(lambda: stage.left == [1])
    assert [stage.ends[e][0].error_type for e in ids] == [None, None]
    assert [claim.execution_id for claim in stage.waiting] == [later]
    assert sorted(gate.begun) == [0, 1]


@pytest.mark.parametrize("impatience", ["a second signal", "the time is over"])
@KINDS
async def test_calls_that_exceed_the_drain_time_go_to_other_workers(kind: str, impatience: str):
    stage = Stage()
    gate = Gate(stage)
    async with working(stage, gate.registry, drain_seconds=60 if impatience == "a second signal" else 0.05) as worker:
        execution_id = stage.add(kind, 1)
        await stage.until(lambda: gate.begun == [1])
        worker.stop()
        if impatience == "a second signal":
            worker.stop()
        await stage.until(lambda: stage.left == [1])
        assert [claim.execution_id for claim in stage.waiting] == [execution_id]
        await stage.until(lambda: gate.stopped == [1])
        gate.open()
    assert stage.ends[execution_id] == []
