"""A node's metrics, with readings that a test changes."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from duetime.domain.capacity import Capacity, Load
from duetime.ports.usage import LogUsage, PoolUsage, StoreUsage
from duetime.telemetry.emitted import Emitted
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus import text
from duetime.telemetry.prometheus.families import AnyFamily
from duetime.telemetry.prometheus.metrics import Metrics
from duetime.telemetry.readings import DUE, QUEUED, RECORDING, EngineReadings, Readings, StoreTotals

ENGINE = EngineReadings(
    in_flight={"http_request": 0, "python": 0}, limits={"http_request": 512},
    waiting={DUE: {}, QUEUED: {}, RECORDING: {}}, targets=(), places=0, most_places=0, read_ahead=0, shards=0,
    services={"timer": True}, circuits={"OPEN": 0}, workers=0, slots=0, polls=0,
)  # fmt: skip
READINGS = Readings(
    node=1, name="a", version="1", roles=("api",), store_up=True, load=Load(), capacity=Capacity(), clock_offset=None,
    nodes=0, free_shards=0, engine=ENGINE, store=StoreUsage(0, 0, {"own": PoolUsage(0, 0, 0)}),
    totals=StoreTotals(executions={"QUEUED": 0}, waiting={"parked": {}}, dead_letters=0), functions_without_worker=0,
    logs=LogUsage(0, 0, 0), followers=0, streams=0, most_streams=0,
)  # fmt: skip

Samples = dict[str, float]


class StrictTelemetry(Telemetry):
    """A subscriber that fails makes its test fail. (A node logs it.)"""

    def _note(self, kind: type[Emitted], error: Exception) -> None:
        raise error


class Scene:
    def __init__(self) -> None:
        self.telemetry = StrictTelemetry()
        self.metrics = Metrics(self.telemetry)
        self.readings = READINGS

    def emit(self, *emitted: Emitted) -> None:
        for one in emitted:
            self.telemetry.emit(one)

    def read(self, **figures: object) -> None:
        """Changes readings. Those of the engine, of the store and its totals are found by their names."""
        engine, totals = self.readings.engine, self.readings.totals
        assert totals is not None
        if "waiting_on_node" in figures:
            engine = msgspec.structs.replace(engine, waiting=figures.pop("waiting_on_node"))
        if "waiting_in_store" in figures:
            totals = msgspec.structs.replace(totals, waiting=figures.pop("waiting_in_store"))
        for name, value in figures.items():
            if name in type(engine).__struct_fields__:
                engine = msgspec.structs.replace(engine, **{name: value})
            elif name in type(totals).__struct_fields__:
                totals = msgspec.structs.replace(totals, **{name: value})
            else:
                self.readings = msgspec.structs.replace(self.readings, **{name: value})
        self.readings = msgspec.structs.replace(self.readings, engine=engine, totals=totals)

    def text(self) -> str:
        return self.metrics.render(self.readings)[1].decode()

    def samples(self) -> Samples:
        """Returns the value of each series, by its name with its labels in order."""
        return samples_of(self.text())


def lines_of(family: AnyFamily) -> Samples:
    """Returns the series of one family, as its text has them."""
    return samples_of(text.encode([family.collect()]).decode())


def samples_of(exposed: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(exposed):
        for sample in family.samples:
            shown = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{shown}}}" if shown else sample.name
            assert name not in found, f"{name} is there twice"
            found[name] = sample.value
    return found
