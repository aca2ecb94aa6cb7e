"""The workloads, each a function that yields a `Result` for each subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from bench.arrivals import Sink
from bench.results import Result
from bench.scale import Scale


class Setting(msgspec.Struct, frozen=True):
    """What every workload is given."""

    sink: Sink
    scale: Scale
    peers: bool


Workload = Callable[[Setting], Iterator[Result]]
