"""Calls as plain values, which both clients send, and the decoding of their responses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from duetime.client.errors import ProblemBody, UnknownAnswer, problem_of

BASE = "/api/v1"
EVENT_STREAM = "text/event-stream"
NO_CONTENT = 204
IDEMPOTENCY_KEY = "Idempotency-Key"
PAGE_ROWS = 100  # the largest page of a list

Value = str | int | float | bool | datetime | None


class Page(Protocol):
    """A page of a list. `total` counts all rows that match the filters (not in the audit)."""

    @property
    def limit(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def total(self) -> int: ...

    @property
    def has_more(self) -> bool: ...

    @property
    def next_cursor(self) -> str | None: ...


T = TypeVar("T")
P = TypeVar("P", bound=Page)
F = TypeVar("F", bound=Callable[..., Any])


class Answer(NamedTuple):
    """A response, of any status."""

    status: int
    body: bytes
    header: Callable[[str], str | None]


class Call(msgspec.Struct, Generic[T], frozen=True):
    """`may_repeat`: sending it twice has the effect and the response of sending it once.

    `also_takes`: a status besides 2xx whose body is not a problem.
    """

    method: str
    path: str  # with its query
    answer: type[T]
    body: bytes | None = None
    headers: dict[str, str] = {}
    may_repeat: bool = False
    also_takes: int | None = None

    def accepts(self, status: int) -> bool:
        return 200 <= status < 300 or status == self.also_takes

    def read(self, answer: Answer) -> T:
        """Returns the decoded response. Raises its problem."""
        if not self.accepts(answer.status):
            raise self.failure(answer)
        try:
            return msgspec.json.decode(b"null" if answer.status == NO_CONTENT else answer.body, type=self.answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the response to {self} can't be read ({error}); check the URL, and the server's version"
            raise UnknownAnswer(message, answer.status) from None

    def failure(self, answer: Answer) -> Exception:
        problem = read_problem(answer)
        if problem is not None:
            return problem_of(problem, answer.status, answer.header("x-request-id"))
        where = answer.header("location")
        hint = (
            f" and a redirect to {where[:200]}; use that URL"
            if where
            else ", which is not a Duetime's response; check the URL"
        )
        return UnknownAnswer(f"{self} got {answer.status}{hint}", answer.status)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def read_problem(answer: Answer) -> ProblemBody | None:
    """Returns the problem of a response, or None if it is not Duetime's."""
    try:
        return msgspec.json.decode(answer.body, type=ProblemBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Listed(msgspec.Struct, Generic[P, T], frozen=True):
    """A list with pages."""

    path: str
    answer: type[P]
    rows: Callable[[P], Sequence[T]]
    query: Mapping[str, Value] = {}

    def page(self, limit: int, cursor: str | None = None, offset: int | None = None) -> Call[P]:
        return get(self.path, self.answer, **self.query, limit=limit, cursor=cursor, offset=offset)


class Frame(NamedTuple):
    """One server-sent event."""

    number: int | None
    kind: str
    data: str


class Followed(msgspec.Struct, Generic[T], frozen=True):
    """A stream of server-sent events that is resumed after a broken connection.

    `end`: the kind of the last event. `gap`: stands for events that may have been lost. It is yielded if the stream
    restarts before any event had a number to resume from.
    """

    path: str
    read: Callable[[Frame], T]
    after: int | None = None
    end: str | None = None
    gap: T | None = None

    def call(self, after: int | None) -> Call[Any]:
        resume = {} if after is None else {"Last-Event-ID": str(after)}
        return Call("GET", self.path, object, headers={"Accept": EVENT_STREAM, **resume}, may_repeat=True)


def get(path: str, answer: type[T], **query: Value) -> Call[T]:
    return Call("GET", with_query(path, query), answer, may_repeat=True)


def send(
    method: str, path: str, answer: type[T], body: Any = None, *, may_repeat: bool = False, **headers: str
) -> Call[T]:
    """Returns a call, with a JSON body unless `body` is None."""
    if body is None:
        return Call(method, path, answer, None, headers, may_repeat)
    return Call(
        method, path, answer, msgspec.json.encode(body), {"Content-Type": "application/json", **headers}, may_repeat
    )


def path_of(*parts: str) -> str:
    """Returns a path below the base path. Each part is quoted as one segment."""
    return "/".join([BASE, *map(segment, parts)])


def segment(text: str) -> str:
    return quote(text, safe="")


def with_query(path: str, query: Mapping[str, Value]) -> str:
    given = {name: _as_text(name, value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _as_text(name: str, value: Value) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name}={value} has no timezone; add one")
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown_as_method(method: F, build: Callable[..., Any], answers: str = "{}") -> F:
    """Gives a client's method the name, docstring and parameters of its operation, for `help` and shells."""
    signature = inspect.signature(build)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    returns = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    parameters = [own, *signature.parameters.values()]
    shown: Any = method
    shown.__signature__ = signature.replace(parameters=parameters, return_annotation=answers.format(returns))
    shown.__name__ = shown.__qualname__ = build.__name__
    shown.__doc__ = build.__doc__
    return method


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that have a value: the server has defaults for the others."""
    return {name: value for name, value in fields.items() if value is not None}
