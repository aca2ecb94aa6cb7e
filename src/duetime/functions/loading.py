"""Finds a user's app by "module:app" or "path/to/file.py:app"."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

from duetime.functions.registry import Registry


class App(Protocol):
    @property
    def registry(self) -> Registry: ...


class AppNotFound(Exception):
    """The app was not found. The message names it, and what was found instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def load_app(spec: str) -> App:
    """Imports the module, with the working directory on the path, and returns its app. Raises AppNotFound.

    An error that the module raises during import passes unchanged: its traceback shows the place.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise AppNotFound(f"'{spec}' does not name an app; write it like jobs:app or path/to/jobs.py:app")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    app: object = module
    for part in name.split("."):
        app = getattr(app, part, None)
    if app is None:
        raise AppNotFound(f"{place} has no '{name}'")
    if not isinstance(getattr(app, "registry", None), Registry):
        raise AppNotFound(f"'{name}' in {place} is a {type(app).__name__}, which has no functions registered with it")
    return app  # type: ignore[return-value]


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists; an import inside it failed
        raise AppNotFound(f"there is no module '{name}' in {os.getcwd()} or among the installed packages") from None


def _load_file(path: Path) -> ModuleType:
    """Imports a file under the name of its stem, as if its folder were the working directory."""
    path = path.resolve()
    if not path.is_file():
        raise AppNotFound(f"there is no file {path}")
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    made = importlib.util.spec_from_file_location(name, path)
    if made is None or made.loader is None or loaded is not None:
        raise AppNotFound(f"{path} can't be imported: there is another module '{name}' already; rename the file")
    module = importlib.util.module_from_spec(made)
    sys.modules[name] = module
    try:
        made.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
