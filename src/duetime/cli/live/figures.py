"""The figures of a frame, from what the API tells. A part that an older server does not tell is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]

WINDOWS = ("1m", "5m", "15m")
SHARES = ("p50", "p95", "p99")
OF_SHARES = "5m"  # the window of lateness and duration
FIRING = "firing"
SILENT_SECONDS = 6.0  # a node reports every two


def rates_of(windows: Row | None) -> dict[str, dict[str, float]]:
    """Returns executions per second and the percentage that failed, by window."""
    return {
        name: {
            "per_second": windows[name]["per_second"],
            "failure_percent": round(100 * windows[name]["failure_ratio"], 2),
        }
        for name in WINDOWS
        if windows is not None
    }


def spread_of(windows: Row | None, name: str) -> dict[str, int | None]:
    """Returns percentiles of lateness or duration, in ms."""
    return {} if windows is None else {share: windows[OF_SHARES][name][f"{share}_ms"] for share in SHARES}


def stages_of(stats: Row | None, nodes: Sequence[Row]) -> dict[str, int]:
    """Returns how many executions are at which stage, from late to written. Of nodes: for the operator only."""
    found: dict[str, int] = {}
    if stats is not None:
        waiting = stats["executions"].get("QUEUED", 0)
        found = {"late": stats["late"], "waiting": waiting, "retrying": stats["executions"].get("RETRYING", 0)}
    for name, field in (("queued on nodes", "queued"), ("running", "in_flight"), ("unwritten", "unwritten")):
        if nodes:
            found[name] = sum(node[field] for node in nodes)
    return found


def nodes_of(nodes: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns the nodes, each with how long it has been silent: compared with the latest report, not with our clock."""
    latest = max((_instant(node) for node in nodes), default=0.0)
    return [{**node, "silent_seconds": round(latest - _instant(node), 1)} for node in nodes]


def _instant(node: Row) -> float:
    return datetime.fromisoformat(node["reported_at"]).timestamp()


def tenants_of(uses: Sequence[Row], nodes: Sequence[Row], by_tenant: Row) -> list[dict[str, Any]]:
    """Returns the tenants that hold most, with their share of the places in which nodes run attempts."""
    places = sum(node["limit"] for node in nodes)
    return [
        {
            "tenant": use["tenant"], "running": use["running"], "waiting": use["waiting"],
            "share": round(use["running"] / places, 3) if places else None,
            "per_second": by_tenant[use["tenant"]]["1m"]["per_second"] if use["tenant"] in by_tenant else None,
        }
        for use in uses
    ]  # fmt: skip


def targets_of(waiting: Sequence[Row], circuits: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns open circuits first, then targets for which executions wait, then other targets that failed lately."""
    failing = [
        {"target": one["target"], "tenant": one["tenant"], "circuit": one["state"], "running": None, "waiting": None,
         "failures": one["failures"]}
        for one in circuits
    ]  # fmt: skip
    slow = [
        {"target": one["target"], "tenant": one["tenant"], "circuit": None, "running": one["running"],
         "waiting": one["waiting"], "failures": None}
        for one in waiting
    ]  # fmt: skip
    opened = [one for one in failing if one["circuit"] != "CLOSED"]
    return [*opened, *slow, *(one for one in failing if one["circuit"] == "CLOSED")]


def alerts_of(answer: Row | None) -> list[dict[str, Any]]:
    """Returns the alerts that fire, the latest first."""
    alerts = [] if answer is None else answer["alerts"]
    firing = [
        {"severity": one["severity"], "rule": one["rule"], "subject": one["subject"], "summary": one["summary"],
         "since": one["since"]}
        for one in alerts
        if one["state"] == FIRING
    ]  # fmt: skip
    return sorted(firing, key=lambda one: str(one["since"]), reverse=True)
