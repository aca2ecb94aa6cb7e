"""`duetime config`: which settings hold here, and where each came from."""

from __future__ import annotations

import typer

from duetime.cli.options import Json

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
    from duetime.settings.loading import load

    settings = load({}).list_shown()
    if as_json:
        print_json([setting._asdict() for setting in settings])
        return
    print_table(("setting", "value", "from", "for"), settings, "")
