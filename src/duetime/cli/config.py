"""`duetime config`: the settings, and the source of each."""

from __future__ import annotations

import typer

from duetime.cli.options import Json
from duetime.cli.output import print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Settings: their values, and the source of each.")


@app.command()
def show(as_json: Json = False) -> None:
    """Show each setting, its value and its source. Secrets are hidden.

    A flag of `serve` takes precedence over DUETIME_<NAME> in the environment, that over duetime.toml here, that over
    the default.

    \b
    duetime config show
    DUETIME_PORT=9000 duetime config show --json
    """
    from duetime.settings.loading import load

    settings = load({}).list_shown()
    if as_json:
        print_json([setting._asdict() for setting in settings])
    else:
        print_table(("setting", "value", "from", "for"), settings, "")
