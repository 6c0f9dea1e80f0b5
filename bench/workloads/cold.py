"""Cold consume: the broker was restarted, and the page cache of its files dropped."""

import dataclasses

from bench.brokers import Broker
from bench.plan import Plan
from bench.specs import ConsumeSpec, Window
from bench.workloads.driver_specs import produce_spec, whole_spec
from bench.workloads.driving import drive
from bench.workloads.rows import volume
from bench.workloads.throughput import row_name
from bench.workloads.topics import drop_topic, new_topic
from bench.workloads.workload import Stage, Values, Workload, clients_can_use

_WARM_UP_BYTES = 64 * 1024 * 1024
_WARM_UP_RECORD_BYTES = 1024
_WARM_UP_PASSES = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A topic and the number of records acknowledged in it."""

    topic: str
    partitions: int
    record_bytes: int
    records: int


def _cold(stage: Stage) -> Values:
    plan = stage.plan
    with stage.running_broker() as broker:
        warm = _write(broker, plan, plan.partitions, _WARM_UP_RECORD_BYTES, _WARM_UP_BYTES)
        written = [
            _write(broker, plan, partitions, record_bytes, plan.consume_cold_bytes)
            for partitions in plan.partition_counts
            for record_bytes in plan.record_sizes
        ]
        broker.stop()
        broker.drop_page_cache()
        broker.start()
        # A JIT has to compile again.
        drive(dataclasses.replace(_spec(broker, plan, warm), passes=_WARM_UP_PASSES), Window)
        for one in written:
            consumed = drive(_spec(broker, plan, one), Window)
            yield from volume(row_name("consume cold", one.record_bytes, one.partitions), consumed)
            drop_topic(broker, one.topic)


def _spec(broker: Broker, plan: Plan, written: _Written) -> ConsumeSpec:
    return whole_spec(broker, plan, written.topic, written.partitions, written.record_bytes, written.records)


def _write(broker: Broker, plan: Plan, partitions: int, record_bytes: int, volume_bytes: int) -> _Written:
    topic = new_topic(broker, partitions)
    spec = dataclasses.replace(
        produce_spec(broker, plan, topic, partitions, record_bytes),
        warmup_seconds=0.0,
        seconds=plan.write_timeout_seconds,
        at_most_records=volume_bytes // record_bytes,
    )
    records = drive(spec, Window).total_records
    return _Written(topic=topic, partitions=partitions, record_bytes=record_bytes, records=records)


def _seconds(plan: Plan) -> float:
    each = plan.consume_cold_bytes / 150e6 + plan.consume_cold_bytes / 400e6 + 2
    return 15 + each * len(plan.record_sizes) * len(plan.partition_counts)


COLD = Workload(
    name="cold",
    describes="consume after a restart, from the disk: MB/s, broker CPU per GB",
    run=_cold,
    fits=clients_can_use,
    seconds=_seconds,
    limited_by="librdkafka, and the disk: the same files for the same peer, see `broker cores`",
)
