from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import until
from duetime import Client

UNKNOWN = "01234567-0123-7123-8123-0123456789ab"


def test_a_created_job_is_listed_with_its_schedule_and_when_it_is_due(duetime: Any) -> None:
    name, job_id = duetime.create(schedule="every 1d")
    listed = duetime.ok("job", "list", "--name", name)
    assert job_id in listed
    assert name in listed
    assert "every 1d" in listed
    assert "PENDING" in listed
    assert "in 24 h" in listed


def test_every_flag_of_create_reaches_the_job(duetime: Any) -> None:
    _, job_id = duetime.create(
        "--timezone", "Europe/Berlin", "--method", "put", "--header", "X-One: a:b", "--header", "X-Two:2",
        "--body", '{"format": "pdf"}', "--retries", "7", "--timeout", "2.5", "--priority", "9", "--key", "flags",
        "--tag", "team=sales", "--tag", "empty=", "--overlap", "queue_all", "--description", "all flags",
    )  # fmt: skip
    job = duetime.json("job", "show", job_id)
    assert job["timezone"] == "Europe/Berlin"
    assert job["payload"]["method"] == "PUT"
    assert list(job["payload"]["headers"]) == ["X-One", "X-Two"]
    assert job["payload"]["body"] == {"format": "pdf"}
    assert job["retry_policy"]["max_retries"] == 7
    assert job["timeout_seconds"] == 2.5
    assert job["priority"] == 9
    assert job["key"] == "flags"
    assert job["tags"] == {"team": "sales", "empty": ""}
    assert job["overlap"] == "queue_all"
    assert job["description"] == "all flags"


def test_a_job_is_created_from_a_file_and_flags_change_its_fields(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"name": "f", "schedule": "@daily", "payload": {"url": "https://example.com/"}}))
    created = duetime.json("job", "create", "--file", str(file), "--name", "from-file", "--method", "GET")
    job = duetime.json("job", "show", created["job_id"])
    assert (job["name"], job["schedule"]) == ("from-file", "@daily")
    assert (job["payload"]["url"], job["payload"]["method"]) == ("https://example.com/", "GET")


def test_a_job_is_created_from_stdin(duetime: Any) -> None:
    text = json.dumps({"name": "piped", "schedule": "@daily", "payload": {"url": "https://example.com/"}})
    assert "piped" in duetime.ok("job", "create", "--file", "-", stdin=text)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "a job needs --name and --schedule and --url"),
        (("--name", "x", "--schedule", "@daily"), "a job needs --url"),
        (("--header", "no colon"), "--header 'no colon' has no ':'"),
        (("--tag", "team"), "--tag 'team' has no '='"),
        (("--body", '{"a": }'), "--body looks like JSON but is not"),
        (("--file", "nowhere.json"), "--file nowhere.json"),
        (("--priority", "high"), "--priority"),
    ],
)
def test_an_invalid_create_exits_2_without_a_request(alone: Any, flags: Any, says: str) -> None:
    result = alone("job", "create", *flags)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_a_warning_about_a_new_job_is_printed_on_stderr(duetime: Any) -> None:
    flags = ("job", "create", "--name", "blocked", "--schedule", "@daily", "--url", "http://10.0.0.7/")
    result = duetime(*flags)
    assert result.exit_code == 0
    assert "warning: payload.url can't be called: 10.0.0.7 is not a public address" in result.stderr
    assert "ALLOW_PRIVATE_TARGETS=10.0.0.7/32" in result.stderr
    assert "warning" not in result.stdout
    assert len(duetime.json(*flags)["warnings"]) == 1


def test_a_refused_create_exits_1_and_names_each_field(duetime: Any) -> None:
    result = duetime("job", "create", "--name", "x", "--schedule", "@daily", "--url", "ftp://x", "--header", "Host: y")
    assert result.exit_code == 1
    assert "/payload/url: The URL must start with http:// or https://." in result.stderr
    assert "/payload/headers/Host: " in result.stderr
    assert result.stdout == ""


def test_a_refused_schedule_exits_1_with_the_reason(duetime: Any) -> None:
    result = duetime("job", "create", "--name", "x", "--schedule", "61 * * * *", "--url", "https://example.com/")
    assert result.exit_code == 1
    assert "/schedule: the minute field has '61'" in result.stderr


def test_a_job_is_found_by_its_whole_name_as_by_its_id(duetime: Any) -> None:
    name, job_id = duetime.create()
    assert duetime.json("job", "show", name) == duetime.json("job", "show", job_id)


def test_an_ambiguous_name_is_refused_with_the_ids(duetime: Any) -> None:
    name, first = duetime.create()
    second = duetime.json("job", "create", "--name", name, "--schedule", "@daily", "--url", duetime.target)["job_id"]
    result = duetime("job", "show", name)
    assert result.exit_code == 1
    assert f"2 jobs are named '{name}'" in result.stderr
    assert first in result.stderr
    assert second in result.stderr
    duetime.ok("job", "cancel", second)
    assert duetime.json("job", "show", name)["job_id"] == first


def test_an_unknown_job_exits_1_with_a_message(duetime: Any) -> None:
    for job, says in ((UNKNOWN, f"there is no job {UNKNOWN}"), ("nobody", "there is no job named 'nobody'")):
        result = duetime("job", "show", job)
        assert result.exit_code == 1
        assert says in result.stderr


def test_a_run_is_queued_and_shows_in_history_and_logs(duetime: Any) -> None:
    name, _ = duetime.create()
    execution = duetime.run_until(name, "COMPLETED")
    history = duetime.ok("job", "history", name, "--limit", "5")
    assert execution["execution_id"] in history
    assert "COMPLETED" in history
    logs = duetime.ok("job", "logs", name)
    assert "attempt 1: answered 200" in logs
    assert "this is ok" in logs
    assert duetime.json("job", "history", name)["total"] == 1
    assert "COMPLETED" in duetime.ok("job", "show", name)


def test_history_filters_on_a_state(duetime: Any) -> None:
    name, _ = duetime.create()
    duetime.run_until(name, "COMPLETED")
    assert duetime.json("job", "history", name, "--state", "failed")["executions"] == []
    assert "no executions yet" in duetime.ok("job", "history", name, "--state", "failed")


def test_history_longer_than_a_page_is_read_in_pages(duetime: Any) -> None:
    name, job_id = duetime.create("--overlap", "allow")
    with Client(duetime.url) as client:
        ids = {client.run_job(job_id).execution_id for _ in range(101)}
    history = duetime.json("job", "history", name, "--limit", "150")
    assert {execution["execution_id"] for execution in history["executions"]} == ids
    assert "5 of 101; --limit shows more" in duetime.ok("job", "history", name, "--limit", "5")


def test_a_failed_job_is_retried_and_one_that_did_not_fail_is_not(duetime: Any) -> None:
    name, _ = duetime.create("--retries", "0", path="/500")
    duetime.run_until(name, "FAILED")
    assert "execution" in duetime.ok("job", "retry", name)
    good, _ = duetime.create()
    result = duetime("job", "retry", good)
    assert result.exit_code == 1
    assert "did not fail" in result.stderr


def test_why_explains_a_paused_job_and_a_resumed_one(duetime: Any) -> None:
    name, _ = duetime.create(schedule="every 2h")
    assert "Job paused" in duetime.ok("job", "pause", name)
    why = duetime.ok("job", "why", name)
    assert "It will not run until it is resumed." in why
    assert "- paused by local" in why
    assert "Job resumed" in duetime.ok("job", "resume", name)
    assert "It will run at " in duetime.ok("job", "why", name)
    result = duetime("job", "resume", name)
    assert result.exit_code == 1
    assert "only a PAUSED job can be resumed" in result.stderr


def test_a_cancelled_job_has_no_next_run(duetime: Any) -> None:
    name, job_id = duetime.create()
    assert "will not run again" in duetime.ok("job", "cancel", name)
    assert "it has no more instants" in duetime.ok("job", "next", job_id)
    assert duetime.json("job", "why", job_id)["next_run_time"] is None


def test_next_lists_as_many_instants_as_requested(duetime: Any) -> None:
    name, _ = duetime.create(schedule="0 9 * * *")
    coming = duetime.json("job", "next", name, "--count", "3")["next"]
    assert len(coming) == 3
    assert all(at.endswith("T09:00:00.000Z") for at in coming)


def test_logs_and_why_show_the_error_of_a_retry_while_later_instants_are_skipped(
    duetime: Any,
) -> None:
    job = {"name": "tried-again", "schedule": "every 1s", "payload": {"url": duetime.target + "/500"}}
    text = json.dumps(job | {"retry_policy": {"delays": [3600]}})
    duetime.ok("job", "create", "--file", "-", stdin=text)
    until(lambda: duetime.json("job", "history", "tried-again", "--state", "SKIPPED"), lambda it: it["total"])
    assert "attempt 1: 127.0.0.1 answered 500." in duetime.ok("job", "logs", "tried-again")
    assert "failed: 127.0.0.1 answered 500." in duetime.ok("job", "why", "tried-again")
    duetime.ok("job", "cancel", "tried-again")


def test_logs_of_a_job_that_has_not_run_exit_1_with_a_message(duetime: Any) -> None:
    name, _ = duetime.create()
    result = duetime("job", "logs", name)
    assert result.exit_code == 1
    assert "has not run yet" in result.stderr


def test_the_list_filters_by_tag_and_by_the_state_of_the_last_run(duetime: Any) -> None:
    name, job_id = duetime.create("--tag", "suite=filters", "--retries", "0", path="/404")
    duetime.run_until(name, "FAILED")
    listed = duetime.json("job", "list", "--tag", "suite=filters", "--status", "failed")
    assert [job["job_id"] for job in listed["jobs"]] == [job_id]


def test_an_unknown_filter_is_refused_with_the_known_ones(duetime: Any) -> None:
    result = duetime("job", "list", "--status", "sleeping")
    assert result.exit_code == 1
    assert "/status: must be one of" in result.stderr


def test_a_name_is_printed_as_data_not_as_markup_or_terminal_codes(duetime: Any) -> None:
    name = "[red]a[/red] \x1b[31mb"
    created = duetime.json("job", "create", "--name", name, "--schedule", "@daily", "--url", "https://example.com/")
    shown = duetime.ok("job", "show", created["job_id"])
    assert "[red]a[/red] �[31mb" in shown


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"name": "x", "shedule": "@daily", "payload": {"url": "https://example.com/"}}, "did you mean 'schedule'?"),
        ({"name": "x", "schedule": "@daily", "payload": {"ulr": "https://example.com/"}}, "did you mean 'url'?"),
    ],
)
def test_a_misspelt_field_in_a_file_is_named_in_the_message(duetime: Any, job: dict[str, Any], said: str) -> None:
    result = duetime("job", "create", "--file", "-", stdin=json.dumps(job))
    assert result.exit_code == 2
    assert said in result.stderr
    assert "or give --file" not in result.stderr


def test_a_change_sets_the_named_fields_and_no_others(duetime: Any) -> None:
    name, job_id = duetime.create("--header", "x-a: 1", "--retries", "2", path="/404")
    changed = duetime.ok(
        "job", "change", name, "--url", duetime.target + "/ok", "--schedule", "every 2h", "--timeout", "9"
    )
    assert "every 2h" in changed
    job = duetime.json("job", "show", job_id)
    assert (job["schedule"], job["timeout_seconds"], job["retry_policy"]["max_retries"]) == ("every 2h", 9.0, 2)
    assert job["payload"]["url"] == duetime.target + "/ok"
    assert list(job["payload"]["headers"]) == ["x-a"]


def test_a_change_from_a_file_may_touch_any_field_and_null_resets_one(duetime: Any) -> None:
    name, job_id = duetime.create("--timeout", "9")
    duetime.ok("job", "change", name, "--file", "-", stdin='{"timeout_seconds": null, "max_runs": 3}')
    job = duetime.json("job", "show", job_id)
    assert (job["timeout_seconds"], job["max_runs"]) == (30.0, 3)


def test_a_change_without_fields_is_wrong_usage(duetime: Any) -> None:
    name, _ = duetime.create()
    result = duetime("job", "change", name)
    assert result.exit_code == 2
    assert "no field was given" in result.stderr


def test_objectives_and_an_expected_rhythm_are_set_changed_and_shown(duetime: Any) -> None:
    name, _ = duetime.create(
        "--slo-lateness", "5", "--slo-success", "99.5", "--slo-window", "7d", "--expect-every", "25h"
    )
    job = duetime.json("job", "show", name)
    assert (job["slo"], job["expect_every"]) == (
        {"lateness_seconds": 5, "on_time": 99, "success": 99.5, "window": "7d"},
        "25h",
    )
    shown = duetime.ok("job", "show", name)
    for words in (
        "success objective",
        "99.5 % over 7d: nothing ran yet",
        "99 % within 5 s over 7d",
        "a success every 25h",
    ):
        assert words in shown
    duetime.ok("job", "change", name, "--slo-success", "90", "--expect-every", "2d")
    job = duetime.json("job", "show", name)
    assert (job["slo"]["success"], job["slo"]["lateness_seconds"], job["expect_every"]) == (90, 5, "2d")
    refused = duetime("job", "change", name, "--expect-every", "soon")
    assert refused.exit_code == 1
    assert "/expect_every: 'soon' is no duration" in refused.stderr
