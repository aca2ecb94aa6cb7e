"""`Duetime`: functions become jobs by a decorator, and are enqueued by a call.

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
    """`url`: a server's (DUETIME_URL, or one on this machine, if None); or sqlite:///folder for none at all: then this
    program runs its jobs itself, from `start` (or `with`) on. `token`: a JWT or API key; DUETIME_TOKEN if None.

    `name` tells the app's declared jobs from another's; if it is left out, they are those of where the worker found it:
    "jobs:app". An app may be used before and after a fork, in all processes.
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
        self._remotes: dict[int, Asking] = {}  # by process: no connection and no lock outlives a fork

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
        """Make a function known by `name` (its module and name if left out). With a `schedule` it becomes a job, too,
        known by `key` (the name if left out), called with `args` and `kwargs`, of which `secret` names those that are
        to be kept encrypted; `fields` are a job's other ones: timezone, retry_policy, timeout_seconds, overlap,
        catch_up, tags, … Raises JobError for a job that can't be."""

        if callable(schedule):
            raise TypeError("write @app.job() with brackets: they hold its schedule, its name and other fields")

        def register(function: F) -> F:
            registered = self.registry.register(function, name)
            self._names[function] = registered.name
            if schedule is not None:
                self._declare(registered, key or registered.name, schedule, args, kwargs or {}, fields, secret)
            elif fields or key or args or kwargs or secret:
                field = next(iter(fields), "retry_policy")
                raise ValueError(
                    f"'{registered.name}' has no schedule, so there is no job that fields could belong to. Give it a "
                    f"schedule, or give them with each call: app.enqueue(…, job={{'{field}': …}})"
                )
            return function

        return register

    def _declare(
        self, function: Function, key: str, schedule: str, args: Sequence[Any], kwargs: Mapping[str, Any],
        fields: Mapping[str, Any], secret: Secret,
    ) -> None:  # fmt: skip
        if key in self.declared:
            raise ValueError(f"there is a job '{key}' already; give this one a key of its own")
        # A binder for now only: types that the annotations name may be defined further down.
        binder = Binder(function.name, function.callable)
        job = definition(function.name, binder, args, kwargs, {"schedule": schedule, **fields}, secret)
        check_job(key, job)
        self.declared[key] = Declared(key, job)

    def put_jobs(self, *, prune: bool = False) -> list[str]:
        """Create the jobs that decorators ask for, or make them what they say. A worker does it when it starts.

        One that was cancelled stays so, and one of another user is left alone. `prune`: those that this app declared
        once and declares no more are removed, with their history. Returns sentences about all of these.
        """
        if prune and self.name is None:
            raise ValueError("jobs are removed by the name of their app: give it one, as in Duetime(name='shop')")
        said = put_jobs(self._ask(), self.name, self.declared)
        return said + prune_jobs(self._ask(), str(self.name), self.declared) if prune else said

    # Calls

    def enqueue(
        self, function: Callable[..., Any] | str, /, *args: Any, at: At = None, job: Mapping[str, Any] | None = None,
        secret: Secret = (), **kwargs: Any,
    ) -> CreatedJob:  # fmt: skip
        """Call a function once: now, or `at` an instant or so long from now. `job`: other fields of it, such as
        {"priority": 9, "retry_policy": {"max_retries": 0}}. `secret`: names of arguments that are kept encrypted and
        shown to nobody. What it answers is stored: it will run.

        A function with a parameter of one of these names is called by `enqueue_call`.
        """
        return self._ask().ask(self._call(function, args, kwargs, at, job, secret))

    async def enqueue_async(
        self, function: Callable[..., Any] | str, /, *args: Any, at: At = None, job: Mapping[str, Any] | None = None,
        secret: Secret = (), **kwargs: Any,
    ) -> CreatedJob:  # fmt: skip
        """The same from an event loop."""
        return await self._ask().ask_async(self._call(function, args, kwargs, at, job, secret))

    def enqueue_call(
        self, function: Callable[..., Any] | str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
        at: At = None, job: Mapping[str, Any] | None = None, secret: Secret = (),
    ) -> CreatedJob:  # fmt: skip
        """`enqueue` with the arguments gathered: their names can't be taken for its own."""
        return self._ask().ask(operations.create_job(self._once(function, args, kwargs or {}, at, job, secret)))

    async def enqueue_call_async(
        self, function: Callable[..., Any] | str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
        at: At = None, job: Mapping[str, Any] | None = None, secret: Secret = (),
    ) -> CreatedJob:  # fmt: skip
        """The same from an event loop."""
        call = operations.create_job(self._once(function, args, kwargs or {}, at, job, secret))
        return await self._ask().ask_async(call)

    def enqueue_many(
        self, function: Callable[..., Any] | str, calls: Iterable[Arguments], *, at: At = None,
        job: Mapping[str, Any] | None = None, secret: Secret = (),
    ) -> BatchResult:  # fmt: skip
        """Call a function once for each of `calls`: each its arguments by place, or a dict of them by name. Thousands
        travel together. A call that is refused, here or by the server, spoils no other: see the answer's `refused`."""
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
        """What came of a job that `enqueue` (`.job_id`) or a decorator made: its executions, the latest 100 first.

        Of each: `state`, `error_message`, and in `response` what the function returned, as JSON.
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
            raise ValueError(f"{shown} is not known to this app: put @app.job() above it, or enqueue it by its name")
        return name

    # Running

    def start(self, *, prune_declared: bool = False) -> Self:
        """Of an embedded app: run its jobs, here, until `stop`. With a server, `duetime worker` does that.

        `prune_declared`: remove the jobs that this app declared once and declares no more.
        """
        from duetime.sdk.embedded import Embedded

        if not self.is_embedded:
            raise RuntimeError("this app has a server: start a worker with `duetime worker module:app`")
        if self._embedded is None:
            self.name = self.name or "embedded"  # the folder is its own
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
        """Let what runs come to its end. What waits is stored, and runs after the next start. In a process that was
        forked since the start, it only lets go of the parent's."""
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.close()
        remote = self._remotes.pop(os.getpid(), None)
        if remote is not None:
            remote.close()

    def run(self) -> None:
        """Start, and stay until SIGINT or SIGTERM."""
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
            raise RuntimeError("this Duetime is embedded and does not run: use it in a `with`, or call start() first")
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
                f"a call is its arguments, as a tuple or a dict, and not a {type(arguments).__name__}; "
                "write one argument as (value,)"
            )


def _send(asking: Asking, batch: Batch, call: Call[BatchResult]) -> None:
    try:
        batch.answered(asking.ask(call))
    except DuetimeError as error:
        raise batch.interrupted(error) from error
