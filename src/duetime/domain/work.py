"""What travels between a node and a worker that runs Python functions. JSON on the wire, the same structs in process.

A worker joins, and has a lease that its reports renew. It polls for assignments, each one attempt of an execution,
fenced by its token; it reports ends, lines and progress. A worker that is told it is unknown has lost its lease: what
it runs is another's by now, so it stops that and joins anew.

Whatever either end says of an execution, it says of one claim: id, attempt and token. A report may be sent again after
its answer was lost, and by then the worker may have claimed the same execution anew.
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
    """Base of all that is sent. Unknown fields are passed over: either end may be the newer one."""


class Joining(Wire, frozen=True):
    """A worker introduces itself. `name` is for people: host and process."""

    name: Label
    functions: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=MOST_FUNCTIONS)]
    slots: Annotated[int, Meta(ge=1, le=MOST_SLOTS)]


class Joined(Wire, frozen=True):
    worker_id: int
    lease_seconds: float  # silent for longer, and what it runs is given to another


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
        """The claim alone, without what is said of it."""
        return WorkClaim(self.execution_id, self.attempt, self.token)


class Assignment(WorkClaim, frozen=True):
    """One attempt to carry out."""

    job_id: str
    job_name: str
    function: str
    args: list[Any]
    kwargs: dict[str, Any]
    scheduled_at: int  # ms since the epoch
    trigger: Trigger
    timeout_seconds: float
    progress: Any = None  # what the attempt before saved last
    secret: tuple[str, ...] = ()  # JSON pointers to the arguments that a worker's own log must not show


class Polled(Wire, frozen=True):
    assignments: list[Assignment] = []


class Ended(WorkClaim, frozen=True):
    """An attempt's end. `error_type` None: the function returned, and `result` is what, as JSON."""

    started_at: At
    ended_at: At
    error_type: Literal["function_error", "rejected", "timeout", "cancelled"] | None = None
    error_message: Annotated[str, Meta(max_length=2000)] | None = None
    result: Annotated[str, Meta(max_length=LONGEST_RESULT)] | None = None
    retry_after_seconds: Annotated[float, Meta(ge=0)] | None = None  # as the function asked for


class Note(WorkClaim, frozen=True):
    """What a running attempt said: text for its log, progress for whoever looks and for the attempt after it."""

    text: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""
    stream: Literal["stdout", "stderr", "log"] = "log"
    progress: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # JSON of LONGEST_PROGRESS characters at most


class Reporting(Wire, frozen=True):
    """Also a sign of life: one at least every third of the lease, with nothing in it if there is nothing to say."""

    worker_id: WorkerId
    # All that it holds: assigned to it, and the end not yet reported. What the ledger has beside them never reached it
    # (an answer was lost on its way), and is given to others.
    running: Annotated[list[WorkClaim], Meta(max_length=MOST_RUNNING)]
    ended: Annotated[list[Ended], Meta(max_length=MOST_REPORTED)] = []
    notes: Annotated[list[Note], Meta(max_length=MOST_REPORTED)] = []
    unbegun: Annotated[list[WorkClaim], Meta(max_length=MOST_RUNNING)] = []  # assigned, not begun, and given back


class Reported(Wire, frozen=True):
    """What was reported is durable. `refused`: claims whose end did not count, for they are no longer this worker's."""

    cancel: list[WorkClaim] = []  # claims of this worker whose executions were asked to stop
    refused: list[WorkClaim] = []


class Leaving(Wire, frozen=True):
    """A worker that has ended all it ran says so; what it still holds goes to others at once."""

    worker_id: WorkerId


def error_type_of(ended: Ended) -> ErrorType | None:
    return None if ended.error_type is None else ErrorType(ended.error_type)
