"""Produce, and consume the newest records, for each record size and number of partitions."""

import dataclasses

from bench.brokers import Broker
from bench.plan import Plan
from bench.process import memory
from bench.specs import Window
from bench.workloads.driver_specs import produce_spec, tail_spec
from bench.workloads.driving import drive
from bench.workloads.rows import BYTES_PER_GB, BYTES_PER_MB, volume
from bench.workloads.topics import drop_topic, new_topic, writeback_seconds
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_WARM_UP_RECORD_BYTES = 1024


def row_name(what: str, record_bytes: int, partitions: int) -> str:
    """The name of a row of produce or consume."""
    return f"{what} {record_bytes} B, {partitions} partition{'s' if partitions > 1 else ''}"


def _throughput(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        warm_up(broker, plan)
        for partitions in plan.partition_counts:
            for record_bytes in plan.record_sizes:
                yield from _of_a_topic(broker, plan, partitions, record_bytes)


def _of_a_topic(broker: Broker, plan: Plan, partitions: int, record_bytes: int) -> Values:
    topic = new_topic(broker, partitions)
    produced = drive(produce_spec(broker, plan, topic, partitions, record_bytes), Window)
    written = produced.total_records
    writeback = writeback_seconds() / (written * record_bytes) * BYTES_PER_GB
    name = row_name("produce", record_bytes, partitions)
    yield from volume(name, produced, writeback)
    yield name, "peak resident MB", memory(broker.pid).peak_resident_bytes / BYTES_PER_MB
    tail = drive(tail_spec(broker, plan, topic, partitions, record_bytes, written), Window)
    yield from volume(row_name("consume tail", record_bytes, partitions), tail)
    drop_topic(broker, topic)


def warm_up(broker: Broker, plan: Plan) -> None:
    """Drive a topic that is thrown away, so that a JIT has compiled the measured code."""
    if not plan.jit_warmup_seconds:
        return
    topic = new_topic(broker, plan.partitions)
    size, partitions = _WARM_UP_RECORD_BYTES, plan.partitions
    spec = dataclasses.replace(
        produce_spec(broker, plan, topic, partitions, size),
        warmup_seconds=0.0,
        seconds=plan.jit_warmup_seconds,
    )
    written = drive(spec, Window).total_records
    drive(tail_spec(broker, plan, topic, partitions, size, written), Window)
    drop_topic(broker, topic)


def _seconds(plan: Plan) -> float:
    each = plan.warmup_seconds + plan.seconds + plan.consume_passes + 2
    return 15 + plan.jit_warmup_seconds + each * len(plan.record_sizes) * len(plan.partition_counts)


THROUGHPUT = Workload(
    name="throughput",
    describes="produce, and consume what is newest: MB/s, broker CPU per GB, memory",
    run=_throughput,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="librdkafka: a core or two at 100-byte records, and in consume (`driver cores`); `frames` needs less",
)
