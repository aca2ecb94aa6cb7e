"""The command line: `duetime …`. Each group of commands has its own file.

`duetime --help` and shell completion must be quick: commands import the server and the domain when they run.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from duetime import __version__
from duetime.cli import (
    alerts,
    audit,
    circuits,
    cluster,
    config,
    connections,
    cron,
    doctor,
    executions,
    health,
    job,
    keys,
    migrate,
    promote,
    serve,
    signing,
    statistics,
    subscriptions,
    token,
    top,
    worker,
)
from duetime.cli.argv import hide_typed_secrets
from duetime.cli.errors import Program

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"duetime {__version__}\n")
        raise typer.Exit


@app.callback()
def callback(
    url: Annotated[
        str | None,
        typer.Option(
            envvar="DUETIME_URL",
            help="URL of the server. If left out: HOST and PORT of the environment or duetime.toml; "
            "http://127.0.0.1:8080 by default.",
            show_default=False,
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="DUETIME_TOKEN",
            help="A token (JWT) or API key. Other users of this machine can see it here: set the variable instead.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Duetime runs jobs in due time.

    \b
    duetime serve                         # a server on this machine
    duetime job create --name hello --schedule "every 5m" \\
        --url https://example.com/hook
    duetime job list                      # all jobs, and when they are due
    duetime job why hello                 # what it will do next, what blocks it
    duetime cron next "0 9 * * MON-FRI" --timezone Europe/Berlin
    """


app.command("serve")(serve.serve)
app.command("worker")(worker.worker)
app.add_typer(job.app, name="job")
app.add_typer(executions.app, name="execution")
app.add_typer(executions.dead_letters, name="dead-letters")
app.add_typer(cron.app, name="cron")
app.add_typer(connections.app, name="connection")
app.add_typer(config.app, name="config")
app.add_typer(audit.app, name="audit")
app.add_typer(circuits.app, name="circuits")
app.add_typer(subscriptions.app, name="subscription")
app.add_typer(alerts.app, name="alert")
app.add_typer(signing.app, name="signing-key")
app.command("health")(health.health)
app.command("stats")(statistics.stats)
app.command("cluster")(cluster.cluster)
app.command("top")(top.top)
app.add_typer(keys.app, name="keys")
app.command("migrate")(migrate.migrate)
app.command("doctor")(doctor.doctor)
app.command("promote")(promote.promote)
app.add_typer(token.app, name="token")


def main() -> None:
    hide_typed_secrets(sys.argv)
    app()


if __name__ == "__main__":
    main()
