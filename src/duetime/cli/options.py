"""Arguments and options that commands share, and how a job is found by what a person calls it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.settings import BadSetting

if TYPE_CHECKING:
    from duetime.settings.table import Settings

DEFAULT_URL = "http://127.0.0.1:8080"
MOST_NAMES = 1000  # looked through for a name
COMPLETION_SECONDS = 0.5
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a server listens that listens everywhere
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def client_of(context: typer.Context) -> Any:
    """The client of the server that `duetime --url` or DUETIME_URL names, with the token that --token gives."""
    from duetime.cli.client import Client

    root = context.find_root().params
    return Client(root["url"] or own_url(), token=root["given"])


def own_url() -> str:
    """Of the server that `duetime serve` would be, started here: nobody has to say a port twice. Raises BadSetting."""
    from duetime.settings.loading import load_on_demand

    settings = load_on_demand()
    host, port = _ANY.get(settings.host, settings.host), settings.port
    if not port:  # a free one, which only that server knows
        return DEFAULT_URL
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of jobs for the shell. Says nothing when there is no server."""
    from duetime.cli.client import Client

    try:
        root = context.find_root().params
        client = Client(root["url"] or own_url(), COMPLETION_SECONDS, root["given"])
        jobs = client.get("/jobs", {"name": incomplete or None, "sort": "name", "order": "asc", "limit": 100})["jobs"]
    except (CommandFailed, BadSetting, KeyError):
        return []
    return [(job["name"], job["job_id"]) for job in jobs if job["name"].startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.", show_default=False)]
Job = Annotated[str, typer.Argument(help="The job: its id, or its whole name.", autocompletion=complete_job)]
Execution = Annotated[str, typer.Argument(help="The execution's id.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on as it is written, until the end.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most.")]

DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", help="postgresql://…: the database; DATABASE_URL if left out.")
]
Data = Annotated[str | None, typer.Option("--data", help="Folder of the SQLite database, in place of --database-url.")]


def storage_settings(database_url: str | None, data: str | None) -> Settings:
    """Settings, with the database that was named. A folder that is named wins over a DATABASE_URL around us."""
    if database_url is not None and data is not None:
        raise BadUsage("give --database-url or --data, not both")
    from duetime.settings.loading import load

    return load({"DATABASE_URL": "" if data is not None else database_url, "DATA": data})


def find_job_id(client: Any, text: str) -> str:
    """The id of the job that `text` is the id or the whole name of."""
    if _ID.fullmatch(text):
        return text.lower()
    found = [
        job
        for page in client.pages("/jobs", "jobs", {"name": text, "sort": "name", "order": "asc"}, MOST_NAMES)
        for job in page["jobs"]
        if job["name"] == text
    ]
    if len(found) > 1:  # what was cancelled is seldom meant
        found = [job for job in found if job["status"] != "CANCELLED"] or found
    if not found:
        raise CommandFailed(f"there is no job named '{text}'; `duetime job list` shows what there is")
    if len(found) > 1:
        details = tuple(f"{job['job_id']}  {job['status']}  {job['schedule']}" for job in found)
        raise CommandFailed(f"{len(found)} jobs are named '{text}'; say which by its id:", details)
    return str(found[0]["job_id"])
