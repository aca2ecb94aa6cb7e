"""Celery 5 on Redis: `python -m bench.peers.celery5 ORDER`. Runs in `.peers`, and needs a redis-server on the path.

Tasks carry an eta; a prefork worker fetches them ahead without limit, ignores results, and each of its processes keeps
one connection to the target open. Redis writes its append-only file as it does by default, once a second.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from celery import Celery

from bench.peers.order import end_on_sigterm, read_order, say_stored

PROCESSES = 8

socket_path = os.environ.get("BENCH_REDIS_SOCKET", "")
app = Celery("bench", broker=f"redis+socket://{socket_path}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=0,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600},
    timezone="UTC",
)
_connections: dict[int, http.client.HTTPConnection] = {}


@app.task(name="send")
def send(port: int, path: str) -> None:
    connection = _connections.setdefault(port, http.client.HTTPConnection("127.0.0.1", port))
    connection.request("POST", path, b'{"n":1}', {"content-type": "application/json"})
    connection.getresponse().read()


def main() -> None:
    order = read_order()
    redis_socket = str(Path(order.folder) / "redis.sock")
    redis = ["redis-server", "--port", "0", "--unixsocket", redis_socket, "--appendonly", "yes", "--dir", order.folder]
    subprocess.Popen(redis, stdout=subprocess.DEVNULL)
    environment = {**os.environ, "BENCH_REDIS_SOCKET": redis_socket}
    worker = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "celery",
        "-A",
        "bench.peers.celery5",
        "worker",
        "--pool",
        "prefork",
    ]
    worker += ["--concurrency", str(PROCESSES), "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    child = subprocess.Popen(worker, env=environment, stdout=subprocess.DEVNULL)
    app.conf.broker_url = f"redis+socket://{redis_socket}"
    with app.producer_pool.acquire(block=True) as producer:
        for instant, number in order.each():
            eta = datetime.fromtimestamp(instant / 1000, UTC)
            send.apply_async((order.port, order.path(number, instant)), eta=eta, producer=producer)
    say_stored()
    child.wait()


if __name__ == "__main__":
    end_on_sigterm()  # the harness ends the whole process group, Redis and the worker included
    main()
