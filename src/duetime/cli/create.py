"""`duetime job create` and `duetime job change`: the fields come from flags or from a file."""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Job, Json, client_of, find_job_id
from duetime.cli.output import exactly, print_facts, print_json, print_warning

Name = Annotated[str | None, typer.Option(help="Its name.")]
Schedule = Annotated[
    str | None, typer.Option(help="immediate, an instant, 'every 5m', or cron; `duetime cron explain` tries one.")
]
Url = Annotated[str | None, typer.Option(help="The URL that it calls. (The server: `duetime --url … job …`.)")]
Header = Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header; may be repeated.")]
Body = Annotated[str | None, typer.Option(help="The body: JSON, or else text.")]
Retries = Annotated[int | None, typer.Option(help="How often a failed execution is retried.")]
Timeout = Annotated[float | None, typer.Option(help="Timeout of one attempt, in seconds.")]
Priority = Annotated[int | None, typer.Option(help="0 to 9, higher first.")]
OverlapPolicy = Annotated[
    str | None, typer.Option(help="If the last execution is open: allow, skip, queue_one, queue_all, cancel_running.")
]
ExpectEvery = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Alert if no execution succeeds for this long, such as 25h.")
]
SloLateness = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Objective: executions start within this time of their instant.")
]
SloSuccess = Annotated[float | None, typer.Option(metavar="PERCENT", help="Objective: so many of them succeed.")]
SloWindow = Annotated[
    str | None, typer.Option(metavar="DURATION", help="The window of both objectives; 30d if left out.")
]
Description = Annotated[str | None, typer.Option(help="For people.")]


def create_job(
    context: typer.Context,
    name: Name = None,
    schedule: Schedule = None,
    url: Url = None,
    method: Annotated[str | None, typer.Option(help="The HTTP method; POST if left out.")] = None,
    header: Header = None,
    body: Body = None,
    timezone: Annotated[str | None, typer.Option(help="Time zone of the schedule; UTC if left out.")] = None,
    retries: Retries = None,
    timeout: Timeout = None,
    priority: Priority = None,
    overlap: OverlapPolicy = None,
    key: Annotated[
        str | None, typer.Option(help="A unique name of your choice: a second create with it is refused.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A tag; may be repeated.")] = None,
    expect_every: ExpectEvery = None,
    slo_lateness: SloLateness = None,
    slo_success: SloSuccess = None,
    slo_window: SloWindow = None,
    description: Description = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A job of any type as JSON, - for stdin; flags replace its fields."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a job, from flags or from a file.

    \b
    duetime job create --name ping --schedule "every 5m" \\
        --url https://example.com/ping --method GET
    duetime job create --name report --schedule "0 9 * * MON-FRI" \\
        --timezone Europe/Berlin --url https://example.com/report \\
        --header "X-Api-Key: secret" --body '{"format": "pdf"}'
    duetime job create --name once --schedule 2027-01-01T00:00:00Z \\
        --url https://example.com/fireworks
    duetime job create --name backup --schedule "0 3 * * *" \\
        --url https://example.com/backup --expect-every 25h \\
        --slo-lateness 5 --slo-success 99.5
    duetime job create --file job.json --name another
    duetime job show nightly --json | duetime job create --file - --key nightly2
    echo '{"type": "script", "payload": {"script": "date"}}' | \\
        duetime job create --file - --name clock --schedule "every 1h"
    """
    job = _gather(
        file, {"url": url, "method": method, "body": body}, header, retries,
        name=name, schedule=schedule, timezone=timezone, timeout_seconds=timeout, priority=priority, overlap=overlap,
        key=key, expect_every=expect_every, description=description,
    )  # fmt: skip
    _into(job, "slo", lateness_seconds=slo_lateness, success=slo_success, window=slo_window)
    if not isinstance(job.setdefault("payload", {}), dict):
        raise BadUsage("--file: 'payload' is not an object")
    _into(job, "tags", **dict(_pair(text, "=", "--tag") for text in tag or ()))
    _check_whole(job, file)
    answer = client_of(context).post("/jobs", job)
    if as_json:
        print_json(answer)
        return
    print_facts([("created", answer["job_id"]), ("name", answer["name"]), ("next", exactly(answer["next_run_time"]))])
    for warning in answer.get("warnings", ()):  # an older server has none
        print_warning(warning)


def change_job(
    context: typer.Context,
    job: Job,
    name: Name = None,
    schedule: Schedule = None,
    url: Url = None,
    method: Annotated[str | None, typer.Option(help="The HTTP method.")] = None,
    header: Header = None,
    body: Body = None,
    timezone: Annotated[str | None, typer.Option(help="Time zone of the schedule.")] = None,
    retries: Retries = None,
    timeout: Timeout = None,
    priority: Priority = None,
    overlap: OverlapPolicy = None,
    expect_every: ExpectEvery = None,
    slo_lateness: SloLateness = None,
    slo_success: SloSuccess = None,
    slo_window: SloWindow = None,
    description: Description = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Fields as JSON, - for stdin; null resets one. Flags replace them."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change the named fields of a job, and no others.

    \b
    duetime job change report --schedule "0 10 * * MON-FRI"
    duetime job change report --url https://example.com/v2/report --timeout 60
    echo '{"max_runs": 3, "timeout_seconds": null}' | \\
        duetime job change report --file -
    """
    changes = _gather(
        file, {"url": url, "method": method, "body": body}, header, retries,
        name=name, schedule=schedule, timezone=timezone, timeout_seconds=timeout, priority=priority, overlap=overlap,
        expect_every=expect_every, description=description,
    )  # fmt: skip
    _into(changes, "slo", lateness_seconds=slo_lateness, success=slo_success, window=slo_window)
    if not changes:
        raise BadUsage("no field was given: use flags or --file; `duetime job change --help` has examples")
    client = client_of(context)
    answer = client.request("PATCH", f"/jobs/{find_job_id(client, job)}", body=changes)
    if as_json:
        print_json(answer)
        return
    facts = [("changed", answer["job_id"]), ("name", answer["name"]), ("schedule", answer["schedule"])]
    print_facts([*facts, ("next", exactly(answer["next_run_time"]))])


def _gather(
    file: str | None, payload: dict[str, str | None], header: list[str] | None, retries: int | None, **fields: Any
) -> dict[str, Any]:
    """Returns the fields of the file, with those of the flags in place of them."""
    job = _read(file) if file is not None else {}
    job |= {field: value for field, value in fields.items() if value is not None}
    method, body = payload["method"], payload["body"]
    _into(job, "payload", url=payload["url"], method=method and method.upper())
    _into(job, "payload", body=None if body is None else _body(body))
    if header:
        _into(job.setdefault("payload", {}), "headers", **dict(_pair(text, ":", "--header") for text in header))
    _into(job, "retry_policy", max_retries=retries)
    return job


def _into(job: dict[str, Any], field: str, **values: Any) -> None:
    """Sets the given values in an object inside the job, which is created if it is missing."""
    given = {name: value for name, value in values.items() if value is not None}
    if given:
        inner = job.setdefault(field, {})
        if not isinstance(inner, dict):
            raise BadUsage(f"--file: '{field}' is not an object")
        inner.update(given)


def _check_whole(job: dict[str, Any], file: str | None) -> None:
    """Raises BadUsage for a missing field. The server would refuse it, too, but could not name the flags."""
    missing = {field: job for field in ("name", "schedule") if field not in job}
    if job.get("type", "http_request") == "http_request" and "url" not in job["payload"]:
        missing["url"] = job["payload"]
    if not missing:
        return
    needs = f"a job needs {' and '.join(f'--{field}' for field in missing)}"
    if file is None:
        raise BadUsage(f"{needs}; or give --file. `duetime job create --help` has examples")
    slips = [
        f"it has '{slip}': did you mean '{field}'?"
        for field, there in missing.items()
        for slip in get_close_matches(field, there, 1)
    ]
    raise BadUsage(f"--file {file}: {needs}, or the same in the file. {' '.join(slips)}".rstrip())


def _pair(text: str, sign: str, flag: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip():
        raise BadUsage(f"{flag} '{text}' has no '{sign}'; write it like {flag} name{sign}value")
    return name.strip(), value.strip()


def _body(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if text.lstrip()[:1] in ("{", "["):  # intended as JSON, so not sent as text
            raise BadUsage("--body looks like JSON but is not; check its quotes and commas") from None
        return text


def _read(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        job = json.loads(text)
    except (OSError, ValueError) as error:
        raise BadUsage(f"--file {file}: {error}") from None
    if not isinstance(job, dict):
        raise BadUsage(f"--file {file}: is not one JSON object; for many jobs, use `duetime job import`")
    return _without_facts(job) if "job_id" in job else job


def _without_facts(shown: dict[str, Any]) -> dict[str, Any]:
    """Returns a job that `show --json` printed, without the fields that the server sets.

    The server refuses hidden values, and names their places: a password can't be replaced by asterisks.
    """
    from duetime.client.models import Job
    from duetime.domain.job import HttpJob

    facts = set(Job.__struct_fields__) - {*HttpJob.__struct_fields__, "type"}
    return {field: value for field, value in shown.items() if field not in facts}
