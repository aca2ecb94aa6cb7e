"""Arguments and options that commands share, and the lookup of a job by its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.settings import BadSetting

if TYPE_CHECKING:
    from duetime.settings.table import Settings

DEFAULT_URL = "http://127.0.0.1:8080"
MOST_NAMES = 1000  # that are searched for a name
COMPLETION_SECONDS = 0.5
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses to listen on, and how to call them
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def client_of(context: typer.Context) -> Any:
    """Returns a client for the server of --url or DUETIME_URL, with the token of --token."""
    from duetime.cli.client import Client

    root = context.find_root().params
    return Client(root["url"] or own_url(), token=root["given"])


def own_url() -> str:
    """Returns the URL of the server that `duetime serve` would start here. Raises BadSetting."""
    from duetime.settings.loading import load_on_demand

    settings = load_on_demand()
    host, port = _ANY.get(settings.host, settings.host), settings.port
    if not port:  # a free one, chosen when the server starts
        return DEFAULT_URL
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def segment(text: str) -> str:
    """Returns an id or a name as one segment of a path."""
    return quote(text, safe="")


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Returns names of jobs for shell completion, or none if there is no server."""
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
    bool, typer.Option("--follow", "-f", help="Follow the log until the execution has ended.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most.")]

DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", help="postgresql://…: the database; DATABASE_URL if left out.")
]
Data = Annotated[str | None, typer.Option("--data", help="Folder of the SQLite database, instead of --database-url.")]


def storage_settings(database_url: str | None, data: str | None) -> Settings:
    """Returns the settings with this database. A folder takes precedence over DATABASE_URL in the environment."""
    if database_url is not None and data is not None:
        raise BadUsage("give --database-url or --data, not both")
    from duetime.settings.loading import load

    return load({"DATABASE_URL": "" if data is not None else database_url, "DATA": data})


def find_job_id(client: Any, text: str) -> str:
    """Returns the id of the job with this id or whole name."""
    if _ID.fullmatch(text):
        return text.lower()
    found = [
        job
        for page in client.pages("/jobs", "jobs", {"name": text, "sort": "name", "order": "asc"}, MOST_NAMES)
        for job in page["jobs"]
        if job["name"] == text
    ]
    if len(found) > 1:  # a cancelled job is rarely meant
        found = [job for job in found if job["status"] != "CANCELLED"] or found
    if not found:
        raise CommandFailed(f"there is no job named '{text}'; `duetime job list` shows all jobs")
    if len(found) > 1:
        details = tuple(f"{job['job_id']}  {job['status']}  {job['schedule']}" for job in found)
        raise CommandFailed(f"{len(found)} jobs are named '{text}'; use the id of one:", details)
    return str(found[0]["job_id"])
