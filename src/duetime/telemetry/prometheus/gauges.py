"""Gauges: figures of the node as of the scrape. `Readings` has them all; this file names and explains them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import nlargest

from duetime.domain.instants import SECOND
from duetime.domain.troubles import PlaceUse
from duetime.telemetry.prometheus.families import OTHER, Counter, Gauge, Labels
from duetime.telemetry.readings import ByTenant, EngineReadings, Readings, StoreTotals

MOST_TENANTS = 10  # named; the others are summed
MOST_TARGETS = 10  # named; there is no sum: those for which nothing waits are not known


NO_TOTALS = StoreTotals(executions={}, waiting={}, dead_letters=0)


class QueueGauges:
    """What jobs take of the store's capacity."""

    def __init__(self) -> None:
        self.bytes = Gauge("queue_memory_usage_bytes", "Bytes of all jobs' definitions.")
        self.most_bytes = Gauge("queue_memory_limit_bytes", "Limit on these bytes; +Inf: no limit.")
        self.percent = Gauge("queue_memory_utilization_percent", "Usage of the limit.")
        self.jobs = Gauge("queue_job_count", "Jobs of all tenants.")
        self.most_jobs = Gauge("queue_job_limit", "Limit on the number of jobs; +Inf: no limit.")
        self.utilization = Gauge(
            "queue_utilization_ratio", "Usage of the nearest of both limits, as a share of what one tenant may hold."
        )

    def set(self, readings: Readings) -> None:
        load, capacity = readings.load, readings.capacity
        self.most_bytes.set(math.inf if capacity.most_bytes is None else capacity.most_bytes)
        self.most_jobs.set(math.inf if capacity.most_jobs is None else capacity.most_jobs)
        if load is None:
            for gauge in (self.bytes, self.percent, self.jobs, self.utilization):
                gauge.set(math.nan)
            return
        self.bytes.set(load.bytes)
        self.percent.set(0 if capacity.most_bytes is None else 100 * load.bytes / capacity.most_bytes)
        self.jobs.set(load.jobs)
        self.utilization.set(capacity.utilization_percent(load) / max(1, capacity.tenant_percent))


class EngineGauges:
    """What the engine of this node holds."""

    def __init__(self) -> None:
        self.in_flight = Gauge(
            "attempts_in_flight", "Attempts that run now, by type of job; python: in workers that poll this node.",
            ["type"],
        )  # fmt: skip
        self.limits = Gauge("attempts_limit", "How many may run at once, by type of job.", ["type"])
        self.waiting = Gauge(
            "executions_waiting", "Executions that wait on this node, by stage (due: not fired yet; queued: for a "
            "place; recording: ended, not written yet) and tenant: the "
            f"{MOST_TENANTS} with the most, the rest as other.",
            ["stage", "tenant"],
        )  # fmt: skip
        self.targets = Gauge(
            "target_executions", "Executions on this node for a target that keeps others waiting, by state (running; "
            f"waiting: for a place): of the {MOST_TARGETS} targets with the most. The target is a scheme, host and "
            "port, or the name of a connection or function.", ["tenant", "target", "state"],
        )  # fmt: skip
        self.places = Gauge("memory_places_used", "Places of memory that claims take; 4 kB each.")
        self.most_places = Gauge("memory_places_limit", "Places of memory for claims.")
        self.read_ahead = Gauge("timers_read_ahead", "Timers in memory that are not fired yet.")
        self.shards = Gauge("shards_owned", "Shards whose jobs this node fires.")
        self.services = Gauge("service_up", "1: the last turn of this service succeeded.", ["service"])
        self.circuits = Gauge("circuits", "Circuits of targets that failed lately, by state.", ["state"])
        self.workers = Gauge("workers", "Workers of Python functions that have polled this node lately.")
        self.slots = Gauge("worker_slots", "Executions that these workers can run at once.")
        self.polls = Gauge("worker_polls", "Polls of workers that are open at this node.")

    def set(self, engine: EngineReadings) -> None:
        self.in_flight.replace(_by(engine.in_flight))
        self.limits.replace(_by(engine.limits))
        self.waiting.replace(_by_tenant(engine.waiting))
        self.targets.replace(_by_target(engine.targets))
        self.places.set(engine.places)
        self.most_places.set(engine.most_places)
        self.read_ahead.set(engine.read_ahead)
        self.shards.set(engine.shards)
        self.services.replace(_by(engine.services))
        self.circuits.replace(_by(engine.circuits))
        self.workers.set(engine.workers)
        self.slots.set(engine.slots)
        self.polls.set(engine.polls)


class StoreGauges:
    """What the store holds, which is the same on every node; and how busy this node's part of it is."""

    def __init__(self) -> None:
        self.up = Gauge("store_up", "1: the store could be read. 0: figures of the store are NaN, or missing.")
        self.executions = Gauge(
            "store_executions", "Executions in the ledger, by state: of all nodes, the same on each.", ["state"]
        )
        self.parked = Gauge(
            "store_executions_waiting", "Executions that wait in the ledger (parked: QUEUED, for room, a worker or an "
            f"earlier one; retrying), by tenant: the {MOST_TENANTS} with the most, the rest as other. The same on each "
            "node.", ["stage", "tenant"],
        )  # fmt: skip
        self.jobs = Gauge("store_jobs", "Jobs, by status: the same on each node.", ["status"])
        self.dead_letters = Gauge(
            "store_dead_letters", "Dead letters of all tenants, counted up to 10,000: the same on each node."
        )
        self.without_worker = Gauge(
            "functions_without_worker", "Python functions with due executions and no living worker, of those that this "
            "node has fired."
        )  # fmt: skip
        self.writer_waiting = Gauge("writer_queue_batches", "Batches of commands that wait for the writer.")
        self.writer_limit = Gauge("writer_queue_limit_batches", "Beyond so many, further batches are refused.")
        self.writer_saturation = Gauge("writer_queue_saturation_ratio", "The first as a share of the second, 0 to 1.")
        self.connections = Gauge(
            "store_connections", "Connections of this node for reads, by group (engine, own, people) and state.",
            ["group", "state"],
        )  # fmt: skip
        self.most_connections = Gauge("store_connections_limit", "Limit on the connections of a group.", ["group"])

    def set(self, readings: Readings) -> None:
        self.up.set(readings.store_up)
        self._set_totals(readings.totals or NO_TOTALS)
        without = readings.functions_without_worker
        self.without_worker.set(math.nan if without is None else without)
        if readings.totals is None:
            self.dead_letters.set(math.nan)
        store = readings.store
        self.writer_waiting.set(store.waiting)
        self.writer_limit.set(store.most_waiting)
        self.writer_saturation.set(store.waiting / max(1, store.most_waiting))
        pools = store.pools.items()
        used: dict[Labels, float] = {(group, "busy"): pool.busy for group, pool in pools}
        self.connections.replace(used | {(group, "idle"): pool.idle for group, pool in pools})
        self.most_connections.replace({(group,): pool.most for group, pool in pools})

    def _set_totals(self, totals: StoreTotals) -> None:
        self.executions.replace(_by(totals.executions))
        self.jobs.replace(_by(totals.jobs))
        self.dead_letters.set(totals.dead_letters)
        self.parked.replace(_by_tenant(totals.waiting))


class NodeGauges:
    """The node itself, its view of the cluster, and its logs of executions."""

    def __init__(self) -> None:
        self.info = Gauge(
            "node_info", "1, with the node's name, number, version and roles.", ["name", "node", "version", "roles"]
        )
        self.clock_offset = Gauge(
            "clock_offset_seconds",
            "How far this node's clock is ahead of the database's; NaN: there is no other clock.",
        )
        self.nodes = Gauge("cluster_nodes", "Living nodes, as of this node's last heartbeat.")
        self.free_shards = Gauge("cluster_shards_free", "Shards without a living owner: their jobs are not fired.")
        self.followers = Gauge("event_followers", "Clients that follow events (SSE).")
        self.streams = Gauge("api_streams", "Open streams, of events and logs.")
        self.most_streams = Gauge("api_streams_limit", "Limit on them.")
        self.log_bytes = Counter("log_written_bytes", "Bytes of executions' logs that were stored.")
        self.log_lost = Counter("log_lost_lines", "Lines of executions' logs that could not be stored.")
        self.log_waiting = Gauge("log_waiting_bytes", "Bytes of executions' logs in memory, not stored yet.")

    def set(self, readings: Readings) -> None:
        node = readings.name, str(readings.node), readings.version, ",".join(readings.roles)
        self.info.replace({node: 1})
        offset = readings.clock_offset
        self.clock_offset.set(math.nan if offset is None else offset / SECOND)
        self.nodes.set(readings.nodes)
        self.free_shards.set(readings.free_shards)
        self.followers.set(readings.followers)
        self.streams.set(readings.streams)
        self.most_streams.set(readings.most_streams)
        self.log_bytes.set(readings.logs.stored_bytes)
        self.log_lost.set(readings.logs.lost_lines)
        self.log_waiting.set(readings.logs.waiting_bytes)


def _by(numbers: Mapping[str, float]) -> dict[Labels, float]:
    return {(name,): float(number) for name, number in numbers.items()}


def _by_target(uses: Sequence[PlaceUse]) -> dict[Labels, float]:
    found: dict[Labels, float] = {}
    for use in uses[:MOST_TARGETS]:
        found[use.tenant, use.target, "running"] = use.running
        found[use.tenant, use.target, "waiting"] = use.waiting
    return found


def _by_tenant(stages: Mapping[str, ByTenant]) -> dict[Labels, float]:
    """Returns the largest tenants of each stage. The others are summed; `other` is there even if there are none."""
    found: dict[Labels, float] = {}
    for stage, tenants in stages.items():
        named = nlargest(MOST_TENANTS, tenants.items(), key=lambda item: item[1])
        rest = sum(tenants.values()) - sum(number for _, number in named)
        found[stage, OTHER] = rest
        for tenant, number in named:
            found[stage, tenant] = found.get((stage, tenant), 0.0) + number  # a tenant may be named `other`
    return found
