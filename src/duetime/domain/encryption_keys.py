"""Keys that encrypt secrets, as text: `id:base64 of 32 bytes`. No error contains a key, or a part of an invalid one."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence

KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class Key:
    """A key. `repr` does not show its secret."""

    __slots__ = ("id", "secret")

    def __init__(self, id: str, secret: bytes) -> None:
        self.id = id
        self.secret = secret

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and (self.id, self.secret) == (other.id, other.secret)

    def __hash__(self) -> int:
        return hash((self.id, self.secret))

    @property
    def text(self) -> str:
        """Returns the key as it is written in a setting or a file. It contains the secret."""
        return f"{self.id}:{b64encode(self.secret).decode()}"


def parse_keys(parts: Sequence[str]) -> tuple[Key, ...]:
    """Returns the keys. Raises ValueError, which names an invalid key by its number and a duplicate one by its id."""
    keys = tuple(_parse(part.strip(), number) for number, part in enumerate(parts, 1) if part.strip())
    ids = [key.id for key in keys]
    for id in ids:
        if ids.count(id) > 1:
            raise ValueError(f"the key id {id} occurs twice; give each key another id")
    return keys


def _parse(part: str, number: int) -> Key:
    id, colon, text = part.partition(":")
    if not colon or not _ID.fullmatch(id):
        raise ValueError(
            f"key number {number} is not an id of 1 to 32 letters, digits, - _ or ., a colon, and base64; "
            "`duetime keys create` prints one"
        )
    try:
        secret = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"after the colon of key number {number} there must be base64") from None
    if len(secret) != KEY_BYTES:
        raise ValueError(f"key number {number} has {len(secret)} bytes, it must have {KEY_BYTES}")
    return Key(id, secret)
