"""The bare limits: what the parts that Duetime stands on can do with nothing around them, measured in the same run."""

from __future__ import annotations

import http.client
import time

from bench import loadgen, processes
from bench.arrivals import Sink, burst_figures
from bench.tally import Tally

CONCURRENCY = 64
REPEATS = 3  # the best of these: a limit that was disturbed is not a limit


def bare_client(client: str, sink: Sink, count: int) -> dict[str, float]:
    """A webhook client in a loop over 64 lanes, against the same sink."""
    command = [processes.PYTHON, "-m", "bench.bare_client", client, str(sink.port), str(count), str(CONCURRENCY)]
    seconds = []
    for _ in range(REPEATS):
        sink.reset()
        seconds.append(float(processes.run(command, timeout_seconds=120)))
    return {"drain_per_second": count / min(seconds), "last_ms": min(seconds) * 1000}


def sqlite_creates(count: int) -> dict[str, float]:
    """A job and its timer a row."""
    return _sqlite("creates", count)


def sqlite_executions(count: int) -> dict[str, float]:
    """A fire and a finish an execution."""
    return _sqlite("executions", count)


def bare_functions(tally: Tally, count: int) -> dict[str, float]:
    """Two processes that call the no-op and write the same rows, with no server between them and the file."""
    tally.reset()
    folder = processes.scratch("functions")
    command = [processes.PYTHON, "-m", "bench.bare_functions", str(count), str(folder)]
    begun_at = float(processes.run(command, env=tally.environment, timeout_seconds=120))
    processes.remove(folder)
    return burst_figures(tally.arrivals("bare"), count, begun_at)


def empty_post(body: str, count: int) -> dict[str, float]:
    """A Litestar handler that decodes the body and answers, on the server that Duetime uses."""
    port = processes.free_port()
    server = processes.start([processes.PYTHON, "-m", "bench.empty_api", str(port)])
    try:
        _wait_for_port(port)
        load = loadgen.Load(port=port, path="/api/v1/jobs", body=body, count=count, connections=CONCURRENCY)
        best = max((loadgen.run(load) for _ in range(REPEATS)), key=lambda loaded: loaded.per_second)
    finally:
        processes.stop(server)
    return load_figures(best)


def load_figures(loaded: loadgen.Loaded) -> dict[str, float]:
    return {"per_second": loaded.per_second, "p50_ms": loaded.p50_ms, "p99_ms": loaded.p99_ms}


def _sqlite(what: str, count: int) -> dict[str, float]:
    seconds = []
    for _ in range(REPEATS if count <= 100_000 else 1):
        folder = processes.scratch("sqlite")
        command = [processes.PYTHON, "-m", "bench.bare_sqlite", what, str(count), str(folder)]
        seconds.append(float(processes.run(command, timeout_seconds=300)))
        processes.remove(folder)
    return {"per_second": count / min(seconds), "seconds": min(seconds)}


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError("the empty handler did not start")
