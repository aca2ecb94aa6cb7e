"""`duetime job`: lists, shows and controls jobs. `create.py` and `importing.py` create them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import typer

from duetime.cli import create, importing
from duetime.cli.errors import CommandFailed
from duetime.cli.options import Follow, Job, Json, Limit, client_of, find_job_id
from duetime.cli.output import exactly, milliseconds, print_facts, print_json, print_line, print_table, state, when

app = typer.Typer(no_args_is_help=True, help="Jobs: what to run, and when.")
app.command("create")(create.create_job)
app.command("change")(create.change_job)
app.command("import")(importing.import_jobs)

HISTORY = ("execution id", "state", "scheduled", "lateness", "took", "attempt", "result")


@app.command("list")
def list_jobs(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="PENDING, PAUSED, …, or the state of the last execution.")] = None,
    name: Annotated[str | None, typer.Option(help="Its name contains this.")] = None,
    tag: Annotated[str | None, typer.Option(help="It has this tag: key, or key=value.")] = None,
    sort: Annotated[
        Literal["created_at", "next_run_time", "name"], typer.Option(help="The field to sort by.")
    ] = "created_at",
    order: Annotated[Literal["asc", "desc"], typer.Option(help="asc or desc.")] = "desc",
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first.

    \b
    duetime job list
    duetime job list --status FAILED            # the last execution failed
    duetime job list --tag team=sales --sort next_run_time --order asc
    duetime job list --json | jq -r '.jobs[].job_id'
    """
    upper = None if status is None else status.upper()
    query = {"status": upper, "name": name, "tag": tag, "sort": sort, "order": order}
    jobs, total = _collect(client_of(context).pages("/jobs", "jobs", query, limit), "jobs")
    if as_json:
        print_json({"jobs": jobs, "total": total})
        return
    rows = [
        (job["job_id"], job["name"], state(job["status"]), job["schedule"], when(job["next_run_time"]),
         state(job["last_state"]), f"{job['success_count']:,}/{job['execution_count']:,}")
        for job in jobs
    ]  # fmt: skip
    columns = ("job id", "name", "status", "schedule", "next", "last", "good/runs")
    print_table(columns, rows, "no jobs; `duetime job create --help` shows how to create one")
    if total > len(jobs):
        print_line(f"{len(jobs):,} of {total:,}; --limit shows more")


@app.command()
def show(context: typer.Context, job: Job, as_json: Json = False) -> None:
    """Show one job: its definition, its next instant, and its counts.

    \b
    duetime job show daily-report
    duetime job show 0198c0de-1234-7abc-8def-0123456789ab --json
    """
    from duetime.cli.payloads import payload_facts

    client = client_of(context)
    answer = client.get(f"/jobs/{find_job_id(client, job)}")
    if as_json:
        print_json(answer)
        return
    lateness = [milliseconds(answer[f"lateness_{share}_ms"]) for share in ("p50", "p99")]
    print_facts(
        [
            ("job", answer["job_id"]),
            ("name", answer["name"]),
            ("key", answer["key"]),
            ("description", answer["description"]),
            ("status", state(answer["status"])),
            ("schedule", f"{answer['schedule']} ({answer['timezone']})"),
            *payload_facts(answer),
            ("after", _after(answer)),
            ("next", exactly(answer["next_run_time"])),
            ("last", exactly(answer["last_run_time"])),
            ("last state", state(answer["last_state"])),
            ("executions", f"{answer['execution_count']:,}"),
            ("good, failed", f"{answer['success_count']:,}, {answer['failure_count']:,}"),
            ("takes", milliseconds(answer["avg_execution_time_ms"])),
            ("lateness", f"p50 {lateness[0]}, p99 {lateness[1]}" if lateness[0] else None),
            *map(_objective, answer.get("objectives") or ()),  # an older server has none
            ("expected", f"a success every {answer['expect_every']}" if answer.get("expect_every") else None),
            ("retries", _retries(answer["retry_policy"])),
            ("timeout", f"{answer['timeout_seconds']:g} s"),
            ("priority", str(answer["priority"])),
            ("overlap", answer["overlap"]),
            ("delivery", answer["delivery"]),
            ("notifies", ", ".join(f"{url} ({when})" for when, url in answer["webhooks"].items() if url)),
            ("catch up", f"{answer['catch_up']['policy']}, {answer['catch_up']['window_seconds']} s back"),
            ("tags", ", ".join(f"{key}={value}" for key, value in answer["tags"].items())),
            ("created", exactly(answer["created_at"])),
        ]
    )


def _objective(it: dict[str, Any]) -> tuple[str, str]:
    """Returns an objective as a fact: what it asks for, what was reached, and what is left of its budget."""
    within = "" if it["lateness_seconds"] is None else f" within {it['lateness_seconds']:g} s"
    asked = f"{it['target']:g} %{within} over {it['window']}"
    if it["compliance"] is None:
        return f"{it['kind']} objective", f"{asked}: nothing ran yet"
    burn = ", ".join(f"{rate:g} ({span})" for span, rate in it["burn_rate"].items() if rate)
    left = f"{it['error_budget_left']:.0%} of the error budget left ({it['errors_left']:,} executions)"
    return f"{it['kind']} objective", f"{asked}: {it['compliance']:g} %, {left}; burn rate {burn or 0}"


ACTIONS = {
    "run": "Run a job once, now. Its timetable does not change.",
    "retry": "Run a job again whose last execution failed.",
    "pause": "Pause a job. Instants that are due meanwhile are recorded as skipped, and do not run.",
    "resume": "Resume a paused job.",
    "cancel": "End a job for good, and cancel its running executions. Its history stays.",
}


def _add_action(action: str, help: str) -> None:
    @app.command(action, help=f"{help}\n\n\b\nduetime job {action} daily-report")
    def act(context: typer.Context, job: Job, as_json: Json = False) -> None:
        client = client_of(context)
        answer = client.post(f"/jobs/{find_job_id(client, job)}/{action}")
        if as_json:
            print_json(answer)
            return
        execution = f"  execution {answer['execution_id']}" if "execution_id" in answer else ""
        print_line(answer["message"] + execution)


for _action, _help in ACTIONS.items():
    _add_action(_action, _help)


@app.command()
def history(
    context: typer.Context,
    job: Job,
    state: Annotated[str | None, typer.Option(help="Only executions in this state.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List a job's executions, the latest first, and the skipped instants.

    \b
    duetime job history daily-report --limit 50
    duetime job history daily-report --state FAILED
    """
    client = client_of(context)
    path, query = f"/jobs/{find_job_id(client, job)}/executions", {"state": state and state.upper()}
    pages = list(client.pages(path, "executions", query, limit))
    executions, total = _collect(pages, "executions")
    skipped = pages[0]["skipped"] if pages else []
    if as_json:
        print_json({"executions": executions, "total": total, "skipped": skipped})
        return
    print_table(HISTORY, [history_row(execution) for execution in executions], "no executions yet")
    if skipped:
        rows = [(it["first_at"], it["until_at"], _count(it["count"]), it["reason"]) for it in skipped]
        print_table(("skipped from", "up to", "instants", "reason"), rows, "")
    if total > len(executions):
        print_line(f"{len(executions):,} of {total:,}; --limit shows more")


@app.command()
def logs(context: typer.Context, job: Job, follow: Follow = False, as_json: Json = False) -> None:
    """Show the log of a job's latest execution, and how its attempts ended.

    For an earlier one: `duetime execution logs ID`.

    \b
    duetime job logs daily-report
    duetime job logs daily-report --follow
    """
    from duetime.cli.executions import print_logs

    client = client_of(context)
    print_logs(client, _latest_begun(client, job), follow, as_json)


@app.command()
def why(context: typer.Context, job: Job, as_json: Json = False) -> None:
    """Explain what a job will do next, what blocks it now, and its last failure.

    \b
    duetime job why daily-report
    """
    client = client_of(context)
    answer = client.get(f"/jobs/{find_job_id(client, job)}/why")
    if as_json:
        print_json(answer)
        return
    print_line(answer["summary"])
    for hold in answer["holds"]:
        print_line(f"- {hold}")
    print_line(answer["attempts"])
    if answer.get("last_failure"):  # an older server has none
        print_line(f"{answer['last_failure']} (`duetime job logs` shows all of it.)")


@app.command("next")
def list_next(
    context: typer.Context,
    job: Job,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")] = 5,
    as_json: Json = False,
) -> None:
    """List a job's next instants. To try a schedule without a job: `duetime cron next`.

    \b
    duetime job next daily-report --count 10
    """
    client = client_of(context)
    answer = client.get(f"/jobs/{find_job_id(client, job)}/next", {"count": count})
    if as_json:
        print_json(answer)
    else:
        print_table(("UTC", ""), [(at, when(at)) for at in answer["next"]], "it has no more instants")


def _latest_begun(client: Any, job: str) -> str:
    """Returns the id of the latest execution that was not skipped: a skipped one has no log."""
    path = f"/jobs/{find_job_id(client, job)}/executions"
    latest = client.get(path, {"limit": 100})["executions"]
    if not latest:
        raise CommandFailed(f"'{job}' has not run yet; `duetime job why` shows when it will")
    begun = [one for one in latest if one["state"] != "SKIPPED"]
    for open_state in ("RUNNING", "RETRYING"):  # older than a whole page of skipped instants
        begun = begun or client.get(path, {"state": open_state, "limit": 1})["executions"]
    if not begun:
        raise CommandFailed(f"the latest instants of '{job}' were skipped; `duetime job why` shows what blocks it")
    return str(begun[0]["execution_id"])


def history_row(execution: dict[str, Any]) -> tuple[Any, ...]:
    error = execution["error_message"] or execution["reason"]
    return (
        execution["execution_id"], state(execution["state"]), when(execution["scheduled_at"]),
        milliseconds(execution["lateness_ms"]), milliseconds(execution["duration_ms"]), str(execution["attempt"]),
        error or str(execution["http_status"] or ""),
    )  # fmt: skip


def _collect(pages: Iterable[dict[str, Any]], name: str) -> tuple[list[dict[str, Any]], int]:
    rows: list[dict[str, Any]] = []
    total = 0
    for page in pages:
        rows += page[name]
        total = page["total"]
    return rows, total


def _count(count: int | None) -> str:
    return "not counted" if count is None else f"{count:,}"


def _after(job: dict[str, Any]) -> str | None:
    return f"{', '.join(job['after'])} (on: {job['on']})" if job["after"] else None


def _retries(policy: dict[str, Any]) -> str:
    if policy["delays"]:
        return "after " + ", ".join(f"{delay:g} s" for delay in policy["delays"])
    times = policy["max_retries"]
    return f"{times}, {policy['backoff']} from {policy['initial_delay_seconds']:g} s" if times else "none"
