"""`duetime serve`: the node in this process, until Ctrl-C."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from duetime.cli.errors import CommandFailed
from duetime.cli.options import Json
from duetime.settings import BadSetting, Setting, is_loopback, load_settings

FIRST_JOB = """\
  curl {url}/api/v1/jobs -H 'content-type: application/json' \\
    -d '{{"name": "hello", "schedule": "every 1m", "payload": {{"url": "https://example.com/"}}}}'"""


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of the database.")] = None,
    database_url: Annotated[
        str | None, typer.Option(help="postgresql://…: the database that several nodes share, in place of --data.")
    ] = None,
    roles: Annotated[
        str | None, typer.Option(help="What this node does: any of api,timer,worker,alerts; all of it by default.")
    ] = None,
    allow_private_targets: Annotated[
        str | None, typer.Option(help="true, or networks that jobs may call although they are not public.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    as_json: Json = False,
) -> None:
    """Serve the API and run jobs, until Ctrl-C.

    Every setting can also come from the environment (DUETIME_…) or duetime.toml: see `duetime config show`.

    \b
    duetime serve                # http://127.0.0.1:8080, data in ./duetime-data
    duetime serve --port 9000 --data /var/lib/duetime
    duetime serve --database-url postgresql://user@host/duetime   # on each machine: they share the work
    duetime serve --allow-private-targets 127.0.0.0/8  # jobs may call this machine
    """
    settings = load_settings(
        {
            "HOST": host,
            "PORT": None if port is None else str(port),
            "DATA": data,
            "DATABASE_URL": database_url,
            "ROLES": roles,
            "ALLOW_PRIVATE_TARGETS": allow_private_targets,
            "LOG_LEVEL": log_level,
        }
    )
    _check_host(settings["HOST"].value)
    _run(settings, as_json)


def _check_host(host: str) -> None:
    if not is_loopback(host):
        raise BadSetting(
            f"HOST: '{host}' is not this machine alone, and this version has no identity yet: "
            "whoever reaches the port could run jobs. Listen on 127.0.0.1."
        )


def _run(settings: Mapping[str, Setting], as_json: bool) -> None:
    import asyncio

    import uvloop

    from duetime.node import Node
    from duetime.store import StoreUnusable
    from duetime.store.postgres.connections import Address
    from duetime.telemetry.logs import configure_logs

    configure_logs(settings["LOG_LEVEL"].value)

    def ready(url: str) -> None:
        database = settings["DATABASE_URL"].value
        data = f"PostgreSQL at {Address(database).shown}" if database else str(settings["DATA"].value)
        sys.stdout.write(json.dumps({"url": url, "data": data}) + "\n" if as_json else _welcome(url, data))
        sys.stdout.flush()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Node(settings).serve(ready))
    except (StoreUnusable, OSError) as error:
        raise CommandFailed(str(error)) from None


def _welcome(url: str, data: str) -> str:
    return (
        f"Duetime serves {url}   data in {data}   API at {url}/docs   Ctrl-C stops it\n"
        "No identity is set up: whoever can reach this port on this machine is its admin.\n"
        f"A first job:\n{FIRST_JOB.format(url=url)}\n"
    )
