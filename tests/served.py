"""A real `duetime serve` in a separate process, and a target that it may call: for tests of the CLI and the docs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from node_forks import fork_server
from patience import PATIENCE_SECONDS


@contextmanager
def served(folder: Path, database_url: str | None = None) -> Iterator[str]:
    """Yields the URL of a server with its data in `folder` or a database; on a free port. It stops with exit code 0."""
    folder.mkdir(exist_ok=True)
    command = ["duetime", "serve", "--port", "0", "--data", str(folder / "data"), "--json"]
    command += ["--database-url", database_url] if database_url else []
    command += ["--allow-private-targets", "127.0.0.0/8", "--log-level", "error"]
    reader, writer = os.pipe()
    with open(reader, "rb") as said:
        with open(writer, "wb") as out, open(folder / "served.err", "wb") as err:
            process = fork_server.start(command, folder, os.environ, out, err)
        try:
            yield json.loads(said.readline() or "{}").get("url") or pytest.fail((folder / "served.err").read_text())
        finally:
            process.terminate()
            code = process.wait(PATIENCE_SECONDS)
    assert code == 0


class Target(BaseHTTPRequestHandler):
    """Answers with the status in the path (/500); 404 at /missing, 200 elsewhere."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        word = self.path.strip("/")
        body = f"this is {word}".encode()
        self.send_response(int(word) if word.isdigit() else 404 if word == "missing" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def target() -> Iterator[str]:
    """The URL of a target on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
