"""The webhook client in a bare loop: what the HTTP library itself can send when nothing is stored or decided.

`python -m bench.bare_client PORT COUNT LANES` posts COUNT requests shaped like Duetime's and prints the seconds taken.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator

import uvloop
from pyreqwest.client import Client, ClientBuilder

HEADERS = {
    "content-type": "application/json",
    "user-agent": "duetime-bench",
    "webhook-id": "01890a5d-ac96-774b-bcce-b302099a8057",
    "webhook-timestamp": "1700000000",
    "idempotency-key": "01890a5d-ac96-774b-bcce-b302099a8057",
    "duetime-job-id": "01890a5d-ac96-774b-bcce-b302099a8058",
    "duetime-scheduled-at": "2030-01-01T00:00:00.000Z",
    "duetime-attempt": "1",
    "duetime-fencing-token": "1",
    "duetime-trigger": "schedule",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


async def lane(client: Client, port: int, numbers: Iterator[int]) -> None:
    for number in numbers:
        url = f"http://127.0.0.1:{port}/bare/{number}"
        request = client.post(url).headers(HEADERS).body_bytes(b'{"n":%d}' % number).build()
        response = await request.send()
        await response.bytes()


async def main(port: int, count: int, lanes: int) -> float:
    async with ClientBuilder().pool_max_idle_per_host(lanes).follow_redirects(False).build() as client:
        await asyncio.gather(*(lane(client, port, iter(range(10))) for _ in range(lanes)))  # connect first
        numbers = iter(range(count))
        started = time.perf_counter()
        await asyncio.gather(*(lane(client, port, numbers) for _ in range(lanes)))
        return time.perf_counter() - started


if __name__ == "__main__":
    gc.disable()
    print(uvloop.run(main(*(int(value) for value in sys.argv[1:4]))))
