"""`duetime doctor`: checks the database and the cluster."""

from __future__ import annotations

import typer

from duetime.cli.options import Data, DatabaseUrl, Json, storage_settings
from duetime.cli.output import print_json, print_table, state


def doctor(database_url: DatabaseUrl = None, data: Data = None, as_json: Json = False) -> None:
    """Check the database and the cluster. Each check is ok, a warning or a problem, with advice.

    It only reads, and needs no running server. Exit code 1 if there is a problem; warnings do not count.

    \b
    duetime doctor                 # the database of DATABASE_URL or DATA
    duetime doctor --database-url postgresql://user@host/duetime
    duetime doctor --data /var/lib/duetime --json
    """
    import asyncio

    from duetime.domain.doctor import has_problem
    from duetime.operate.doctor import run_checks

    checks = asyncio.run(run_checks(storage_settings(database_url, data)))
    if as_json:
        print_json(
            [
                {"check": it.check, "status": it.status.value, "found": it.found, "advice": it.advice or None}
                for it in checks
            ]
        )
    else:
        rows = [(it.check, state(it.status.value), it.found, it.advice) for it in checks]
        print_table(("check", "status", "finding", "what to do"), rows, "")
    if has_problem(checks):
        raise typer.Exit(1)
