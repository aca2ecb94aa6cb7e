"""The app of the workers of these tests. Calls leave their results in files, which survive a kill."""

from __future__ import annotations

import os
import time
from pathlib import Path

from duetime import Context, Duetime

app = Duetime()


@app.job(name="count")
def count(number: int) -> None:
    """Appends a line to a file, in one write, which is atomic."""
    descriptor = os.open(os.environ["TALLY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d\n" % number)
    os.close(descriptor)


@app.job(name="hang_once")
def hang_once(context: Context) -> dict[str, object]:
    """The first attempt saves its progress, logs it, and never ends. The next one continues from there."""
    context.log("attempt", context.attempt, "begins")
    if context.attempt == 1:
        context.save_progress({"rows": 17})
        context.log("saved")
        time.sleep(600)
    return {"id": context.execution_id, "attempt": context.attempt, "from": context.progress}


@app.job(name="last")
def last(folder: str, context: Context) -> int:
    """Runs until the file `go` exists."""
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return context.attempt
