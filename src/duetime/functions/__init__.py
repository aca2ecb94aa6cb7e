"""Python functions as jobs: the names a user imports, and the worker that runs the functions.

It must not import more of Duetime than `domain` (the wire structs of `domain.work`): a worker reaches a node through
its `Source`.
"""

from duetime.functions.arguments import ArgumentError
from duetime.functions.context import Context, Reject, Retry, current
from duetime.functions.loading import AppNotFound, load_app
from duetime.functions.registry import Function, Registry
from duetime.functions.source import Source, SourceAway, SourceRefused, UnknownWorker
from duetime.functions.worker import Worker

__all__ = [
    "AppNotFound", "ArgumentError", "Context", "Function", "Registry", "Reject", "Retry", "Source", "SourceAway",
    "SourceRefused", "UnknownWorker", "Worker", "current", "load_app",
]  # fmt: skip
