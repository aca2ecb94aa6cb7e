"""Duetime runs jobs in due time: webhooks, scripts and functions, now, at an instant, every so often, or by cron."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duetime.client import AsyncClient, Client
    from duetime.functions import Context, Reject, Retry, current
    from duetime.sdk.app import Duetime

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "Context", "Duetime", "Reject", "Retry", "current"]

_HOMES = {
    "Duetime": "duetime.sdk.app", "Client": "duetime.client", "AsyncClient": "duetime.client",
    "Context": "duetime.functions", "Reject": "duetime.functions", "Retry": "duetime.functions",
    "current": "duetime.functions",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What people import, loaded when they do: the command line and the server need none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'duetime' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
