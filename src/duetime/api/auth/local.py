"""Without identity, only users of this machine may send requests, and not the web pages that they visit.

A page in a browser can send requests to 127.0.0.1, and with a host name that resolves to it they look same-origin. So a
request must name a local host, and a request from a page must come from a page of this server.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

from duetime.domain.errors import Forbidden
from duetime.domain.loopback import is_loopback

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]{1,45})\]|(?P<name>[a-z0-9.-]{1,64}))(?::[0-9]{0,5})?")


def check_local(host: bytes, origin: bytes) -> None:
    """Checks `Host` and `Origin` of a request. Raises Forbidden if it is not local."""
    if not _is_local(host) or (origin and not _is_of(origin, host)):
        raise Forbidden(
            "without a JWT secret this server accepts local requests only: use http://127.0.0.1 or http://localhost"
        )


@lru_cache(maxsize=64)
def _is_local(host: bytes) -> bool:
    match = _HOST.fullmatch(host.decode("latin-1").lower())
    return match is not None and is_loopback(match["address"] or match["name"])


def _is_of(origin: bytes, host: bytes) -> bool:
    """Returns whether the origin is this server. The client chooses `Origin`: it may not even be a URL."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc == host.decode("latin-1")
    except ValueError:
        return False
