"""`Duetime`: functions become jobs by a decorator, and are enqueued by a call.

from duetime import Duetime

app = Duetime()                       # a server at DUETIME_URL; Duetime("sqlite:///jobs") needs none

@app.job(schedule="0 9 * * MON-FRI", timezone="Europe/Berlin")
def report(): ...

app.enqueue(report)                   # once, now
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

import msgspec

from duetime.client import operations
from duetime.client.batch import Batch
from duetime.client.models import BatchResult, CreatedJob
from duetime.functions.registry import Function, Registry
from duetime.sdk.asking import Asking

EMBEDDED = "sqlite:///"
ON_DEMAND = "on_demand"

F = TypeVar("F", bound=Callable[..., Any])
At = datetime | timedelta | str | None


class Declared(msgspec.Struct, frozen=True):
    """A job that a decorator asks for; it is put in place when a worker starts."""

    key: str
    definition: dict[str, Any]


class Duetime:
    """`url`: a server's (DUETIME_URL, or one on this machine, if None); or sqlite:///folder for none at all: then this
    program runs its jobs itself, from `start` (or `with`) on. `token`: a JWT or API key; DUETIME_TOKEN if None."""

    def __init__(self, url: str | None = None, token: str | None = None, *, slots: int = 32) -> None:
        self.registry = Registry()
        self.declared: dict[str, Declared] = {}
        self.url = url
        self.token = token
        self._slots = slots
        self._names: dict[Callable[..., Any], str] = {}
        self._asking: Asking | None = None

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
        **fields: Any,
    ) -> Callable[[F], F]:
        """Make a function known by `name` (its module and name if left out). With a `schedule` it becomes a job, too,
        known by `key` (the name if left out), called with `args` and `kwargs`; `fields` are a job's other ones:
        timezone, retry_policy, timeout_seconds, overlap, catch_up, tags, …"""

        def register(function: F) -> F:
            registered = self.registry.register(function, name)
            self._names[function] = registered.name
            if schedule is not None:
                self._declare(registered, key or registered.name, schedule, args, kwargs or {}, fields)
            elif fields or key or args or kwargs:
                raise ValueError(f"'{registered.name}' has no schedule: give what is for its job to enqueue()")
            return function

        return register

    def _declare(
        self, function: Function, key: str, schedule: str, args: Sequence[Any], kwargs: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> None:  # fmt: skip
        if key in self.declared:
            raise ValueError(f"there is a job '{key}' already; give this one a key of its own")
        definition = _definition(function.name, function, args, kwargs, {"schedule": schedule, **fields})
        self.declared[key] = Declared(key, definition)

    def put_jobs(self) -> None:
        """Create the jobs that decorators ask for, or make them what they say. A worker does it when it starts."""
        for declared in self.declared.values():
            self._ask().ask(operations.put_job_by_key(declared.key, declared.definition))

    # Calls

    def enqueue(
        self, function: Callable[..., Any] | str, /, *args: Any, at: At = None, job: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> CreatedJob:  # fmt: skip
        """Call a function once: now, or `at` an instant or so long from now. `job`: other fields of it, such as
        {"priority": 9, "retry_policy": {"max_retries": 0}}. What it answers is stored: it will run."""
        call = operations.create_job(self._once(function, args, kwargs, at, job))
        return self._ask().ask(call)

    async def enqueue_async(
        self, function: Callable[..., Any] | str, /, *args: Any, at: At = None, job: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> CreatedJob:  # fmt: skip
        """The same from an event loop."""
        call = operations.create_job(self._once(function, args, kwargs, at, job))
        return await self._ask().ask_async(call)

    def enqueue_many(
        self, function: Callable[..., Any] | str, calls: Iterable[Sequence[Any]], *, at: At = None,
        job: Mapping[str, Any] | None = None,
    ) -> BatchResult:  # fmt: skip
        """Call a function once for each of `calls`, which are arguments; thousands travel together. A call that is
        refused spoils no other: see the answer's `refused`."""
        asking, batch = self._ask(), Batch()
        for args in calls:
            if full := batch.add(self._once(function, args, {}, at, job)):
                batch.answered(asking.ask(full))
        if rest := batch.rest():
            batch.answered(asking.ask(rest))
        return batch.result()

    def _once(
        self, function: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any], at: At,
        job: Mapping[str, Any] | None,
    ) -> dict[str, Any]:  # fmt: skip
        name = function if isinstance(function, str) else self._name_of(function)
        fields = {"schedule": _instant(at), **(job or {})}
        return _definition(name, self.registry.get(name), args, kwargs, fields)

    def _name_of(self, function: Callable[..., Any]) -> str:
        name = self._names.get(function)
        if name is None:
            shown = getattr(function, "__name__", function)
            raise ValueError(f"{shown} is not known to this app: put @app.job() above it, or enqueue it by its name")
        return name

    # Running

    def start(self) -> Self:
        """Of an embedded app: run its jobs, here, until `stop`. With a server, `duetime worker` does that."""
        from duetime.sdk.embedded import Embedded

        if not self.is_embedded:
            raise RuntimeError("this app has a server: start a worker with `duetime worker module:app`")
        if self._asking is None:
            embedded = Embedded(Path(str(self.url).removeprefix(EMBEDDED)))
            self._asking = embedded
            try:
                embedded.start(self.registry, self._slots, self.put_jobs)
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Let what runs come to its end. What waits is stored, and runs after the next start."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.close()

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
        if self._asking is None:
            if self.is_embedded:
                raise RuntimeError(
                    "this Duetime is embedded and does not run: use it in a `with`, or call start() first"
                )
            from duetime.sdk.remote import RemoteAsking

            self._asking = RemoteAsking(self.url, self.token)
        return self._asking


def _definition(
    name: str, function: Function | None, args: Sequence[Any], kwargs: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """A function that is known here has its arguments looked at before they are sent."""
    if function is not None:
        args, kwargs = function.binder.plain(args, kwargs)
    payload = {"function": name, "args": list(args), "kwargs": dict(kwargs)}
    return {"type": "python", "name": name, **fields, "payload": payload}


def _instant(at: At) -> str:
    match at:
        case None:
            return "immediate"
        case timedelta():
            return (datetime.now(UTC) + at).isoformat(timespec="milliseconds")
        case datetime():
            if at.tzinfo is None:
                raise ValueError(f"at={at} may be any of 24 hours; give it a timezone")
            return at.astimezone(UTC).isoformat(timespec="milliseconds")
        case _:
            return at
