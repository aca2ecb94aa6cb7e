"""Every write to the store, as data. A command holds all that it needs: applying it reads no clock or random source.

A command is atomic and fails alone; commands applied together are committed together. A command's docstring says what
applying it returns, and the errors that it fails with. An `audit` entry is written if, and only if, the command changes
something. Rows are `array_like` structs: they go to the store's SQL as one JSON page, in the order of their fields.
"""

from duetime.domain.commands.base import Command
from duetime.domain.commands.circuits import CloseCircuit, CountEnds, TakeProbe
from duetime.domain.commands.executions import (
    AddExecution,
    CancelExecution,
    ClaimExecutions,
    Finish,
    Fire,
    Fired,
    Redrive,
    Release,
    SaveProgress,
)
from duetime.domain.commands.housekeeping import (
    PruneAudit,
    SweepCounters,
    SweepLimits,
    SweptRows,
    TrimHistory,
    Trimmed,
)
from duetime.domain.commands.jobs import (
    CancelJob,
    ChangeJob,
    CreateJobs,
    IdempotencyRecord,
    NewJob,
    PauseJob,
    PurgeJob,
    Reencrypt,
    ResumeJob,
    SweepJobs,
    Swept,
)
from duetime.domain.commands.nodes import (
    BeatWorkers,
    FenceNodes,
    FenceShards,
    FenceWorkers,
    JoinWorker,
    Prune,
    StartNode,
    StopNode,
)
from duetime.domain.commands.statistics import RecountJobs, ReportNode, RollUpStatistics, WriteStatistics
from duetime.domain.commands.tenants import (
    AddKey,
    AddSubscription,
    NewKey,
    PutConnection,
    ReencryptConnection,
    RemoveConnection,
    RemoveSubscription,
    RevokeKey,
    RotateSigningKey,
    TakeRequests,
    TouchKeys,
)
from duetime.domain.commands.together import Carried, OnFinish, WithNotifications

__all__ = [
    "AddExecution", "AddKey", "AddSubscription", "BeatWorkers", "CancelExecution", "CancelJob", "Carried", "ChangeJob",
    "ClaimExecutions", "CloseCircuit", "Command", "CountEnds", "CreateJobs", "FenceNodes", "FenceShards",
    "FenceWorkers", "Finish", "Fire", "Fired", "IdempotencyRecord", "JoinWorker", "NewJob", "NewKey", "OnFinish",
    "PauseJob", "Prune", "PruneAudit", "PurgeJob", "PutConnection", "RecountJobs", "Redrive", "Reencrypt",
    "ReencryptConnection", "Release", "RemoveConnection", "RemoveSubscription", "ReportNode", "ResumeJob", "RevokeKey",
    "RollUpStatistics", "RotateSigningKey", "SaveProgress", "StartNode", "StopNode", "SweepCounters", "SweepJobs",
    "SweepLimits", "Swept", "SweptRows", "TakeProbe", "TakeRequests", "TouchKeys", "TrimHistory", "Trimmed",
    "WithNotifications", "WriteStatistics",
]  # fmt: skip
