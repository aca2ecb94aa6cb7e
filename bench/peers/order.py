"""The order that every peer process is given. Imported by peers: nothing from the product, nothing heavy."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import msgspec


class Order(msgspec.Struct, frozen=True):
    run: str  # the first part of each target's path
    jobs: int
    instants: list[int]  # ms since the epoch; each job is due at each of them
    port: int = 0  # of the sink
    tally: str = ""  # the file of the tally, where functions are called and no webhooks sent
    postgres: dict[str, str] = {}  # host (a folder), user, database
    folder: str = ""  # for files of the peer's own

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def path(self, number: int, instant: int) -> str:
        """Where a queue sends a job that it keeps apart for each instant."""
        return f"/{self.run}/{number}/{instant}" if len(self.instants) > 1 else f"/{self.run}/{number}"

    def each(self) -> Iterator[tuple[int, int]]:
        """Every (instant, number), in order of time."""
        return ((instant, number) for instant in self.instants for number in range(self.jobs))


def read_order() -> Order:
    return msgspec.json.decode(sys.argv[1], type=Order)


def say_stored() -> None:
    print("stored", flush=True)


def end_on_sigterm() -> None:
    """End at once: what a peer would tidy up on the way out is of no use to anybody here."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
