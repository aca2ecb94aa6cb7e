"""Reads one frame: a few requests to the API, made into the figures that the view shows. It keeps nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from duetime.cli.errors import CommandFailed
from duetime.cli.live.figures import (
    alerts_of,
    nodes_of,
    rates_of,
    spread_of,
    stages_of,
    targets_of,
    tenants_of,
)

MOST_EXECUTIONS = 30  # of an open job


class Gatherer:
    """`client`: of the command line; one thread uses it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def frame(self, job_id: str | None = None) -> dict[str, Any]:
        """Returns a frame, with an open job if there is one. Raises CommandFailed if the server can't be read."""
        began, client = time.perf_counter(), self._client
        now = client.get("/observability/now")
        figures = client.find("/observability/metrics") or {}
        nodes, total = nodes_of(figures.get("nodes", ())), figures.get("total")
        frame = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "url": client.url,
            "rates": rates_of(total),
            "lateness": spread_of(total, "lateness"),
            "duration": spread_of(total, "duration"),
            "stages": stages_of(client.find("/stats"), nodes),
            "nodes": nodes,
            "jobs": now["jobs"],
            "targets": targets_of(now["targets"], now.get("circuits", ())),
            "tenants": tenants_of(now["tenants"], nodes, figures.get("by_tenant", {})),
            "alerts": alerts_of(client.find("/alerts")),
        }
        if job_id is not None:
            frame["job"] = self._job(job_id)
        return {**frame, "took_ms": round((time.perf_counter() - began) * 1000)}

    def _job(self, job_id: str) -> dict[str, Any]:
        """Returns an open job. It may have been removed: then the frame says so, and is shown all the same."""
        try:
            executions = self._client.get(f"/jobs/{job_id}/executions", {"limit": MOST_EXECUTIONS})
            return {
                "job_id": job_id,
                "shown": self._client.get(f"/jobs/{job_id}"),
                "why": self._client.get(f"/jobs/{job_id}/why"),
                "executions": executions["executions"],
            }
        except CommandFailed as failure:
            return {"job_id": job_id, "error": failure.message}
