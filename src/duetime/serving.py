"""The two HTTP servers of a node, for the API and for the metrics. They stay up while executions drain."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import socket
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import structlog
import uvicorn
from litestar.types import ASGIApp

from duetime.api.http.protocol import BoundedProtocol, request_starts
from duetime.domain.sockets import Sockets
from duetime.settings.table import Settings

log = structlog.get_logger()

MOST_CONNECTIONS = 4096  # of clients; at most half of the descriptors, since jobs need some too


class HttpServers:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._servers: list[tuple[_Server, asyncio.Task[None]]] = []

    def listen(self) -> socket.socket:
        """Returns the socket of the API. Raises OSError, with advice."""
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=2048)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"can't listen on {host} port {port}: {reason}; choose another with --port") from None

    async def serve_api(self, app: ASGIApp, listener: socket.socket) -> asyncio.Task[None]:
        """Returns once the server answers. The task ends with it."""
        server, serving = self._serve(app, listener)
        while not server.started:
            if serving.done():
                serving.result()
                raise OSError("the server did not start")
            await asyncio.sleep(0.005)
        return serving

    def serve_metrics(self, app: ASGIApp) -> None:
        """Serves the metrics. If the port is in use, the node logs a warning and runs without them."""
        port = self._settings.metrics_port
        if not port:
            return
        try:
            listener = socket.create_server((self._settings.metrics_host, port))
        except OSError as error:
            log.warning("no metrics: can't listen; choose another METRICS_PORT, or 0", port=port, error=str(error))
            return
        self._serve(app, listener)

    async def stop(self) -> None:
        for server, serving in self._servers:
            server.should_exit = True
            await serving

    def _serve(self, app: ASGIApp, listener: socket.socket) -> tuple[_Server, asyncio.Task[None]]:
        server = _Server(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=cast(Any, partial(BoundedProtocol, sockets=self._sockets(), starts=request_starts())),
                ws="none",  # websockets would bypass the protocol that bounds connections
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=math.ceil(self._settings.http_shutdown_timeout),
            )
        )
        self._servers.append((server, asyncio.create_task(server.serve(sockets=[listener]))))
        return self._servers[-1]

    def _sockets(self) -> Sockets[BoundedProtocol]:
        """Returns the limits on the connections of one server."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        capacity = MOST_CONNECTIONS if descriptors < 0 else min(MOST_CONNECTIONS, descriptors // 2)
        return Sockets(capacity, self._settings.connections_per_address)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the node has its own."""

    def capture_signals(self) -> Any:
        return nullcontext()
