"""Commands on alert channels: where notices of alerts are sent."""

from __future__ import annotations

from duetime.domain.audit import Entry
from duetime.domain.channels import Kind
from duetime.domain.commands.base import Command


class PutChannel(Command[None], frozen=True):
    """Add an alert channel, or replace the kind and URL of an existing one. Returns None.

    `limit`: how many a tenant may have; None: any number. Fails with Conflict.
    """

    now: int
    tenant: str
    name: str
    kind: Kind
    url: str  # encrypted
    shown: str  # the URL as users may see it
    created_by: str
    audit: Entry | None = None
    limit: int | None = None


class RemoveChannel(Command[None], frozen=True):
    """Remove an alert channel. Returns None. Fails with NotFound."""

    tenant: str
    name: str
    audit: Entry | None = None


class ReencryptChannel(Command[bool], frozen=True):
    """Replace the encrypted URL `old` by `new`, the same URL encrypted again. Returns whether `old` was stored."""

    tenant: str
    name: str
    old: str
    new: str
