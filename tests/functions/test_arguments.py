"""Arguments: JSON on the way, converted to the annotations in the worker."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from duetime.domain.states import Trigger
from duetime.domain.work import Assignment
from duetime.functions.arguments import ArgumentError
from duetime.functions.context import Context
from duetime.functions.registry import Function, Registry

if TYPE_CHECKING:
    from nowhere import Unknown  # noqa: F401 (named in a string)


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Reading:
    degrees: float


class Order(msgspec.Struct):
    id: UUID
    items: list[Point] = []


class Database:
    """A type that JSON can't be converted to."""


def context() -> Context:
    assignment = Assignment("e1", 1, 1, "j1", "a job", "f", [], {}, 0, Trigger.MANUAL, 1.0)
    return Context(assignment, lambda stream, text: None, lambda raw: None)


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Sends arguments: encodes them as JSON, and binds the decoded ones."""
    known = Function("shop.f", function)
    sent = msgspec.json.decode(msgspec.json.encode(known.binder.plain(args, kwargs)))
    bound, named = known.binder.bind(*sent, context())
    return function(*bound, **named)


ID = UUID("0192d1a0-0000-7000-8000-000000000001")
SOME = [
    ("int", 5),
    ("datetime", datetime(2026, 11, 18, 9, tzinfo=UTC)),
    ("Colour", Colour.RED),
    ("Point", Point(1, 2)),
    ("UUID", ID),
    ("Order", Order(ID, [Point(3, 4)])),
    ("list[Point]", [Point(1, 2)]),
    ("dict[str, datetime]", {"at": datetime(2026, 1, 1, tzinfo=UTC)}),
    ("Point | None", None),
    ("Any", {"a": [1, None]}),
    ("Database", {"a": 1}),  # unchanged
    ("list[Database]", [1]),
    ("Unknown", "as it is"),
]


@pytest.mark.parametrize(("annotation", "value"), SOME, ids=[annotation for annotation, _ in SOME])
def test_a_value_is_converted_to_its_annotation(annotation: str, value: Any):
    def echo(given, *, named, **others):
        return given, named, others["other"]

    echo.__annotations__ = dict.fromkeys(("given", "named", "others"), annotation)
    assert call(echo, value, named=value, other=value) == (value, value, value)


def test_each_of_many_arguments_is_converted():
    def points(first: int, *rest: Point):
        return first, rest

    assert call(points, 1, Point(1, 1), Point(2, 2)) == (1, (Point(1, 1), Point(2, 2)))


def test_an_argument_of_the_wrong_type_is_named():
    def f(a, count: int): ...

    with pytest.raises(ArgumentError, match=r"argument 'count' of shop\.f: Expected `int`, got `str`"):
        Function("shop.f", f).binder.bind([1, "x"], {}, context())
    with pytest.raises(ArgumentError, match=r"argument 'count' of shop\.f"):
        Function("shop.f", f).binder.bind([1], {"count": "x"}, context())
    with pytest.raises(ArgumentError, match="takes 2 arguments by place, not 3"):
        Function("shop.f", f).binder.bind([1, 2, 3], {}, context())


def test_an_argument_that_is_not_json_is_refused_before_it_is_sent():
    def f(a, b): ...

    with pytest.raises(ArgumentError, match=r"argument 'b' of shop\.f can't be written as JSON"):
        Function("shop.f", f).binder.plain([1, object()], {})
    with pytest.raises(ArgumentError, match=r"shop\.f: missing a required argument: 'b'"):
        Function("shop.f", f).binder.plain([1], {})


@pytest.mark.parametrize("value", ["x", 1.5, None, [1]])
def test_an_argument_of_the_wrong_type_is_refused_before_it_is_sent(value: Any):
    def f(a, count: int, *more: int, **others: int): ...

    binder = Function("shop.f", f).binder
    assert binder.plain([1, 2, 3], {"other": 4}) == ([1, 2, 3], {"other": 4})
    for args, kwargs, name in (
        ([1, value], {}, "count"), ([1], {"count": value}, "count"), ([1, 2, value], {}, "more"),
        ([1, 2], {"other": value}, "other"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=rf"argument '{name}' of shop\.f: Expected `int`"):
            binder.plain(args, kwargs)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": (float("-inf"),)}], Reading(float("nan"))])
def test_a_number_that_is_not_finite_is_refused_and_not_sent_as_null(value: Any):
    def f(a): ...

    with pytest.raises(ArgumentError, match=r"argument 'a' of shop\.f can't be written as JSON: it holds nan or"):
        Function("shop.f", f).binder.plain([value], {})


def test_keys_that_are_numbers_arrive_as_numbers():
    def f(counts: dict[int, str]):
        return counts

    assert call(f, {1: "one"}) == {1: "one"}


def test_parameters_are_passed_by_name_from_a_given_one_on():
    def f(a, b, context, c=3, *, d=4): ...

    binder = Function("shop.f", f).binder
    assert binder.by_name([1, 2, 3], {"d": 5}, ["b"]) == ([1], {"b": 2, "c": 3, "d": 5})
    assert binder.by_name([1, 2], {}, ["c", "d"]) == ([1, 2], {})
    assert Function("shop.g", lambda a, *rest: None).binder.by_name([1, 2], {}, ["a"]) == ([1, 2], {})


# The context


@pytest.mark.parametrize("place", ["first", "last", "by name", "annotated", "maybe", "string"])
def test_a_function_with_a_context_parameter_gets_the_context(place: str):
    def first(context, a, b=2):
        return context, a, b

    def last(a, b=2, context=None):
        return context, a, b

    def by_name(a, b=2, *, context):
        return context, a, b

    def annotated(a, ctx: Context, b=2):
        return ctx, a, b

    def maybe(a, b: int = 2, ctx: Context | None = None):
        return ctx, a, b

    def string(a, ctx: nowhere.Context, b=2):  # noqa: F821
        return ctx, a, b

    function = locals()[place.replace(" ", "_")]
    assert Function("f", function).wants_context
    for args, kwargs in [((1,), {}), ((1, 2), {}), ((), {"a": 1}), ((1,), {"b": 2})]:
        got, a, b = call(function, *args, **kwargs)
        assert isinstance(got, Context)
        assert (a, b) == (1, 2)


def test_a_parameter_named_context_with_another_type_is_an_argument_like_others():
    def f(context: dict[str, int]):
        return context

    assert not Function("f", f).wants_context
    assert call(f, {"a": 1}) == {"a": 1}


def test_the_context_cannot_be_sent():
    with pytest.raises(ArgumentError, match="is given by the worker"):
        Function("f", lambda context: None).binder.bind([], {"context": 1}, context())


def test_progress_is_json_of_a_bounded_length():
    given = context()
    given.save_progress({"at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert given.progress == {"at": "2026-01-01T00:00:00Z"}
    given.save_progress("x" * 4094)
    with pytest.raises(ValueError, match="4097 characters as JSON; the limit is 4096"):
        given.save_progress("x" * 4095)
    with pytest.raises(ValueError, match="must be JSON"):
        given.save_progress(object())


# Names


def test_the_name_of_a_function_is_its_module_and_name():
    def inner(): ...

    async def later(): ...

    class Callable:
        async def __call__(self): ...

    registry = Registry()
    assert registry.register(inner).name == f"{__name__}.test_the_name_of_a_function_is_its_module_and_name.inner"
    assert not registry.register(inner).is_async
    assert registry.register(later, "later").is_async
    assert registry.register(Callable(), "callable").is_async
    assert registry.register(functools.partial(later), "partial").is_async
    assert len(registry) == 4


def test_the_name_of_a_programs_function_begins_with_its_file(monkeypatch: pytest.MonkeyPatch):
    def daily(): ...

    daily.__module__, daily.__qualname__ = "__main__", "daily"
    monkeypatch.setattr("__main__.__file__", "/srv/shop/reports.py", raising=False)
    assert Registry().register(daily).name == "reports.daily"


def test_two_functions_of_one_name_are_refused():
    registry = Registry()
    registry.register(lambda: 1, "f")
    with pytest.raises(ValueError, match="there is already a function 'f'"):
        registry.register(lambda: 2, "f")
    with pytest.raises(ValueError, match="1 to 255 characters"):
        registry.register(lambda: 2, "")
