"""An S3 server for tests, on loopback. Its buckets outlive a stop, like those of a real one."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

from patience import PATIENCE_SECONDS


class S3Server:
    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self._host, self._port = self._server.get_host_and_port()
        self._up = True

    @property
    def options(self) -> dict[str, Any]:
        """Returns the options for obstore to reach this server, independent of the machine's settings."""
        return {
            "endpoint": f"http://{self._host}:{self._port}",
            "access_key_id": "tests",
            "secret_access_key": "tests",
            "region": "us-east-1",
            "client_options": {"allow_http": True},
            "retry_config": {"max_retries": 0},
        }

    def make_bucket(self) -> str:
        name = f"logs-{uuid.uuid4().hex}"
        request = Request(f"http://{self._host}:{self._port}/{name}", method="PUT")
        with urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 200
        return name

    def stop(self) -> None:
        if self._up:
            self._server.stop()
            self._up = False

    @contextmanager
    def away(self) -> Iterator[None]:
        """Stops listening: its port is closed meanwhile."""
        self.stop()
        try:
            yield
        finally:
            self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
            self._server.start()
            self._server.get_host_and_port()
            self._up = True
