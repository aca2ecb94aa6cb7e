from __future__ import annotations

from typing import Any

UNKNOWN = "01234567-0123-7123-8123-0123456789ab"


def test_executions_are_listed_across_jobs_and_filtered(duetime: Any) -> None:
    name, job_id = duetime.create()
    execution = duetime.run_until(name, "COMPLETED")
    listed = duetime.ok("execution", "list", "--job", name, "--state", "completed")
    assert execution["execution_id"] in listed
    assert job_id in listed
    later = duetime.json("execution", "list", "--job", name, "--from", "2999-01-01T00:00:00Z")
    assert later["executions"] == []
    assert "no executions" in duetime.ok("execution", "list", "--job", name, "--state", "RUNNING")


def test_an_execution_shows_its_attempts_and_their_responses(duetime: Any) -> None:
    name, _ = duetime.create("--retries", "0", path="/503")
    execution = duetime.run_until(name, "FAILED")
    shown = duetime.ok("execution", "show", execution["execution_id"])
    assert "FAILED" in shown
    assert "127.0.0.1 answered 503." in shown
    assert "this is 503" in shown
    assert "dead letter" in shown
    assert "answered 503" in duetime.ok("execution", "logs", execution["execution_id"])


def test_a_waiting_execution_is_cancelled_and_an_ended_one_is_not(duetime: Any) -> None:
    name, _ = duetime.create(path="/500")
    execution = duetime.run_until(name, "RETRYING")
    assert "CANCELLED" in duetime.ok("execution", "cancel", execution["execution_id"])
    result = duetime("execution", "cancel", execution["execution_id"])
    assert result.exit_code == 1
    assert "what has ended can't be cancelled" in result.stderr


def test_an_execution_is_run_again_as_a_new_one(duetime: Any) -> None:
    name, _ = duetime.create()
    execution = duetime.run_until(name, "COMPLETED")
    again = duetime.json("execution", "retry", execution["execution_id"])
    assert again["execution_id"] != execution["execution_id"]
    assert duetime.wait_for(again["execution_id"], "COMPLETED")["trigger"] == "retry"


def test_dead_letters_are_listed_and_redriven(duetime: Any) -> None:
    name, _ = duetime.create("--retries", "0", path="/500")
    dead = duetime.run_until(name, "FAILED")["execution_id"]
    assert dead in duetime.ok("dead-letters", "list", "--job", name)
    answer = duetime.json("dead-letters", "redrive", dead)
    assert answer["redriven"] == 1
    duetime.wait_for(answer["executions"][0], "FAILED")
    assert "1 run again" in duetime.ok("dead-letters", "redrive", "--job", name)


def test_dead_letters_are_found_by_filter_and_redriven_at_a_pace(duetime: Any) -> None:
    name, _ = duetime.create("--retries", "0", path="/500")
    dead = duetime.run_until(name, "FAILED")["execution_id"]
    fits = ["--job", name, "--http-status", "5xx", "--error-type", "http_error", "--from", "2020-01-01T00:00:00Z"]
    assert dead in duetime.ok("dead-letters", "list", *fits)
    for other in (["--http-status", "404"], ["--error-type", "timeout"], ["--to", "2020-01-01T00:00:00Z"]):
        assert "no dead letters" in duetime.ok("dead-letters", "list", "--job", name, *other)
        assert duetime.json("dead-letters", "redrive", "--job", name, *other)["redriven"] == 0
    said = duetime.ok("dead-letters", "redrive", *fits, "--per-second", "0.5", "--limit", "5000")
    assert "1 run again, the last at 20" in said
    refused = duetime("dead-letters", "redrive", "--http-status", "lots")
    assert (refused.exit_code, "5xx" in refused.stderr) == (1, True)


def test_a_redrive_without_ids_or_a_filter_exits_2(duetime: Any) -> None:
    for args in (
        [], [UNKNOWN, "--all"], [UNKNOWN, "--job", "x"], [UNKNOWN, "--http-status", "500"], ["--all", "--job", "x"]
    ):  # fmt: skip
        result = duetime("dead-letters", "redrive", *args)
        assert result.exit_code == 2
        assert "name the dead letters" in result.stderr


def test_an_unknown_execution_exits_1_with_a_message(duetime: Any) -> None:
    for execution in (UNKNOWN, "no id", "../jobs"):
        result = duetime("execution", "show", execution)
        assert result.exit_code == 1
        assert "there is no" in result.stderr
