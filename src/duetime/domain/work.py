"""Messages between a node and a worker that runs Python functions. JSON on the wire, the same structs in process.

A worker joins, and has a lease that its reports renew. It polls for assignments, each one attempt of an execution,
fenced by its token; it reports ends, log lines and progress. If the node responds that a worker is unknown, the worker
has lost its lease: others may run its executions now, so it stops them and joins again.

Every message about an execution names one claim: id, attempt and token. A report may be sent again after its response
was lost, and by then the worker may have claimed the same execution again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from duetime.domain.payloads import Label
from duetime.domain.states import ErrorType, Trigger

MOST_FUNCTIONS = 1000
MOST_SLOTS = 1000
MOST_RUNNING = 20_000
MOST_BYTES = 16 * 1024 * 1024  # of a report
MOST_WEIGHT = 400_000  # of its values (domain.weights): more than the most claims and ends have
MOST_REPORTED = 1000  # ends, or notes, in one report
LONGEST_WAIT_SECONDS = 30.0
LONGEST_RESULT = 16_384  # characters of a function's result as JSON; more is an error of the function
LONGEST_PROGRESS = 4096
LONGEST_NOTE = 65_536  # characters of log in one note


WorkerId = Annotated[int, Meta(ge=1, le=2**31 - 1)]
At = Annotated[int, Meta(ge=0, le=2**53)]  # ms since the epoch


class Wire(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all messages. Unknown fields are ignored: either side may run a newer version."""


class Joining(Wire, frozen=True):
    """A worker's request to join. `name` is for people: host and process."""

    name: Label
    functions: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=MOST_FUNCTIONS)]
    slots: Annotated[int, Meta(ge=1, le=MOST_SLOTS)]


class Joined(Wire, frozen=True):
    worker_id: int
    lease_seconds: float  # if the worker is silent for longer, its executions go to other workers


class Polling(Wire, frozen=True):
    worker_id: WorkerId
    free: Annotated[int, Meta(ge=1, le=MOST_SLOTS)]  # as many assignments at most
    wait_seconds: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_SECONDS)] = 20.0


class WorkClaim(Wire, frozen=True):
    """An execution as a worker holds it: one attempt, fenced by the token of the claim."""

    execution_id: str
    attempt: int
    token: int

    @property
    def claim(self) -> WorkClaim:
        """Returns the claim alone, without the other fields."""
        return WorkClaim(self.execution_id, self.attempt, self.token)


class Assignment(WorkClaim, frozen=True):
    """One attempt for the worker to run."""

    job_id: str
    job_name: str
    function: str
    args: list[Any]
    kwargs: dict[str, Any]
    scheduled_at: int  # ms since the epoch
    trigger: Trigger
    timeout_seconds: float
    progress: Any = None  # what the previous attempt saved last
    secret: tuple[str, ...] = ()  # JSON pointers to the arguments that a worker's own log must not show


class Polled(Wire, frozen=True):
    assignments: list[Assignment] = []


class Ended(WorkClaim, frozen=True):
    """An attempt's end. `error_type` None: the function returned `result`, as JSON."""

    started_at: At
    ended_at: At
    error_type: Literal["function_error", "rejected", "timeout", "cancelled"] | None = None
    error_message: Annotated[str, Meta(max_length=2000)] | None = None
    result: Annotated[str, Meta(max_length=LONGEST_RESULT)] | None = None
    retry_after_seconds: Annotated[float, Meta(ge=0)] | None = None  # as the function requested


class Note(WorkClaim, frozen=True):
    """Output of a running attempt: text for its log, and progress for users and for the next attempt."""

    text: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""
    stream: Literal["stdout", "stderr", "log"] = "log"
    progress: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # JSON of LONGEST_PROGRESS characters at most


class Reporting(Wire, frozen=True):
    """A worker's report, which is also its heartbeat: sent at least every third of the lease, even if empty."""

    worker_id: WorkerId
    # All claims that the worker holds: assigned to it, and the end not yet reported. Other claims that the ledger has
    # for it never reached it (a response was lost), and are given to other workers.
    running: Annotated[list[WorkClaim], Meta(max_length=MOST_RUNNING)]
    ended: Annotated[list[Ended], Meta(max_length=MOST_REPORTED)] = []
    notes: Annotated[list[Note], Meta(max_length=MOST_REPORTED)] = []
    unbegun: Annotated[list[WorkClaim], Meta(max_length=MOST_RUNNING)] = []  # assigned, not started, and given back


class Reported(Wire, frozen=True):
    """The report is durable. `refused`: claims whose end did not count, because they are no longer this worker's."""

    cancel: list[WorkClaim] = []  # claims of this worker whose cancellation was requested
    refused: list[WorkClaim] = []


class Leaving(Wire, frozen=True):
    """A worker that has finished its attempts leaves. Claims that it still holds go to other workers at once."""

    worker_id: WorkerId


def error_type_of(ended: Ended) -> ErrorType | None:
    return None if ended.error_type is None else ErrorType(ended.error_type)
