"""`duetime execution` and `duetime dead-letters`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Execution, Follow, Json, Limit, client_of, complete_job, find_job_id, segment
from duetime.cli.output import (
    exactly,
    milliseconds,
    print_facts,
    print_json,
    print_json_line,
    print_line,
    print_table,
    print_text,
    state,
    when,
)

app = typer.Typer(no_args_is_help=True, help="Executions: each is one due instant of one job.")
dead_letters = typer.Typer(no_args_is_help=True, help="Executions that have used up their attempts.")

Since = Annotated[str | None, typer.Option("--from", help="Scheduled at or after this instant.")]
Until = Annotated[str | None, typer.Option("--to", help="Scheduled before this instant.")]
WithError = Annotated[str | None, typer.Option("--error-type", help="timeout, http_error, … of the last attempt.")]
WithStatus = Annotated[str | None, typer.Option("--http-status", help="Of the last attempt: 503, or 5xx.")]
OfJob = Annotated[str | None, typer.Option("--job", help="Only executions of this job.", autocompletion=complete_job)]


@app.command("list")
def list_executions(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="QUEUED, RUNNING, COMPLETED, FAILED, …")] = None,
    job: OfJob = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List executions of all jobs, the latest first.

    \b
    duetime execution list --state RUNNING
    duetime execution list --job daily-report --from 2027-01-01T00:00:00Z
    """
    client = client_of(context)
    job_id = None if job is None else find_job_id(client, job)
    query = {"state": state and state.upper(), "job_id": job_id, "from": since, "to": until}
    _print_list(client, "/executions", query, limit, as_json, "no executions")


@app.command()
def show(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Show one execution with its attempts.

    \b
    duetime execution show 0198c0de-1234-7abc-8def-0123456789ab
    """
    answer = client_of(context).get(f"/executions/{segment(execution)}")
    if as_json:
        print_json(answer)
        return
    it = answer["execution"]
    print_facts(
        [
            ("execution", it["execution_id"]),
            ("job", it["job_id"]),
            ("state", state(it["state"])),
            ("reason", it["reason"]),
            ("trigger", it["trigger"]),
            ("scheduled", exactly(it["scheduled_at"])),
            ("started", it["start_time"]),
            ("ended", it["end_time"]),
            ("lateness", milliseconds(it["lateness_ms"])),
            ("next attempt", exactly(it["next_attempt_at"])),
            ("dead letter", "yes; `duetime dead-letters redrive` runs it again" if it["dead"] else None),
        ]
    )
    rows = [
        (str(one["attempt"]), one["end_time"], milliseconds(one["duration_ms"]), _status(one),
         one["error_message"] or "", one["response"] or "")
        for one in answer["attempts"]
    ]  # fmt: skip
    print_table(("attempt", "ended", "took", "status", "error", "response"), rows, "no attempt has ended yet")


def _status(attempt: dict[str, Any]) -> str:
    """Returns the exit code of a script, or the status of a response."""
    if attempt["exit_code"] is not None:
        return f"exit {attempt['exit_code']}"
    return str(attempt["http_status"] or "")


@app.command()
def logs(context: typer.Context, execution: Execution, follow: Follow = False, as_json: Json = False) -> None:
    """Show the log of an execution, and how its attempts ended.

    \b
    duetime execution logs 0198c0de-1234-7abc-8def-0123456789ab
    duetime execution logs 0198c0de-1234-7abc-8def-0123456789ab --follow
    """
    print_logs(client_of(context), execution, follow, as_json)


@app.command()
def cancel(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Cancel an execution, even if it is running.

    \b
    duetime execution cancel 0198c0de-1234-7abc-8def-0123456789ab
    """
    answer = client_of(context).post(f"/executions/{segment(execution)}/cancel")
    if as_json:
        print_json(answer)
        return
    stopping = " and is being stopped" if answer["state"] == "RUNNING" else ""
    print_line(f"Execution {answer['execution_id']} is ", state(answer["state"]), f"{stopping}.")


@app.command()
def retry(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Run an execution's job again, now, as a new execution.

    \b
    duetime execution retry 0198c0de-1234-7abc-8def-0123456789ab
    """
    answer = client_of(context).post(f"/executions/{segment(execution)}/retry")
    if as_json:
        print_json(answer)
    else:
        print_line(f"{answer['message']}  execution {answer['execution_id']}")


@dead_letters.command("list")
def list_dead_letters(
    context: typer.Context,
    job: OfJob = None,
    error_type: WithError = None,
    http_status: WithStatus = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List executions that have used up their attempts, the latest first.

    \b
    duetime dead-letters list --job daily-report
    duetime dead-letters list --http-status 5xx --from 2027-01-01T00:00:00Z
    """
    client = client_of(context)
    query = _filter(client, job, error_type, http_status, since, until)
    _print_list(client, "/dead-letters", query, limit, as_json, "no dead letters")


@dead_letters.command()
def redrive(
    context: typer.Context,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[EXECUTION]...", help="Their ids; or give a filter, or --all.")
    ] = None,
    job: OfJob = None,
    error_type: WithError = None,
    http_status: WithStatus = None,
    since: Since = None,
    until: Until = None,
    every: Annotated[bool, typer.Option("--all", help="Dead letters of all jobs.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most, with a filter or --all.")
    ] = 100,
    per_second: Annotated[
        float | None, typer.Option("--per-second", help="At most this many in a second; all at once if left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run dead letters again, each as a new execution: the latest ones, and the oldest of them runs first.

    \b
    duetime dead-letters redrive 0198c0de-1234-7abc-8def-0123456789ab
    duetime dead-letters redrive --job daily-report
    duetime dead-letters redrive --http-status 5xx --limit 5000 --per-second 10
    """
    has_filter = any(it is not None for it in (job, error_type, http_status, since, until))
    if bool(ids) == (has_filter or every) or (job is not None and every):
        raise BadUsage(
            "name the dead letters: ids, or a filter (--job, --error-type, --http-status, --from, --to), or --all"
        )
    client = client_of(context)
    named = _filter(client, job, error_type, http_status, since, until)
    body: dict[str, Any] = {"ids": ids} if ids else {name: it for name, it in named.items() if it is not None}
    body |= {} if ids else {"limit": limit}
    body |= {} if per_second is None else {"per_second": per_second}
    answer = client.post("/dead-letters/redrive", body)
    if as_json:
        print_json(answer)
        return
    is_paced = per_second is not None and answer["redriven"]
    print_line(f"{answer['redriven']:,} run again" + (f", the last at {answer['last_at']}" if is_paced else ""))
    for execution_id in answer["executions"]:
        print_line(execution_id)


def _filter(
    client: Any, job: str | None, error_type: str | None, http_status: str | None, since: str | None, until: str | None
) -> dict[str, Any]:
    return {
        "job_id": None if job is None else find_job_id(client, job),
        "error_type": error_type,
        "http_status": http_status,
        "from": since,
        "to": until,
    }


def print_logs(client: Any, execution: str, follow: bool, as_json: bool) -> None:
    """Prints the whole log, or follows it. With JSON, each event that is followed is a line."""
    from duetime.cli.following import follow_logs

    if follow:
        for number, kind, text in follow_logs(client, execution):
            if as_json:
                print_json_line({"number": "" if number is None else str(number), "event": kind, "text": text})
            else:
                print_text(text)
        return
    path = f"/executions/{segment(execution)}/logs"
    answer = client.get(path)
    if as_json:
        print_json(answer)
        return
    if not answer["logs"]:
        print_line("no output yet, and no attempt has ended")
        return
    while True:
        print_text(answer["logs"].removesuffix("\n"))
        if answer["next_after"] is None:
            return
        answer = client.get(path, {"after": answer["next_after"]})


def _print_list(client: Any, path: str, query: dict[str, Any], limit: int, as_json: bool, empty: str) -> None:
    from duetime.cli.progress import Progress

    executions: list[dict[str, Any]] = []
    total = 0
    with Progress("executions") as progress:
        for page in client.pages(path, "executions", query, limit):
            executions += page["executions"]
            total = page["total"]
            progress.show(len(executions))
    if as_json:
        print_json({"executions": executions, "total": total})
        return
    rows = [
        (it["execution_id"], it["job_id"], state(it["state"]), when(it["scheduled_at"]),
         milliseconds(it["lateness_ms"]), str(it["attempt"]),
         it["error_message"] or it["reason"] or str(it["http_status"] or ""))
        for it in executions
    ]  # fmt: skip
    print_table(("execution id", "job id", "state", "scheduled", "lateness", "attempt", "result"), rows, empty)
    if total > len(executions):
        print_line(f"{len(executions):,} of {total:,}; --limit shows more")
