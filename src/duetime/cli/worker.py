"""`duetime worker`: runs the Python functions of an app for a server."""

from __future__ import annotations

import logging
import os
from typing import Annotated, Any, Literal, NoReturn

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import Json, own_url
from duetime.cli.output import print_failure, print_json_line


def worker(
    context: typer.Context,
    app: Annotated[str, typer.Argument(help="Where the app is: module:app, or path/to/file.py:app.")],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, max=1000, help="Functions at once, in each process.")
    ] = 32,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=256, help="Worker processes.")] = 1,
    pool: Annotated[
        Literal["thread", "process"],
        typer.Option(help="Where functions that are not async run. A process can be ended at its timeout."),
    ] = "thread",
    drain: Annotated[float, typer.Option(min=0, help="Seconds that a stop waits for running functions.")] = 30.0,
    name: Annotated[
        str | None, typer.Option(help="Its name in lists; the names of the machine and the process if left out.")
    ] = None,
    prune_declared: Annotated[
        bool,
        typer.Option(
            "--prune-declared",
            help="First remove, with their history, the jobs that this app once declared and no longer declares.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the Python functions of an app for the server that --url names, until Ctrl-C.

    It connects to the server and needs no open port. First it creates or updates the jobs that the app declares;
    a cancelled job stays cancelled.

    \b
    duetime worker jobs:app
    duetime worker jobs:app --concurrency 100 --processes 4
    duetime --url https://duetime.example worker jobs.py:app --pool process
    """
    from duetime.domain.log_levels import LogLevels
    from duetime.functions.loading import AppNotFound, load_app
    from duetime.functions.source import SourceRefused
    from duetime.functions.supervisor import run_processes
    from duetime.telemetry.logs import configure_logs

    configure_logs(LogLevels())
    logging.getLogger().setLevel(logging.INFO)  # for the logs and failures of functions
    root = context.find_root()
    url: str | None = root.params["url"]
    if url is None:  # the default server of all commands, unless the app names one
        os.environ["DUETIME_URL"] = own_url()

    def make_worker(registry: Any) -> Any:
        from duetime.functions.worker import Worker
        from duetime.sdk.remote import RemoteSource

        loaded: Any = load_app(app)
        source = RemoteSource(url or loaded.url, root.params["given"] or loaded.token)
        return Worker(
            source, registry, name=name, slots=concurrency, pool=pool, app=app if pool == "process" else None,
            drain_seconds=drain,
        )  # fmt: skip

    try:
        _put_jobs(app, url, root.params["given"], prune_declared)
        if as_json:
            print_json_line({"app": app, "processes": processes, "concurrency": concurrency, "pool": pool})
        code = run_processes(app, processes, make_worker)
    except (AppNotFound, ValueError) as error:
        raise BadUsage(str(error)) from None
    except SourceRefused as error:
        print_failure(str(error), ())
        code = 1
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Exits without the interpreter's shutdown: a thread of the HTTP client may still run a cancelled poll, and would
    abort the process. All results have been reported by now."""
    import sys

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _put_jobs(spec: str, url: str | None, token: str | None, prune: bool) -> None:
    """Runs in a separate process: this one forks later, so it must not import the app or open a connection."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "duetime.sdk.declare", spec, url or "", *(["--prune"] if prune else [])]
    env = {**os.environ, "DUETIME_TOKEN": token} if token else None
    ended = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, check=False)
    said = ended.stderr.strip().splitlines()
    if ended.returncode:
        raise (BadUsage if ended.returncode == 2 else CommandFailed)(said[-1] if said else "the app failed")
    for line in said:
        typer.echo(line, err=True)
