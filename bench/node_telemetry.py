"""The telemetry of a node, for an engine that the benchmark runs without one.

`bench.pairs` runs this with older checkouts, too, which may have other subscribers, or none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import structlog

METRICS = ("duetime.telemetry.prometheus.metrics", "duetime.telemetry.metrics")


def with_telemetry(store: Any) -> tuple[dict[str, Any], Any]:
    """Returns the engine's argument, and the store whose commands are emitted."""
    hub_module = _found("duetime.telemetry.hub")
    if hub_module is None:
        return {}, store
    hub = hub_module.Telemetry()
    for name in METRICS:
        if metrics := _found(name):
            metrics.Metrics(hub)
            break
    if lifecycle := _found("duetime.telemetry.lifecycle"):
        levels, lines = _found("duetime.domain.log_levels"), _found("duetime.telemetry.limited_lines")
        sampling = _found("duetime.domain.sampling")
        assert levels is not None
        assert lines is not None
        assert sampling is not None
        shown = lines.LimitedLines(lifecycle.later)
        lifecycle.Lifecycle(hub, levels.parse_log_levels("info"), shown, sampling.NOTHING)
    return {"telemetry": hub}, import_module("duetime.telemetry.measured_store").measured(store, hub)


def quiet() -> None:
    """Lets the engine log errors only. The limited lines of a burst are made, and go nowhere."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))


def _found(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None
