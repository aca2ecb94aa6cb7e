"""Parses the URL of Duetime's own database."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_END_OF_HOSTS = re.compile(r"[/?#]")


def split_url(url: str) -> SplitResult:
    """Returns the parts of a URL. `urlsplit` alone refuses several hosts if one of them is an IPv6 address."""
    scheme, _, rest = url.partition("://")
    netloc = _END_OF_HOSTS.split(rest, maxsplit=1)[0]
    return urlsplit(f"{scheme}://{rest[len(netloc) :]}")._replace(netloc=netloc)
