"""The app that the workers of these tests run. What a call did is told through files: they outlive who wrote them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from duetime import Context, Duetime

app = Duetime()


@app.job(name="count")
def count(number: int) -> None:
    """Says that it ran: one write, which lands whole at the end of the file whoever else writes."""
    descriptor = os.open(os.environ["TALLY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d\n" % number)
    os.close(descriptor)


@app.job(name="hang_once")
def hang_once(context: Context) -> dict[str, object]:
    """The first attempt saves how far it came, says so in its log, and never ends; the next one goes on from there."""
    context.log("attempt", context.attempt, "begins")
    if context.attempt == 1:
        context.save_progress({"rows": 17})
        context.log("saved")
        time.sleep(600)
    return {"id": context.execution_id, "attempt": context.attempt, "from": context.progress}


@app.job(name="last")
def last(folder: str, context: Context) -> int:
    """Ends when it is told to."""
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return context.attempt
