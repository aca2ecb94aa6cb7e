"""On-finish commands: makes them for the recorder and the reconciler, and publishes their events once they are written.

`domain.on_finish` decides. A notification that can't be stored must not keep the end from being written: the store
notes it as the reason of the execution. It is also logged, counted and published as an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import structlog

from duetime.domain import on_finish
from duetime.domain.commands import CreateJobs, OnFinish, PauseJob
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.limits import Limit
from duetime.domain.states import OPEN
from duetime.events import EventHub
from duetime.ports.store import SubscriptionRecord
from duetime.telemetry.emitted import NotificationRefused
from duetime.telemetry.hub import Telemetry

log = structlog.get_logger()

MOST_IN_A_COMMIT = 200  # each may take its own savepoint; the ends in the same commit must not wait for long

Result = tuple[Claim, AttemptEnd]
Ends = Sequence[Result]


class OnFinishCommands:
    """`limit`: of notifications per tenant. `subscriptions(tenant)`: who is notified.

    `due_hint(due_at)`: a job is due then.
    """

    def __init__(
        self, events: EventHub, random_bytes: Callable[[int], bytes], limit: Limit | None, telemetry: Telemetry, *,
        subscriptions: Callable[[str], Sequence[SubscriptionRecord]], due_hint: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._events = events
        self._random_bytes = random_bytes
        self._limit = limit
        self._subscriptions = subscriptions
        self._telemetry = telemetry
        self._due_hint = due_hint

    def pages(self, results: Ends) -> Iterator[tuple[Ends, Ends]]:
        """Splits ends into pages with a bounded number of on-finish commands each: nearly always one page.

        Yields each page with those of its ends that may have on-finish commands, for `commands`: mostly none.
        """
        begin, count = 0, 0
        following: list[Result] = []
        of, has = self._subscriptions, on_finish.has_on_finish_commands
        for number, result in enumerate(results):
            subscribed = len(of(result[0].tenant))
            has_own = has(*result)
            if not (subscribed or has_own):
                continue
            following.append(result)
            count += has_own + subscribed
            if count >= MOST_IN_A_COMMIT:
                yield results[begin : number + 1], following
                begin, count, following = number + 1, 0, []
        if begin < len(results):
            yield results[begin:], following

    def commands(self, following: Ends, now: int) -> list[OnFinish]:
        """Returns the on-finish commands of these ends."""
        commands: list[OnFinish] = []
        for claim, end in following:
            urls = [(one.url, one.events) for one in self._subscriptions(claim.tenant)]
            commands += on_finish.on_finish_commands(claim, end, now, self._random_bytes(10), urls, self._limit)
        return commands

    def publish(
        self, ends: Ends, commands: Sequence[OnFinish], answers: Sequence[object], refused: Collection[str], now: int
    ) -> None:
        """Publishes, logs and counts what was written. `answers`: the store's results of `commands`.

        `refused`: the executions whose end was not written.
        """
        unsent = Counter[tuple[str, str]]()
        for command, answer in zip(commands, answers, strict=True):
            if command.execution_id not in refused:
                self._publish(command, answer, now)
                if isinstance(answer, DuetimeError) and isinstance(command.command, CreateJobs):
                    unsent[command.command.jobs[0].tenant, answer.code] += 1
        for (tenant, code), number in unsent.items():  # one line per page: many errors must not flood the log
            log.error("notifications can't be stored", tenant=tenant, number=number, error=code)
        # A job that runs after another one refers to it by its key, and may be due now.
        if any(isinstance(command.command, CreateJobs) for command in commands) or any(
            claim.spec.key is not None and end.state not in OPEN for claim, end in ends
        ):
            self._due_hint(now)

    def _publish(self, command: OnFinish, answer: object, now: int) -> None:
        following = command.command
        if isinstance(following, PauseJob) and not isinstance(answer, DuetimeError):
            self._events.publish("job.paused", now, following.tenant, {"job_id": following.job_id, "by": following.by})
        elif isinstance(following, CreateJobs):
            (job,) = following.jobs
            data: dict[str, object] = {"job_id": job.job_id, "name": job.name}
            if not isinstance(answer, DuetimeError):
                self._events.publish("job.created", now, job.tenant, data)
                return
            self._telemetry.emit(NotificationRefused(answer))
            about: dict[str, object] = {"execution_id": command.execution_id, "name": job.name, "error": answer.code}
            self._events.publish("webhook.refused", now, job.tenant, about)
