"""Types of fields: instants, and values of fixed sets.

A value of a fixed set is decoded as text: an enum would refuse a new value of a newer server. The OpenAPI document
lists the known values. Compare a value with a member of its enum by `==`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from duetime.domain.alert_rules import AlertKind, Severity
from duetime.domain.alerts import AlertState
from duetime.domain.breaker import CircuitState
from duetime.domain.channels import Kind
from duetime.domain.identity import Right, Role, Tier
from duetime.domain.job import JobStatus, JobType
from duetime.domain.lease import Standing
from duetime.domain.objectives import ObjectiveKind
from duetime.domain.states import ErrorType, State, Trigger

Instant = Annotated[datetime, Meta(tz=True)]  # in UTC
# The default of an instant that every server sends. It is never null in the OpenAPI document; a client that reads a
# response without it has None.
ABSENT: Any = None

StatusWord = Annotated[str, JobStatus]
TypeWord = Annotated[str, JobType]
StateWord = Annotated[str, State]
TriggerWord = Annotated[str, Trigger]
ErrorTypeWord = Annotated[str, ErrorType]
RoleWord = Annotated[str, Role]
TierWord = Annotated[str, Tier]
RightWord = Annotated[str, Right]
StandingWord = Annotated[str, Standing]
ObjectiveWord = Annotated[str, ObjectiveKind]
CircuitWord = Annotated[str, CircuitState]
AlertKindWord = Annotated[str, AlertKind]
AlertStateWord = Annotated[str, AlertState]
SeverityWord = Annotated[str, Severity]
ChannelKindWord = Annotated[str, Kind]
