"""Follows a log, and resumes after a broken connection."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from duetime.cli.client import Client
from duetime.cli.errors import CommandFailed
from duetime.client.calls import Followed, Frame, path_of
from duetime.client.plain_http import PlainHttpError
from duetime.client.sse import Following

SILENCE_SECONDS = 15.0  # the server sends something every few seconds
TRIES = 5  # connections in a row that bring no event
PAUSE_SECONDS = 1.0


def follow_logs(client: Client, execution: str) -> Iterator[Frame]:
    """Yields the log of an execution from its beginning until the execution ends."""
    following = Following(Followed(path_of("executions", execution, "logs"), lambda frame: frame, end="end"))
    tries = 0
    while True:
        following.open()
        with contextlib.suppress(PlainHttpError):  # resumed below, like a stream that ends too early
            for chunk in client.stream(following.call(), SILENCE_SECONDS):
                for frame in following.take(chunk):
                    tries = 0
                    yield frame
                if following.is_over:
                    return
        tries += 1
        if tries > TRIES:
            raise CommandFailed(f"the connection to {client.url} broke, and so did {TRIES} more; run this again")
        time.sleep(PAUSE_SECONDS)
