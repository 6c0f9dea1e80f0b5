"""Produce as an ordinary client does: with few requests in flight, and in small batches."""

import dataclasses
import itertools

from bench.brokers import Broker
from bench.plan import Plan
from bench.specs import Window
from bench.workloads.driver_specs import produce_spec
from bench.workloads.driving import drive
from bench.workloads.rows import volume
from bench.workloads.throughput import warm_up
from bench.workloads.topics import drop_topic, new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_KIB = 1024
_RECORD_BYTES = 1024
_IN_FLIGHT = 5
_AHEAD = 8


def limited_row(batch_bytes: int, partitions: int, linger_ms: int) -> str:
    """The row's name in the report."""
    to = f"{partitions} partition{'s' if partitions > 1 else ''}"
    return f"{_IN_FLIGHT} in flight, {batch_bytes // _KIB} KiB batches, {to}, linger {linger_ms} ms"


def _limited(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        warm_up(broker, plan)
        cases = itertools.product(plan.limited_partitions, plan.limited_batch_bytes, plan.limited_lingers_ms)
        for partitions, batch_bytes, linger_ms in cases:
            measured = _window(broker, plan, partitions, batch_bytes, linger_ms)
            yield from volume(limited_row(batch_bytes, partitions, linger_ms), measured)


def _window(broker: Broker, plan: Plan, partitions: int, batch_bytes: int, linger_ms: int) -> Window:
    topic = new_topic(broker, partitions)
    spec = produce_spec(broker, plan, topic, partitions, _RECORD_BYTES)
    limits = {
        "max.in.flight.requests.per.connection": str(_IN_FLIGHT),
        "batch.size": str(batch_bytes),
        "linger.ms": str(linger_ms),
    }
    spec = dataclasses.replace(
        spec,
        properties={**spec.properties, **limits},
        # Enough that the client always has a batch to send, and little enough to wait for at the end.
        in_flight_bytes=_AHEAD * _IN_FLIGHT * batch_bytes,
        chunk_bytes=min(spec.chunk_bytes, batch_bytes),
    )
    measured = drive(spec, Window)
    drop_topic(broker, topic)
    return measured


def _seconds(plan: Plan) -> float:
    cases = len(plan.limited_partitions) * len(plan.limited_batch_bytes) * len(plan.limited_lingers_ms)
    return 15 + plan.jit_warmup_seconds + (plan.warmup_seconds + plan.seconds + 2) * cases


LIMITED = Workload(
    name="limited",
    describes="produce with 5 requests in flight, as Java's producer has: MB/s by batch size and linger.ms",
    run=_limited,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="how soon an acknowledgement comes; else librdkafka, which sends a request for each batch",
)
