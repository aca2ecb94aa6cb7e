"""An empty Litestar POST: decode the body, answer 201. What a create could cost at the very least.

`python -m bench.empty_api PORT` serves it as Duetime serves its own API: uvicorn, uvloop, httptools.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, post


class Body(msgspec.Struct):
    name: str
    schedule: str
    payload: dict[str, Any]
    type: str = "http_request"


class Created(msgspec.Struct):
    job_id: str


@post("/api/v1/jobs", status_code=201)
async def create(data: Body) -> Created:
    return Created(job_id=data.name)


app = Litestar([create], openapi_config=None)

if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
    )
