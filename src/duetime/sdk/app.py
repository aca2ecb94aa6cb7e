"""`Duetime`: a decorator makes functions jobs, and a call enqueues them.

from duetime import Duetime

app = Duetime()                       # a server at DUETIME_URL; Duetime("sqlite:///jobs") needs none

@app.job(schedule="0 9 * * MON-FRI", timezone="Europe/Berlin")
def report(): ...

app.enqueue(report)                   # once, now
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from duetime.client import operations
from duetime.client.batch import Batch
from duetime.client.calls import Call
from duetime.client.errors import DuetimeError
from duetime.client.models import BatchResult, CreatedJob, Execution
from duetime.functions.arguments import ArgumentError, Binder
from duetime.functions.registry import Function, Registry
from duetime.sdk.asking import Asking
from duetime.sdk.declared import Declared, prune_jobs, put_jobs
from duetime.sdk.definitions import At, Secret, check_job, check_words, definition, to_schedule

if TYPE_CHECKING:
    from duetime.sdk.embedded import Embedded

EMBEDDED = "sqlite:///"

F = TypeVar("F", bound=Callable[..., Any])
Arguments = Sequence[Any] | Mapping[str, Any]

log = logging.getLogger("duetime")


class Duetime:
    """`url`: the URL of a server; if None, DUETIME_URL, or a server on this machine. With sqlite:///folder there is no
    server: the program runs its jobs itself, from `start` (or `with`) on. `token`: a JWT or API key; DUETIME_TOKEN if
    None.

    `name` marks the jobs that this app declares; by default it is the place where the worker found the app, such as
    "jobs:app". An app can be used before and after a fork, in all processes.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, slots: int = 32, name: str | None = None
    ) -> None:
        self.registry = Registry()
        self.declared: dict[str, Declared] = {}
        self.url = url
        self.token = token
        self.name = name
        self._slots = slots
        self._names: dict[Callable[..., Any], str] = {}
        self._embedded: Embedded | None = None
        self._remotes: dict[int, Asking] = {}  # by process: a fork copies no usable connection or lock

    @property
    def is_embedded(self) -> bool:
        return self.url is not None and self.url.startswith(EMBEDDED)

    # Functions

    def job(
        self,
        schedule: str | None = None,
        *,
        name: str | None = None,
        key: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        secret: Secret = (),
        **fields: Any,
    ) -> Callable[[F], F]:
        """Register a function as `name` (by default its module and name). With a `schedule` it also becomes a job with
        this `key` (by default the name), called with `args` and `kwargs`. `secret` names arguments to encrypt. `fields`
        are other fields of the job: timezone, retry_policy, timeout_seconds, overlap, catch_up, tags, …

        Raises JobError for an invalid job.
        """
        if callable(schedule):
            raise TypeError("write @app.job() with parentheses: they hold the schedule, the name and other fields")

        def register(function: F) -> F:
            registered = self.registry.register(function, name)
            self._names[function] = registered.name
            if schedule is not None:
                self._declare(registered, key or registered.name, schedule, args, kwargs or {}, fields, secret)
            elif fields or key or args or kwargs or secret:
                field = next(iter(fields), "retry_policy")
                raise ValueError(
                    f"'{registered.name}' has no schedule, so it is no job with fields. Add a schedule, or pass the "
                    f"fields with each call: app.enqueue(…, job={{'{field}': …}})"
                )
            return function

        return register

    def _declare(
        self, function: Function, key: str, schedule: str, args: Sequence[Any], kwargs: Mapping[str, Any],
        fields: Mapping[str, Any], secret: Secret,
    ) -> None:  # fmt: skip
        if key in self.declared:
            raise ValueError(f"there is already a job '{key}'; give this one another key")
        # A temporary binder: the types in the annotations may be defined later in the module.
        binder = Binder(function.name, function.callable)
        job = definition(function.name, binder, args, kwargs, {"schedule": schedule, **fields}, secret)
        check_job(key, job)
        self.declared[key] = Declared(key, job)

    def put_jobs(self, *, prune: bool = False) -> list[str]:
        """Create or update the declared jobs. A worker does this when it starts.

        A cancelled job stays cancelled, and a job of another user is not changed. `prune`: also remove the jobs that
        this app once declared and no longer declares, with their history. Returns a sentence about each such job.
        """
        if prune and self.name is None:
            raise ValueError("prune needs the name of the app: set one, such as Duetime(name='shop')")
        said = put_jobs(self._ask(), self.name, self.declared)
        return said + prune_jobs(self._ask(), str(self.name), self.declared) if prune else said

    # Calls

    def enqueue(
        self, function: Callable[..., Any] | str, /, *args: Any, at: At = None, job: Mapping[str, Any] | None = None,
        secret: Secret = (), **kwargs: Any,
    ) -> CreatedJob:  # fmt: skip
        """Call a function once: now, or `at` an instant, or after a timedelta. `job`: other fields, such as
        {"priority": 9, "retry_policy": {"max_retries": 0}}. `secret`: names of arguments that are encrypted and never
        shown. When it returns, the job is stored durably.

        Use `enqueue_call` for a function that has a parameter with one of these names.
        """
        return self._ask().ask(self._call(function, args, kwargs, at, job, secret))

    async def enqueue_async(
        self, function: Callable[..., Any] | str, /, *args: Any, at: At = None, job: Mapping[str, Any] | None = None,
        secret: Secret = (), **kwargs: Any,
    ) -> CreatedJob:  # fmt: skip
        """The same, for an event loop."""
        return await self._ask().ask_async(self._call(function, args, kwargs, at, job, secret))

    def enqueue_call(
        self, function: Callable[..., Any] | str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
        at: At = None, job: Mapping[str, Any] | None = None, secret: Secret = (),
    ) -> CreatedJob:  # fmt: skip
        """Like `enqueue`, with the arguments in a tuple and a dict, so that their names can't conflict with its own."""
        return self._ask().ask(operations.create_job(self._once(function, args, kwargs or {}, at, job, secret)))

    async def enqueue_call_async(
        self, function: Callable[..., Any] | str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
        at: At = None, job: Mapping[str, Any] | None = None, secret: Secret = (),
    ) -> CreatedJob:  # fmt: skip
        """The same, for an event loop."""
        call = operations.create_job(self._once(function, args, kwargs or {}, at, job, secret))
        return await self._ask().ask_async(call)

    def enqueue_many(
        self, function: Callable[..., Any] | str, calls: Iterable[Arguments], *, at: At = None,
        job: Mapping[str, Any] | None = None, secret: Secret = (),
    ) -> BatchResult:  # fmt: skip
        """Call a function once for each of `calls`. A call is a tuple of positional arguments, or a dict of arguments.

        Thousands are sent in one request. If a call is refused, here or by the server, the others are still created:
        see `refused` of the result.
        """
        asking, batch = self._ask(), Batch()
        for arguments in calls:
            try:
                args, kwargs = _split(arguments)
                wanted = self._once(function, args, kwargs, at, job, secret)
            except ArgumentError as error:
                batch.refuse("INVALID_REQUEST", str(error))
                continue
            if full := batch.add(wanted):
                _send(asking, batch, full)
        if rest := batch.rest():
            _send(asking, batch, rest)
        return batch.result()

    def executions(self, job_id: str) -> list[Execution]:
        """Returns the latest 100 executions of a job, latest first. `enqueue` returns the `job_id`.

        Each has a `state`, an `error_message`, and as `response` the function's result in JSON.
        """
        return list(self._ask().ask(operations.job_executions(job_id).page(100)).executions)

    def _call(
        self, function: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any], at: At,
        job: Mapping[str, Any] | None, secret: Secret,
    ) -> Call[CreatedJob]:  # fmt: skip
        check_words(self.registry.get(self._name_of(function)), {"at": at, "job": job, "secret": secret})
        return operations.create_job(self._once(function, args, kwargs, at, job, secret))

    def _once(
        self, function: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any], at: At,
        job: Mapping[str, Any] | None, secret: Secret,
    ) -> dict[str, Any]:  # fmt: skip
        name = self._name_of(function)
        known = self.registry.get(name)
        fields = {"schedule": to_schedule(at), **(job or {})}
        return definition(name, known.binder if known else None, args, kwargs, fields, secret)

    def _name_of(self, function: Callable[..., Any] | str) -> str:
        if isinstance(function, str):
            return function
        name = self._names.get(function)
        if name is None:
            shown = getattr(function, "__name__", function)
            raise ValueError(
                f"{shown} is not registered with this app: decorate it with @app.job(), or enqueue it by its name"
            )
        return name

    # Running

    def start(self, *, prune_declared: bool = False) -> Self:
        """Run the jobs of an embedded app in this process, until `stop`. (For a server, use `duetime worker`.)

        `prune_declared`: remove the jobs that this app once declared and no longer declares.
        """
        from duetime.sdk.embedded import Embedded

        if not self.is_embedded:
            raise RuntimeError("this app has a server: start a worker with `duetime worker module:app`")
        if self._embedded is None:
            self.name = self.name or "embedded"  # no other app uses the folder
            embedded = self._embedded = Embedded(Path(str(self.url).removeprefix(EMBEDDED)))

            def declare() -> None:
                for sentence in self.put_jobs(prune=prune_declared):
                    log.warning(sentence)

            try:
                embedded.start(self.registry, self._slots, declare)
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Wait for running functions, then stop. Waiting executions are stored, and run after the next start.

        In a process that was forked after the start, it only closes the connection to the parent.
        """
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.close()
        remote = self._remotes.pop(os.getpid(), None)
        if remote is not None:
            remote.close()

    def run(self) -> None:
        """Start, and run until SIGINT or SIGTERM."""
        asked = threading.Event()

        def ask(number: int, frame: FrameType | None) -> None:
            asked.set()

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self:
                asked.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        return self.start() if self.is_embedded else self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask(self) -> Asking:
        if self._embedded is not None:
            return self._embedded
        if self.is_embedded:
            raise RuntimeError("this embedded Duetime is not running: use it in a `with`, or call start() first")
        process = os.getpid()
        remote = self._remotes.get(process)
        if remote is None:
            from duetime.sdk.remote import RemoteAsking

            remote = self._remotes.setdefault(process, RemoteAsking(self.url, self.token))
        return remote


def _split(arguments: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    match arguments:
        case Mapping():
            return (), arguments
        case Sequence() if not isinstance(arguments, str | bytes | bytearray):
            return arguments, {}
        case _:
            raise ArgumentError(
                f"a call is a tuple or a dict of arguments, not a {type(arguments).__name__}; "
                "write one argument as (value,)"
            )


def _send(asking: Asking, batch: Batch, call: Call[BatchResult]) -> None:
    try:
        batch.answered(asking.ask(call))
    except DuetimeError as error:
        raise batch.interrupted(error) from error
