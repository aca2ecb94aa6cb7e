"""A web program for gunicorn --preload: it enqueues when it is loaded, in each forked worker, and for a request.

PRELOADED_URL is the app's, and PRELOADED_TALLY a file that an embedded app's function writes to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from duetime import Duetime

app = Duetime(os.environ["PRELOADED_URL"])


@app.job(name="preloaded")
def preloaded(who: str, process: int) -> None:
    with open(os.environ["PRELOADED_TALLY"], "a") as tally:
        tally.write(f"{who} {process}\n")


if app.is_embedded:
    app.start()
app.enqueue(preloaded, "loaded", os.getpid())


def post_worker_init(worker: Any) -> None:
    """Called by gunicorn in each worker."""
    app.enqueue(preloaded, "forked", os.getpid())


def web(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
    made = app.enqueue(preloaded, "asked", os.getpid())
    start_response("200 OK", [("content-type", "text/plain")])
    return [made.job_id.encode()]
