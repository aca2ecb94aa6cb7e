"""Bounds on what the other end of an HTTP connection may send: the bytes that are not body, and how slow a body may be.

Both directions share these rules: a client that sends a request to the API, and a target that responds to one.
"Framing" is every byte that is not body: a head, chunk sizes, chunk extensions, trailers, interim (1xx) responses.
"""

from __future__ import annotations

MAX_FRAMING_BYTES = 64 * 1024  # without body in between, or beyond one byte for each FREE_FRAMING bytes of body
FREE_FRAMING = 4  # with chunks of 24 bytes on average no framing counts
MAX_REQUEST_TARGET_BYTES = 8 * 1024  # of a request: its path and query, the length that RFC 9112 recommends to support
MAX_HEADERS = 256  # in a request: of the shortest ones, 64 kB hold 10,000, and each is handled by itself
MAX_PARTS = 2000  # of a response: headers, trailers, interim responses, and chunks that are tiny
TINY_BYTES = 16  # a chunk of less counts as a part: handling it costs more than what it brings
PIECE_BYTES = 16 * 1024  # how much is parsed before the bounds are checked
LEAST_BYTES_PER_SECOND = 500  # of a request's body, on average


def framing_after(framing: int, received: int, body: int) -> int:
    """Returns the framing that counts after `received` more bytes of which `body` were body.

    Each part of a body takes its share of the framing back, so a long body may come in many chunks. It never makes
    up for framing that comes later: trailers are as bounded after a large body as after a small one.
    """
    framing += received - body - body // FREE_FRAMING
    return framing if framing > 0 else 0


def is_too_slow(body_bytes: int, seconds: float, grace_seconds: float) -> bool:
    """Returns whether a body that has taken `seconds` so far came slower than the least average rate.

    The first `grace_seconds` do not count: a pause that is allowed must not be fatal by itself.
    """
    return body_bytes < LEAST_BYTES_PER_SECOND * (seconds - grace_seconds)
