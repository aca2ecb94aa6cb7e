"""Enqueued calls: arguments of any name, secrets, and calls that are refused."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from duetime import Duetime
from duetime.client import operations
from duetime.domain.connection_urls import BadUrl, parse_url
from duetime.functions import ArgumentError
from duetime.sdk.definitions import definition
from sdk.conftest import Calls, until

SECRET = "hunter2-and-more"


def job_of(app: Duetime, job_id: str) -> dict[str, Any]:
    payload: dict[str, Any] = app._ask().ask(operations.get_job(job_id)).payload
    return payload


@pytest.mark.parametrize(
    ("args", "kwargs", "options"),
    [
        ([], {"user": "ann", "token": SECRET}, {"secret": "token"}),
        ([], {"user": "ann", "token": SECRET}, {"secret": ["token"]}),
        ([], {"user": "ann", "token": SECRET}, {"secret": ["/kwargs/token"]}),
        ([], {"user": "ann", "token": SECRET}, {"job": {"payload": {"secret": ["/kwargs/token"]}}}),
        (["ann", SECRET], {}, {"secret": "token"}),
        (["ann"], {"token": SECRET}, {"secret": "token"}),
    ],
)
def test_a_marked_argument_is_stored_as_a_secret(
    app: Duetime, calls: Calls, tmp_path: Path, args: list[Any], kwargs: Any, options: Any
) -> None:
    @app.job(name="log-in")
    def log_in(user: str, token: str) -> None:
        calls.add((user, token))

    with app:
        made = app.enqueue(log_in, *args, **options, **kwargs)
        assert calls.wait(1) == [("ann", SECRET)]
        assert SECRET not in str(job_of(app, made.job_id))
    assert not [file for file in (tmp_path / "jobs").glob("*.db*") if SECRET.encode() in file.read_bytes()]


def test_an_argument_of_an_unknown_function_can_be_marked() -> None:
    job = definition("elsewhere", None, [1], {"token": SECRET}, {}, "token")
    assert job["payload"]["secret"] == ["/kwargs/token"]


def test_a_part_of_an_argument_and_arguments_of_a_declared_job_can_be_secret(app: Duetime) -> None:
    @app.job("@yearly", name="pay", kwargs={"card": {"number": SECRET, "name": "ann"}}, secret="/kwargs/card/number")
    def pay(card: dict[str, str]) -> None: ...

    with app:
        made = app.enqueue(pay, {"number": SECRET, "name": "ann"}, secret="/kwargs/card/number")
        many = app.enqueue_many(pay, [{"card": {"number": SECRET}}], secret="/kwargs/card/number")
        listed = app._ask().ask(operations.list_jobs(name="pay").page(10)).jobs
    assert {job.job_id for job in listed} > {made.job_id, *many.created}
    assert SECRET not in str(listed)
    assert {job.payload["secret"][0] for job in listed} == {"/kwargs/card/number"}


def test_a_mark_that_names_no_argument_is_refused(app: Duetime) -> None:
    @app.job(name="log-in")
    def log_in(*tokens: str, **others: str) -> None: ...

    with app:
        for call in (
            lambda: app.enqueue(log_in, SECRET, secret="token"),
            lambda: app.enqueue(log_in, SECRET, secret="tokens"),
            lambda: app.enqueue("elsewhere", SECRET, secret="token"),
            lambda: app.enqueue(log_in, token=SECRET, secret="/args/0"),
        ):
            with pytest.raises(ArgumentError, match="names no argument"):
                call()
        with pytest.raises(ValueError, match="may only have `secret`"):
            app.enqueue(log_in, job={"payload": {"kwargs": {"token": SECRET}}})


def test_a_function_can_have_parameters_with_the_names_of_enqueues(app: Duetime, calls: Calls) -> None:
    @app.job(name="move")
    def move(job: str, at: str, secret: int = 0) -> None:
        calls.add((job, at, secret))

    with app:
        app.enqueue(move, "by place", "noon")
        app.enqueue_call(move, ["gathered"], {"at": "noon", "secret": 2})
        app.enqueue_call("move", kwargs={"job": "by name", "at": "noon"}, at=timedelta(0))
        app.enqueue_many(move, [{"job": "many", "at": "noon"}])
        found = calls.wait(4)
        for words in ({"at": "noon"}, {"job": {"priority": 9}}, {"secret": "job"}):
            with pytest.raises(ArgumentError, match=r"move has a parameter '.*', and so has enqueue\(\)"):
                app.enqueue(move, "a", "b", **words)
    assert sorted(found) == [
        ("by name", "noon", 0), ("by place", "noon", 0), ("gathered", "noon", 2), ("many", "noon", 0)
    ]  # fmt: skip


@pytest.mark.parametrize("bad", ["not a number", float("nan"), float("-inf"), None, [1]])
def test_an_argument_that_does_not_fit_is_refused_where_it_is_enqueued(app: Duetime, bad: Any) -> None:
    @app.job(name="pay")
    def pay(amount: float, due: date | None = None) -> None: ...

    with app:
        with pytest.raises(ArgumentError, match="argument 'amount' of pay"):
            app.enqueue(pay, bad)
        with pytest.raises(ArgumentError, match="argument 'amount' of pay"):
            app.enqueue("pay", amount=bad)
        with pytest.raises(ArgumentError, match="argument 'due' of pay"):
            app.enqueue(pay, 1, due="tomorrow")
        assert app._ask().ask(operations.list_jobs().page(10)).total == 0


@pytest.mark.parametrize("bad", [float("nan"), {"a": [float("inf")]}, object()])
def test_an_argument_that_is_not_json_is_refused_for_unknown_functions_too(app: Duetime, bad: Any) -> None:
    with app:
        with pytest.raises(ArgumentError, match="argument '#1' of elsewhere can't be written as JSON"):
            app.enqueue("elsewhere", bad)
        with pytest.raises(ArgumentError, match="argument 'word' of elsewhere can't be written as JSON"):
            app.enqueue("elsewhere", word=bad)


def test_a_bad_call_does_not_affect_the_others(app: Duetime, calls: Calls) -> None:
    @app.job(name="double")
    def double(number: int) -> None:
        calls.add(2 * number)

    with app:
        result = app.enqueue_many(double, [(1,), ("two",), (3,), (), "5", (float("nan"),), {"number": 7}, {"other": 8}])
        found = calls.wait(3)
    assert sorted(found) == [2, 6, 14]
    assert (result.created_count, result.refused_count, len(result.created)) == (3, 5, 3)
    assert [(item.index, item.error) for item in result.refused] == [
        (index, "INVALID_REQUEST") for index in (1, 3, 4, 5, 7)
    ]
    assert [item.message.partition(":")[0] for item in result.refused] == [
        "argument 'number' of double",
        "double",
        "a call is a tuple or a dict of arguments, not a str; write one argument as (value,)",
        "argument 'number' of double can't be written as JSON",
        "double",
    ]


def test_calls_refused_by_the_server_and_here_have_the_right_indexes(app: Duetime) -> None:
    @app.job(name="keep")
    def keep(text: str) -> None: ...

    with app:
        result = app.enqueue_many(keep, [(1,), ("a\0",), ("b",), (2,), ("c\0",)])
    assert ([item.index for item in result.refused], result.created_count) == ([0, 1, 3, 4], 1)


@pytest.mark.parametrize("returned", ["x" * 20_000, float("nan"), {"a": object()}], ids=["large", "nan", "object"])
def test_a_result_that_is_too_long_is_rejected_and_its_beginning_is_stored(
    app: Duetime, calls: Calls, returned: Any
) -> None:
    @app.job(name="compute")
    def compute() -> Any:
        calls.add(1)
        return returned

    with app:
        made = app.enqueue(compute)
        ended = until(app, made.job_id, lambda it: it.end_time is not None or it.state == "RETRYING")
    assert (ended.state, ended.error_type, ended.attempt, len(calls.all)) == ("FAILED", "rejected", 1, 1)
    assert str(ended.error_message).startswith("its result")
    kept = '"' + "x" * 16_383 if isinstance(returned, str) else repr(returned)
    assert ended.response == kept


def test_a_path_after_three_slashes_is_relative_for_an_app_and_for_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///relative", f"sqlite:///{tmp_path / 'absolute'}"):
        with Duetime(url):
            pass
    assert {file.parent.name for file in tmp_path.glob("*/duetime.db")} == {"relative", "absolute"}
    assert parse_url("sqlite:///relative.db").shown == "relative.db"
    with pytest.raises(BadUrl, match="without a path"):
        parse_url("sqlite:////absolute.db")


def test_a_program_reads_what_its_function_returned(app: Duetime, calls: Calls) -> None:
    @app.job(name="add")
    def add(one: int, other: int) -> dict[str, int]:
        calls.add(one)
        return {"sum": one + other}

    with app:
        made = app.enqueue(add, 2, 3)
        until(app, made.job_id, lambda it: it.end_time is not None)
        (execution,) = app.executions(made.job_id)
    assert (execution.state, execution.response) == ("COMPLETED", '{"sum":5}')


def test_a_decorator_without_parentheses_is_refused_with_the_right_form() -> None:
    with pytest.raises(TypeError, match=re.escape("write @app.job() with parentheses")):

        @Duetime().job  # type: ignore[arg-type]
        def lonely() -> None: ...


def test_fields_without_a_schedule_are_refused_with_the_call_that_accepts_them() -> None:
    with pytest.raises(ValueError, match=re.escape("app.enqueue(…, job={'retry_policy': …})")):

        @Duetime().job(name="flaky", retry_policy={"max_retries": 2})
        def flaky() -> None: ...
