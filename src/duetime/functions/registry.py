"""The functions that a worker can run, by name."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from duetime.functions.arguments import Binder

LONGEST_NAME = 255


class Function:
    """A function under its name. Its parameters are inspected at first use: by then all types in its annotations are
    defined."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.callable = function
        call = getattr(function, "__call__", None)  # noqa: B004 (an object may be called, and that be async)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

    @functools.cached_property
    def binder(self) -> Binder:
        return Binder(self.name, self.callable)

    @property
    def signature(self) -> inspect.Signature:
        return self.binder.signature

    @property
    def wants_context(self) -> bool:
        return self.binder.context_name is not None


class Registry:
    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}

    def register(self, function: Callable[..., Any], name: str | None = None) -> Function:
        """Adds a function. Raises ValueError if the name is taken, empty or too long."""
        name = name if name is not None else name_of(function)
        if not 0 < len(name) <= LONGEST_NAME:
            raise ValueError(f"a function's name has 1 to {LONGEST_NAME} characters; '{name[:64]}' has {len(name)}")
        known = self._functions.get(name)
        if known is not None and known.callable is not function:
            raise ValueError(f"there is already a function '{name}'; give this one another name")
        if known is None:
            known = self._functions[name] = Function(name, function)
        return known

    def get(self, name: str) -> Function | None:
        return self._functions.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[Function]:
        return iter(self._functions.values())


def name_of(function: Callable[..., Any]) -> str:
    """Returns a name such as `reports.daily`. For a module run as a program, the file's name replaces `__main__`."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", "") or ""
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else "main"
    name = getattr(function, "__qualname__", type(function).__qualname__).replace("<locals>.", "")
    return f"{module}.{name}" if module else name
