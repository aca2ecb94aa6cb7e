"""Arguments travel as plain JSON. The worker converts them to the types in the function's annotations.

`plain` is the caller's side, `bind` the worker's. Both convert, so that a wrong argument is refused where it is
enqueued. An argument without an annotation, or with one that JSON can't be converted to (a custom class that is not a
dataclass), arrives as a plain JSON value.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect as msgspec_inspect

from duetime.functions.context import Context
from duetime.functions.json_values import NOT_FINITE, is_finite

_SAME = (int, str, bool, float, list, dict)  # a value of exactly this type needs no conversion


class ArgumentError(TypeError):
    """An argument can't be sent, or does not fit the function. The message names the function and the argument."""


class Binder:
    """A function's parameters: which one gets the context, and the type each argument is converted to."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self.signature = _signature(function)
        hints = _hints(function)
        self._positional: list[tuple[str, Any]] = []  # name and type; None: not converted
        self._by_name: dict[str, Any] = {}
        self._rest: tuple[str, Any] | None = None
        self._others: Any = None  # type of the **kwargs values
        self.context_name: str | None = None
        self._context_at: int | None = None
        for parameter in self.signature.parameters.values():
            self._add(parameter, hints.get(parameter.name))
        is_converted = any(kind is not None for _, kind in self._positional) or any(self._by_name.values())
        is_converted = is_converted or (self._rest is not None and self._rest[1] is not None)
        self._is_plain = not is_converted and self._others is None and self.context_name is None

    def _add(self, parameter: inspect.Parameter, hint: Any) -> None:
        is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if self.context_name is None and _is_context(parameter, hint):
            self.context_name = parameter.name
            self._context_at = len(self._positional) if is_positional else None
            return
        kind = hint if hint is not None and _is_convertible(hint) else None
        if parameter.kind is parameter.VAR_POSITIONAL:
            self._rest = (parameter.name, kind)
        elif parameter.kind is parameter.VAR_KEYWORD:
            self._others = kind
        else:
            if is_positional:
                self._positional.append((parameter.name, kind))
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                self._by_name[parameter.name] = kind

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], context: Context
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Returns the arguments to call the function with. Raises ArgumentError."""
        if self._is_plain:
            return args, kwargs
        bound = [self._convert(name, kind, value) for (name, kind), value in self._pairs(args)]
        named = {name: self._convert(name, self._by_name.get(name, self._others), kwargs[name]) for name in kwargs}
        if self.context_name is not None:
            if self.context_name in kwargs:
                raise ArgumentError(f"argument '{self.context_name}' of {self._name} is given by the worker")
            if self._context_at is not None and len(bound) >= self._context_at:
                bound.insert(self._context_at, context)
            else:
                named[self.context_name] = context
        return bound, named

    def _pairs(self, args: Sequence[Any]) -> Iterator[tuple[tuple[str, Any], Any]]:
        for place, value in enumerate(args):
            if place < len(self._positional):
                yield self._positional[place], value
            elif self._rest is not None:
                yield self._rest, value
            else:
                raise ArgumentError(f"{self._name} takes {len(self._positional)} arguments by place, not {len(args)}")

    def _convert(self, name: str, kind: Any, value: Any) -> Any:
        if kind is None or (kind in _SAME and type(value) is kind):
            return value
        try:
            return msgspec.convert(value, kind, str_keys=True)
        except msgspec.ValidationError as error:
            raise ArgumentError(f"argument '{name}' of {self._name}: {error}") from None

    def plain(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments as they are sent. Raises ArgumentError, also for arguments that `bind` would refuse."""
        given: dict[str, Any] = {} if self.context_name is None else {self.context_name: None}
        try:
            if self._context_at is not None and len(args) >= self._context_at:
                head, tail = args[: self._context_at], args[self._context_at :]
                self.signature.bind(*head, None, *tail, **kwargs)
            else:
                self.signature.bind(*args, **{**kwargs, **given})
        except TypeError as error:
            raise ArgumentError(f"{self._name}: {error}") from None
        return (
            [self._sent(name, kind, value) for (name, kind), value in self._pairs(args)],
            {name: self._sent(name, self._by_name.get(name, self._others), kwargs[name]) for name in kwargs},
        )

    def _sent(self, name: str, kind: Any, value: Any) -> Any:
        sent = to_json(name, self._name, value)
        self._convert(name, kind, sent)
        return sent

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, Any]:
        """Returns the same call with these parameters, and those after them, passed by name where that is possible."""
        wanted = set(names) - kwargs.keys()
        for place, (name, _) in enumerate(self._positional[: len(args)]):
            after = self._positional[place : len(args)]
            if name in wanted and len(args) <= len(self._positional) and all(it in self._by_name for it, _ in after):
                moved = dict(zip((it for it, _ in after), args[place:], strict=True))
                return args[:place], {**moved, **kwargs}
        return args, kwargs


def to_json(name: str, function: str, value: Any) -> Any:
    """Returns an argument as plain JSON values. Raises ArgumentError."""
    where = f"argument '{name}' of {function} can't be written as JSON"
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{where}: {error}") from None
    if not is_finite(plain):
        raise ArgumentError(f"{where}: it holds {NOT_FINITE}")
    return plain


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # some builtins have no signature
        return inspect.signature(lambda *args, **kwargs: None)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns types by parameter, without those that can't be resolved, such as imports for type checkers only."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 (an annotation is any expression, and may raise anything)
        return {name: hint for name, hint in _hints_one_by_one(function) if hint is not None}


def _hints_one_by_one(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    names = getattr(inspect.unwrap(function), "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        if not isinstance(annotation, str):
            yield name, annotation
            continue
        try:
            yield name, eval(annotation, names)
        except Exception:  # noqa: BLE001 (as above)
            yield name, Context if annotation.rpartition(".")[2] == "Context" else None


def _is_context(parameter: inspect.Parameter, hint: Any) -> bool:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return Context in typing.get_args(hint)
    return hint is Context or (parameter.name == "context" and hint in (None, Any))


@functools.cache
def _has_only_known(kind: Any) -> bool:
    return not any(isinstance(part, msgspec_inspect.CustomType) for part in _parts(msgspec_inspect.type_info(kind)))


def _is_convertible(hint: Any) -> bool:
    try:
        return hint is not Any and _has_only_known(hint)
    except Exception:  # noqa: BLE001 (what msgspec can't read is no type that JSON could be made into)
        return False


def _parts(info: Any) -> Iterator[Any]:
    """Yields a type and all types it is made of. Types may be recursive."""
    seen: set[int] = set()
    left = [info]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            left.extend(part)
        elif isinstance(part, msgspec.Struct) and id(part) not in seen:
            seen.add(id(part))
            yield part
            left.extend(getattr(part, name) for name in part.__struct_fields__)
