"""`duetime job create` and `duetime job change`: a job, or fields of one, from flags or from a file."""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage
from duetime.cli.options import Job, Json, client_of, find_job_id

Name = Annotated[str | None, typer.Option(help="What to call it.")]
Schedule = Annotated[
    str | None, typer.Option(help="immediate, an instant, 'every 5m', or cron; `duetime cron explain` tries one.")
]
Url = Annotated[str | None, typer.Option(help="What it calls. (The server: `duetime --url … job …`.)")]
Header = Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header; may be repeated.")]
Body = Annotated[str | None, typer.Option(help="What it sends: JSON, or else text.")]
Retries = Annotated[int | None, typer.Option(help="How often a failed run is tried again.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds that one attempt may take.")]
Priority = Annotated[int | None, typer.Option(help="0 to 9, higher first.")]
OverlapPolicy = Annotated[
    str | None, typer.Option(help="If the last run is open: allow, skip, queue_one, queue_all, cancel_running.")
]
Description = Annotated[str | None, typer.Option(help="For people.")]


def create_job(
    context: typer.Context,
    name: Name = None,
    schedule: Schedule = None,
    url: Url = None,
    method: Annotated[str | None, typer.Option(help="How it calls it; POST if left out.")] = None,
    header: Header = None,
    body: Body = None,
    timezone: Annotated[str | None, typer.Option(help="Time zone of the schedule; UTC if left out.")] = None,
    retries: Retries = None,
    timeout: Timeout = None,
    priority: Priority = None,
    overlap: OverlapPolicy = None,
    key: Annotated[str | None, typer.Option(help="A name of yours, unique: a second create is refused.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A tag; may be repeated.")] = None,
    description: Description = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A job of any type as JSON, - for stdin; flags change its fields."),
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
    duetime job create --file job.json --name another
    duetime job show nightly --json | duetime job create --file - --key nightly2
    echo '{"type": "script", "payload": {"script": "date"}}' | \\
        duetime job create --file - --name clock --schedule "every 1h"
    """
    from duetime.cli.output import exactly, print_facts, print_json, print_warning

    job = _gather(
        file, {"url": url, "method": method, "body": body}, header, retries,
        name=name, schedule=schedule, timezone=timezone, timeout_seconds=timeout, priority=priority, overlap=overlap,
        key=key, description=description,
    )  # fmt: skip
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
    method: Annotated[str | None, typer.Option(help="How it calls it.")] = None,
    header: Header = None,
    body: Body = None,
    timezone: Annotated[str | None, typer.Option(help="Time zone of the schedule.")] = None,
    retries: Retries = None,
    timeout: Timeout = None,
    priority: Priority = None,
    overlap: OverlapPolicy = None,
    description: Description = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Fields as JSON, - for stdin; null resets one. Flags change them."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change the fields of a job that are named, and no other.

    \b
    duetime job change report --schedule "0 10 * * MON-FRI"
    duetime job change report --url https://example.com/v2/report --timeout 60
    echo '{"max_runs": 3, "timeout_seconds": null}' | \\
        duetime job change report --file -
    """
    from duetime.cli.output import exactly, print_facts, print_json

    changes = _gather(
        file, {"url": url, "method": method, "body": body}, header, retries,
        name=name, schedule=schedule, timezone=timezone, timeout_seconds=timeout, priority=priority, overlap=overlap,
        description=description,
    )  # fmt: skip
    if not changes:
        raise BadUsage("say what to change, with flags or --file; `duetime job change --help` has examples")
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
    """What the file has, changed by what the flags say."""
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
    """Set the given values in an object inside the job, which comes to be if need be."""
    given = {name: value for name, value in values.items() if value is not None}
    if given:
        inner = job.setdefault(field, {})
        if not isinstance(inner, dict):
            raise BadUsage(f"--file: '{field}' is not an object")
        inner.update(given)


def _check_whole(job: dict[str, Any], file: str | None) -> None:
    """What a server would miss as well; here the flags can be named."""
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
        if text.lstrip()[:1] in ("{", "["):  # meant as JSON: better refused than sent as text
            raise BadUsage("--body looks like JSON but is not; check its quotes and commas") from None
        return text


def _read(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        job = json.loads(text)
    except (OSError, ValueError) as error:
        raise BadUsage(f"--file {file}: {error}") from None
    if not isinstance(job, dict):
        raise BadUsage(f"--file {file}: holds no single job; for many, use `duetime job import`")
    return _without_facts(job) if "job_id" in job else job


def _without_facts(shown: dict[str, Any]) -> dict[str, Any]:
    """A job as `show --json` prints it, without what is not its author's to say: its id, its counts, when it ran.

    The server refuses a hidden value, and names its place: a password can't become a row of stars.
    """
    from duetime.client.models import Job
    from duetime.domain.job import HttpJob

    facts = set(Job.__struct_fields__) - {*HttpJob.__struct_fields__, "type"}
    return {field: value for field, value in shown.items() if field not in facts}
