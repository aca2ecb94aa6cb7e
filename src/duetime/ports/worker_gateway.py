"""The worker gateway port: it assigns executions of Python functions to workers. A node's engine implements it.

A program that embeds Duetime calls it directly; other workers call it through the API.
"""

from __future__ import annotations

from typing import Protocol

from duetime.domain.work import Joined, Joining, Polled, Polling, Reported, Reporting


class WorkerGateway(Protocol):
    """`poll`, `report` and `leave` raise NotFound if the worker's lease has expired, it never joined, or it belongs to
    another tenant."""

    async def join(self, tenant: str, user_id: str, joining: Joining) -> Joined: ...

    async def poll(self, tenant: str, polling: Polling) -> Polled:
        """Waits until there is an execution for this worker, for at most the time that the worker requests.

        Raises Overloaded while the node stops, and RateLimited if too many workers of the tenant poll there already.
        """

    async def report(self, tenant: str, reporting: Reporting) -> Reported:
        """Records what the worker reports. When it returns, that is durable."""

    async def leave(self, tenant: str, worker_id: int) -> None:
        """Ends the worker. Executions that it still runs are returned to other workers at once."""
