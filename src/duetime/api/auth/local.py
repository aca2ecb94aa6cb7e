"""Where there is no identity, only this machine's own people may ask: not the web pages they happen to look at.

A page in a browser can send requests to 127.0.0.1, and a host name that resolves to it makes it look like its own. So a
request must name a local host, and one that a page sends must come from a page of this same server.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from duetime.domain.errors import Forbidden

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]{1,45})\]|(?P<name>[a-z0-9.-]{1,64}))(?::[0-9]{0,5})?")


def check_local(host: bytes, origin: bytes) -> None:
    """`Host` and `Origin` of a request. Raises Forbidden."""
    if not _is_local(host) or (origin and not _is_of(origin, host)):
        raise Forbidden(
            "without a JWT secret this server answers local requests only: use http://127.0.0.1 or http://localhost"
        )


@lru_cache(maxsize=64)
def _is_local(host: bytes) -> bool:
    """Localhost or a loopback address. A name that resolves to one can be anybody's; an address can't."""
    match = _HOST.fullmatch(host.decode("latin-1").lower())
    if match is None:
        return False
    name = match["address"] or match["name"]
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_of(origin: bytes, host: bytes) -> bool:
    """Whether a page of that origin is one of ours. `Origin` is whatever the sender wrote: it may be no URL at all."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc == host.decode("latin-1")
    except ValueError:
        return False
