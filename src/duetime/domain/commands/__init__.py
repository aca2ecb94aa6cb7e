"""Every write there is, as data. Applying a command reads no clock and no random source: all it needs is in it.

A command is atomic and fails alone; commands applied together are committed together. What a command answers is in
its docstring. Where it has an `audit` entry, that is written if, and only if, the command changes something.
Rows are `array_like` structs: they go to the store's SQL as one JSON page, in their fields' order.
"""

from duetime.domain.commands.base import Command
from duetime.domain.commands.circuits import CloseCircuit, CountEnds, TakeProbe
from duetime.domain.commands.housekeeping import PruneAudit, SweepCounters, SweepLimits, SweptRows
from duetime.domain.commands.jobs import (
    CancelJob,
    ChangeJob,
    CreateJobs,
    IdempotencyRecord,
    NewJob,
    PauseJob,
    PurgeJob,
    Reseal,
    ResumeJob,
    SweepJobs,
    Swept,
)
from duetime.domain.commands.nodes import (
    BeatWorkers,
    EndNodes,
    EndWorkers,
    JoinWorker,
    Prune,
    Seal,
    StartNode,
    StopNode,
)
from duetime.domain.commands.runs import (
    AddRun,
    CancelExecution,
    Claim,
    Finish,
    Fire,
    Fired,
    Redrive,
    Release,
    SaveProgress,
)
from duetime.domain.commands.tenants import (
    AddKey,
    AddSubscription,
    NewKey,
    PutConnection,
    RemoveConnection,
    RemoveSubscription,
    ResealConnection,
    RevokeKey,
    TakeRequests,
    TouchKeys,
)
from duetime.domain.commands.together import FollowUp, Sequel

__all__ = [
    "AddKey",
    "AddRun",
    "AddSubscription",
    "BeatWorkers",
    "CancelExecution",
    "CancelJob",
    "ChangeJob",
    "Claim",
    "CloseCircuit",
    "Command",
    "CountEnds",
    "CreateJobs",
    "EndNodes",
    "EndWorkers",
    "Finish",
    "Fire",
    "Fired",
    "FollowUp",
    "IdempotencyRecord",
    "JoinWorker",
    "NewJob",
    "NewKey",
    "PauseJob",
    "Prune",
    "PruneAudit",
    "PurgeJob",
    "PutConnection",
    "Redrive",
    "Release",
    "RemoveConnection",
    "RemoveSubscription",
    "Reseal",
    "ResealConnection",
    "ResumeJob",
    "RevokeKey",
    "SaveProgress",
    "Seal",
    "Sequel",
    "StartNode",
    "StopNode",
    "SweepCounters",
    "SweepJobs",
    "SweepLimits",
    "Swept",
    "SweptRows",
    "TakeProbe",
    "TakeRequests",
    "TouchKeys",
]
