"""Reads the figures of a term, for metrics and reports. It changes nothing, and waits for nothing."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from duetime.domain.breaker import CircuitState
from duetime.domain.endpoints import SCRIPTS
from duetime.domain.job import JobType
from duetime.engine.claim_queue import ClaimQueue
from duetime.engine.dispatcher import Limits
from duetime.engine.term import Term
from duetime.telemetry.readings import DUE, QUEUED, RECORDING, EngineReadings

_tenant = attrgetter("tenant")


def read_term(term: Term) -> EngineReadings:
    dispatcher, gateway = term.dispatcher, term.worker_gateway
    limits, queue, circuits = dispatcher.limits, dispatcher.queue, term.breaker.states()
    workers, slots = gateway.workers.count()
    return EngineReadings(
        in_flight=_in_flight(queue) | {str(JobType.PYTHON): gateway.running()},
        limits=_limits(limits) | {str(JobType.PYTHON): slots},
        waiting={
            DUE: term.timer.due_of(),
            QUEUED: Counter(map(_tenant, queue.waiting.values())),
            RECORDING: term.recorder.waiting_of(),
        },
        targets=[use for use in dispatcher.place_uses() if use.target],
        places=queue.held,
        most_places=limits.capacity,
        read_ahead=term.timer.read_ahead(),
        shards=len(term.membership.owned),
        services={service.name: service.failure is None for service in term.services},
        circuits={str(state): circuits[state] for state in CircuitState},
        workers=workers,
        slots=slots,
        polls=gateway.polls.count(),
    )


def _in_flight(queue: ClaimQueue) -> dict[str, int]:
    found = dict.fromkeys(map(str, JobType), 0)
    for endpoint in queue.endpoints.values():
        found[str(endpoint.kind)] += endpoint.running
    return found


def _limits(limits: Limits) -> dict[str, int]:
    scripts = limits.special.get(SCRIPTS, limits.endpoint)
    kinds = {str(kind): limits.concurrency for kind in JobType}
    return kinds | {str(JobType.SCRIPT): min(limits.concurrency, scripts)}
