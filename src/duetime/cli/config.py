"""`duetime config`: which settings hold here, and where each came from."""

from __future__ import annotations

import typer

from duetime.cli.options import Json
from duetime.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="Settings: their values, and where each came from.")


@app.callback()
def callback() -> None:
    """Settings: their values, and where each came from."""


@app.command()
def show(as_json: Json = False) -> None:
    """Each setting, its value and where it came from. Secrets are hidden.

    A flag of `serve` wins over DUETIME_<NAME> in the environment, that over duetime.toml here, that over the default.

    \b
    duetime config show
    DUETIME_PORT=9000 duetime config show --json
    """
    from duetime.cli.output import print_json, print_table

    settings = load_settings({}).values()
    if as_json:
        print_json([{"name": it.name, "value": it.shown, "source": it.source, "help": it.help} for it in settings])
        return
    print_table(("setting", "value", "from", "for"), [(it.name, it.shown, it.source, it.help) for it in settings], "")
