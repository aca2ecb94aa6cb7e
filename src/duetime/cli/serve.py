"""`duetime serve`: runs a node in this process, until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from duetime.cli.errors import CommandFailed
from duetime.cli.options import Json
from duetime.settings import BadSetting

if TYPE_CHECKING:
    from duetime.settings.table import Settings

FIRST_JOB = """\
  curl {url}/api/v1/jobs -H 'content-type: application/json' \\
    {header}-d '{{"name": "hello", "schedule": "every 1m", "payload": {{"url": "https://example.com/"}}}}'"""

AS_ME = """-H "authorization: Bearer $(duetime token create --jwt --user me)" \\
    """
OPEN, REQUIRED = "open", "required"


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of the database.")] = None,
    database_url: Annotated[
        str | None, typer.Option(help="postgresql://…: the database that several nodes share, instead of --data.")
    ] = None,
    roles: Annotated[
        str | None, typer.Option(help="Roles of this node: any of api,timer,worker,alerts; all by default.")
    ] = None,
    allow_private_targets: Annotated[
        str | None, typer.Option(help="true, or networks that jobs may call although they are not public.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error; or by area: info,engine=debug.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve the API and run jobs, until Ctrl-C.

    Every setting can also come from the environment (DUETIME_…) or duetime.toml: see `duetime config show`.

    \b
    duetime serve                # http://127.0.0.1:8080, data in ./duetime-data
    duetime serve --port 9000 --data /var/lib/duetime
    duetime serve --database-url postgresql://user@host/duetime   # on each machine: they share the work
    duetime serve --allow-private-targets 127.0.0.0/8  # jobs may call this machine
    export DUETIME_JWT_SECRET="$(openssl rand -base64 32)"   # from now on, clients need a token
    duetime serve --host 0.0.0.0
    """
    from duetime.process.imports import import_structlog_without_rich
    from duetime.settings.loading import load

    import_structlog_without_rich()
    settings = load(
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
    _run(settings, _check_identity(settings), as_json)


def _check_identity(settings: Settings) -> str:
    """Returns `open` (every client is the admin, which is allowed on loopback only) or `required`.

    Keys that can't be used end the start here, before anything runs.
    """
    from duetime.domain.loopback import is_loopback

    if not settings.jwt_secret and not settings.jwks_file:
        if not is_loopback(settings.host):
            raise BadSetting(
                f"HOST: '{settings.host}' is not a loopback address, and clients would not have to authenticate: "
                "every client that reaches the port could run jobs. Set DUETIME_JWT_SECRET "
                "(`openssl rand -base64 32` prints one) or DUETIME_JWKS_FILE, or listen on 127.0.0.1."
            )
        return OPEN
    from duetime.api.auth.jwks import BadKeys
    from duetime.assembly import make_tokens

    try:
        make_tokens(settings)
    except BadKeys as error:
        raise BadSetting(str(error)) from None
    return REQUIRED


def _run(settings: Settings, identity: str, as_json: bool) -> None:
    import asyncio

    import structlog
    import uvloop

    from duetime.executors.sql.own import BadFolder
    from duetime.node import Node
    from duetime.ports.logs import LogsUnusable
    from duetime.ports.vault import KeysUnusable
    from duetime.settings.names import list_misspelt, list_unread
    from duetime.store import StoreUnusable
    from duetime.store.postgres.connections import Address
    from duetime.telemetry.logs import configure_logs

    configure_logs(settings.log_level)
    for sentence in (*list_unread(os.environ), *list_misspelt(os.environ)):
        structlog.get_logger().warning(sentence)

    def ready(url: str) -> None:
        database = settings.database_url
        data = f"PostgreSQL at {Address(database).shown}" if database else str(settings.data)
        if as_json:
            sys.stdout.write(json.dumps({"url": url, "data": data, "identity": identity}) + "\n")
        else:
            sys.stdout.write(_welcome(url, data, identity, bool(settings.jwt_secret)))
        sys.stdout.flush()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Node(settings).serve(ready))
    except BadFolder as error:
        raise BadSetting(str(error)) from None
    except (StoreUnusable, KeysUnusable, LogsUnusable, OSError) as error:
        raise CommandFailed(str(error)) from None


def _welcome(url: str, data: str, identity: str, signs: bool) -> str:
    """`signs`: there is a JWT_SECRET, so tokens can be signed here."""
    beginning = f"Duetime serves {url}   data in {data}   API at {url}/docs   Ctrl-C stops it\n"
    if identity == OPEN:
        return (
            f"{beginning}No identity is set up: every client on this machine is an admin.\n"
            f"A first job:\n{FIRST_JOB.format(url=url, header='')}\n"
        )
    if not signs:
        return (
            f"{beginning}Identity is required: a token that a key of JWKS_FILE verifies, or an API key.\n"
            "Create an API key with an admin's token: DUETIME_TOKEN=… duetime token create --name first\n"
        )
    return (
        f"{beginning}Identity is required: a token (`duetime token create --jwt --user me`) or an API key "
        "(`duetime token create --name first`).\n"
        f"A first job:\n{FIRST_JOB.format(url=url, header=AS_ME)}\n"
    )
