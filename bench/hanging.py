"""Targets that hang: ports that accept connections and requests, and never respond.

Prints the ports, then runs until it is stopped.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop


class Hangs(asyncio.Protocol):
    """Says nothing."""


async def main(count: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Hangs, "127.0.0.1", 0, backlog=1024) for _ in range(count)]
    print(" ".join(str(server.sockets[0].getsockname()[1]) for server in servers), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
