"""A webhook client in a bare loop: what it can send when nothing is stored or decided.

`python -m bench.bare_client duetime|pyreqwest PORT COUNT CONCURRENCY` posts COUNT requests shaped like Duetime's and
prints the seconds taken. `duetime` is Duetime's own client, guard and headers included; `pyreqwest` is the fastest
library that we found.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvloop
from pyreqwest.client import ClientBuilder

from duetime.domain.execution import Claim
from duetime.domain.ids import execution_id
from duetime.domain.job import HttpJob
from duetime.domain.payloads import HttpRequest
from duetime.domain.states import Trigger
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt

JOB_ID = "01890a5d-ac96-774b-bcce-b302099a8058"
HEADERS = {
    "content-type": "application/json",
    "user-agent": "duetime-bench",
    "webhook-id": "01890a5d-ac96-774b-bcce-b302099a8057",
    "webhook-timestamp": "1700000000",
    "idempotency-key": "01890a5d-ac96-774b-bcce-b302099a8057",
    "duetime-job-id": JOB_ID,
    "duetime-scheduled-at": "2030-01-01T00:00:00.000Z",
    "duetime-attempt": "1",
    "duetime-fencing-token": "1",
    "duetime-trigger": "schedule",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}

Post = Callable[[int], Awaitable[Any]]


async def lane(post: Post, numbers: Iterator[int]) -> None:
    for number in numbers:
        await post(number)


async def loop(post: Post, count: int, lanes: int) -> float:
    await asyncio.gather(*(lane(post, iter(range(10))) for _ in range(lanes)))  # connect first
    numbers = iter(range(count))
    started = time.perf_counter()
    await asyncio.gather(*(lane(post, numbers) for _ in range(lanes)))
    return time.perf_counter() - started


async def duetime(port: int, count: int, lanes: int) -> float:
    executor = HttpExecutor(allow=True)
    await executor.start()
    job = HttpJob(name="bare", schedule="immediate", payload=HttpRequest(url=f"http://127.0.0.1:{port}/bare"))

    async def post(number: int) -> None:
        payload = HttpRequest(url=f"http://127.0.0.1:{port}/bare/{number}", body={"n": number})
        at = 1_900_000_000_000 + number
        claim = Claim(execution_id(at, number), JOB_ID, "default", at, Trigger.SCHEDULE, 5, 1, 1, 1, False, job)
        outcome = await executor.execute(Attempt(claim, payload))
        if outcome.error_type is not None:
            raise SystemExit(f"the sink was not reached: {outcome}")

    try:
        return await loop(post, count, lanes)
    finally:
        await executor.stop()


async def pyreqwest(port: int, count: int, lanes: int) -> float:
    async with ClientBuilder().pool_max_idle_per_host(lanes).follow_redirects(False).build() as client:

        async def post(number: int) -> None:
            url = f"http://127.0.0.1:{port}/bare/{number}"
            response = await client.post(url).headers(HEADERS).body_bytes(b'{"n":%d}' % number).build().send()
            await response.bytes()

        return await loop(post, count, lanes)


if __name__ == "__main__":
    gc.disable()
    client = {"duetime": duetime, "pyreqwest": pyreqwest}[sys.argv[1]]
    print(uvloop.run(client(*(int(value) for value in sys.argv[2:5]))))
