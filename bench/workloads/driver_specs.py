"""The specs for the drivers of several workloads, with the plan's amounts."""

from bench.brokers import Broker
from bench.plan import Plan
from bench.specs import ConsumeSpec, FramesSpec, ProduceSpec
from bench.workloads.topics import new_topic


def produce_spec(broker: Broker, plan: Plan, topic: str, partitions: int, record_bytes: int) -> ProduceSpec:
    """As many records as the broker accepts in the time, by librdkafka."""
    return ProduceSpec(
        bootstrap=broker.driver_bootstrap,
        topic=topic,
        partitions=partitions,
        record_bytes=record_bytes,
        payload=plan.payload,
        warmup_seconds=plan.warmup_seconds,
        seconds=plan.seconds,
        broker_pids=[broker.pid],
        properties={**plan.produce_properties, **broker.driver_properties},
        in_flight_bytes=plan.in_flight_bytes(partitions),
        in_flight_records=plan.in_flight_records,
        chunk_bytes=plan.chunk_bytes,
        at_most_records=0,
    )


def tail_spec(
    broker: Broker, plan: Plan, topic: str, partitions: int, record_bytes: int, written: int
) -> ConsumeSpec:
    """The newest of `written` records, some of which are in memory, by librdkafka."""
    return ConsumeSpec(
        bootstrap=broker.driver_bootstrap,
        topic=topic,
        partitions=partitions,
        record_bytes=record_bytes,
        from_end=True,
        records=min(written, plan.consume_tail_bytes // record_bytes),
        warmup_passes=1,
        passes=plan.consume_passes,
        broker_pids=[broker.pid],
        properties={**plan.consume_properties, **broker.driver_properties},
    )


def whole_spec(
    broker: Broker, plan: Plan, topic: str, partitions: int, record_bytes: int, written: int
) -> ConsumeSpec:
    """All of `written` records from the first, once, by librdkafka."""
    return ConsumeSpec(
        bootstrap=broker.driver_bootstrap,
        topic=topic,
        partitions=partitions,
        record_bytes=record_bytes,
        from_end=False,
        records=written,
        warmup_passes=0,
        passes=1,
        broker_pids=[broker.pid],
        properties={**plan.consume_properties, **broker.driver_properties},
    )


def frames_spec(
    broker: Broker, plan: Plan, *, record_bytes: int, records: int, in_flight: int, warmup_seconds: float
) -> FramesSpec:
    """Prebuilt Produce frames of `records` records each; for the ceiling, too."""
    return FramesSpec(
        host=broker.host,
        port=broker.port,
        topic=new_topic(broker, plan.partitions) if broker.speaks_kafka else "noop",
        partitions=plan.partitions,
        record_bytes=record_bytes,
        records_per_frame=records,
        payload=plan.payload,
        in_flight_frames=in_flight,
        warmup_seconds=warmup_seconds,
        seconds=plan.seconds,
        broker_pids=[broker.pid],
    )
