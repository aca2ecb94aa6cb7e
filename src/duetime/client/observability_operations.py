"""The operations of the API on the state of the cluster: health, counts, rates; see operations.py."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duetime.client import models as m
from duetime.client.calls import Call, get, path_of

Instant = datetime | str


def cluster() -> Call[m.Cluster]:
    """For admins: return the living nodes with their roles, leases and shards."""
    return get(path_of("cluster"), m.Cluster)


def observability_now() -> Call[m.Now]:
    """For admins: return the worst jobs of the last minutes, and which tenants and targets take the nodes' places. For
    the operator: of all tenants."""
    return get(path_of("observability", "now"), m.Now)


def health(*, verbose: bool = False) -> Call[m.Health]:
    """Return the health of the server, also when it is degraded."""
    call = get("/health", m.Health, verbose=verbose or None)
    return msgspec.structs.replace(call, also_takes=503)


def ready() -> Call[m.Readiness]:
    """Return whether the node that responds should get requests, also when it should not."""
    return msgspec.structs.replace(get("/health/ready", m.Readiness), also_takes=503)


def stats() -> Call[m.Stats]:
    """For admins: count jobs by status and executions by state, those that are late, and those due within an hour."""
    return get(path_of("stats"), m.Stats)


def observability() -> Call[m.ObservabilityMetrics]:
    """For admins: return rates, errors, durations and lateness over 1, 5 and 15 minutes, of the whole cluster."""
    return get(path_of("observability", "metrics"), m.ObservabilityMetrics)


def histograms(
    *,
    since: Instant | None = None,
    until: Instant | None = None,
    bucket_seconds: int | None = None,
    type: m.TypeWord | None = None,
) -> Call[m.Histograms]:
    """For admins: return durations, lateness and outcomes of the tenant's jobs by time: of the last hour by default."""
    path = path_of("observability", "histograms")
    return get(path, m.Histograms, **{"from": since, "to": until, "bucket": bucket_seconds, "type": type})


def job_histograms(
    job_id: str, *, since: Instant | None = None, until: Instant | None = None, bucket_seconds: int | None = None
) -> Call[m.Histograms]:
    """Return durations, lateness and outcomes of a job by time: of the last hour by default."""
    path = path_of("jobs", job_id, "histograms")
    return get(path, m.Histograms, **{"from": since, "to": until, "bucket": bucket_seconds})
