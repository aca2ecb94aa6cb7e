"""Celery 5 on Redis, calling the no-op: `python -m bench.peers.celery5_functions ORDER`. Runs in `.peers`.

A prefork worker with two processes waits at an empty queue; the calls stand in another one, which it is told to consume
at the instant: an eta on each call would cost it a timer more. It fetches ahead without limit, acknowledges before the
call (its default), and keeps no results: less than Duetime keeps, which has every call's end on disk. Redis writes its
append-only file as it does by default, once a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery

from bench.noop import VARIABLE, noop
from bench.peers.order import end_on_sigterm, read_order, say_stored

PROCESSES = 2
QUEUE = "calls"

socket_path = os.environ.get("BENCH_REDIS_SOCKET", "")
app = Celery("bench", broker=f"redis+socket://{socket_path}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=0,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600},
    timezone="UTC",
)
call = app.task(name="noop")(noop)


def main() -> None:
    order = read_order()
    redis_socket = str(Path(order.folder) / "redis.sock")
    redis = ["redis-server", "--port", "0", "--unixsocket", redis_socket, "--appendonly", "yes", "--dir", order.folder]
    subprocess.Popen(redis, stdout=subprocess.DEVNULL)
    environment = {**os.environ, "BENCH_REDIS_SOCKET": redis_socket, VARIABLE: order.tally}
    worker = [sys.executable, "-W", "ignore", "-m", "celery", "-A", __spec__.name, "worker", "--pool", "prefork"]
    worker += ["--concurrency", str(PROCESSES), "--queues", "idle", "--loglevel", "ERROR"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    child = subprocess.Popen(worker, env=environment, stdout=subprocess.DEVNULL)
    app.conf.broker_url = f"redis+socket://{redis_socket}"
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(order.jobs):
            call.apply_async((number,), queue=QUEUE, producer=producer)
    while not app.control.ping(timeout=0.5):
        continue
    say_stored()
    time.sleep(max(0.0, order.instants[0] / 1000 - time.time()))
    app.control.add_consumer(QUEUE)
    child.wait()


if __name__ == "__main__":
    end_on_sigterm()  # the harness ends the whole process group, Redis and the worker included
    main()
