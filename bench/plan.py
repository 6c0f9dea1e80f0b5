"""The amounts of a run: sizes, durations, volumes and client settings, stated once."""

from dataclasses import dataclass, field
from typing import Any

_MIB = 1024 * 1024

# librdkafka's own defaults for what shapes a batch, written out so that the report can state them. The
# queue is opened wide: the driver's in-flight limit, not librdkafka's 100,000 records, bounds the run.
PRODUCE_PROPERTIES = {
    "acks": "all",
    "linger.ms": "5",
    "batch.size": "1000000",
    "batch.num.messages": "10000",
    "queue.buffering.max.messages": "0",
    "queue.buffering.max.kbytes": "1048576",
}
SINGLE_RECORD_PROPERTIES = {**PRODUCE_PROPERTIES, "linger.ms": "0", "batch.num.messages": "1"}
# A full queue makes librdkafka pause a partition for a second (fetch.queue.backoff.ms), which would
# measure that pause; everything else is its default. Nothing is ever committed: there is no group.
CONSUME_PROPERTIES = {"enable.auto.commit": "false", "fetch.queue.backoff.ms": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run's amounts. `--quick` shortens times and volumes and keeps every workload."""

    payload: str
    record_sizes: tuple[int, ...] = (100, 1024, 10240)
    partition_counts: tuple[int, ...] = (1, 6, 100)  # of the workloads that go through several
    partitions: int = 6  # of the others
    warmup_seconds: float = 2.0  # of each measurement
    seconds: float = 5.0
    jit_warmup_seconds: float = 6.0  # once after a start, before the first workload that counts
    in_flight_records: int = 2_000_000
    chunk_bytes: int = 64 * 1024
    consume_tail_bytes: int = 512 * _MIB
    consume_cold_bytes: int = 512 * _MIB
    consume_passes: int = 3
    write_timeout_seconds: float = 120.0  # of records that are written only to be read
    tiny_record_bytes: int = 100
    tiny_in_flight: int = 20_000
    frame_bytes: int = _MIB
    frames_in_flight: int = 64
    fetch_connections: int = 4
    fetch_requests_ahead: int = 2  # on each connection
    latency_per_second: float = 20.0
    latency_seconds: float = 20.0
    limited_batch_bytes: tuple[int, ...] = (16 * 1024, 128 * 1024)  # Java's batch.size, and one that is tuned
    limited_partitions: tuple[int, ...] = (1, 6)
    limited_lingers_ms: tuple[int, ...] = (0, 5)
    settle_seconds: float = 5.0  # after a start, before a broker counts as idle
    rest_seconds: float = 5.0
    standing_partitions: tuple[int, ...] = (0, 1_000, 10_000)
    startup_repeats: int = 1
    connections: int = 1_000
    connection_partitions: int = 10_000  # of topics that exist meanwhile
    partitions_of_a_poll: int = 10
    poll_waits_ms: tuple[int, ...] = (30_000, 500)
    poll_seconds: float = 10.0
    group_members: int = 100
    group_rebalances: int = 10
    consumer_members: int = 1_000
    consumer_partitions: int = 1_000
    consumer_interval_seconds: float = 1.0  # between a member's heartbeats while the group assigns
    consumer_heartbeats_per_minute: int = 100_000
    share_members: int = 20
    share_records: int = 4_000_000
    share_batch_records: int = 100  # of a batch in the log
    share_max_records: int = 500  # of a fetch: max.poll.records of Java's consumer
    transaction_commit_ms: int = 100
    transaction_producers: int = 200
    transaction_source_bytes: int = 128 * _MIB
    cluster_brokers: tuple[int, ...] = (1, 3)
    cluster_partitions: int = 12
    durable_rates: tuple[float, ...] = (20.0, 100.0, 1_000.0)
    durable_intervals_ms: tuple[int, ...] = (0, 500)
    durable_seconds: float = 20.0
    durable_many_partitions: int = 50
    produce_properties: dict[str, str] = field(default_factory=lambda: dict(PRODUCE_PROPERTIES))
    single_record_properties: dict[str, str] = field(default_factory=lambda: dict(SINGLE_RECORD_PROPERTIES))
    consume_properties: dict[str, str] = field(default_factory=lambda: dict(CONSUME_PROPERTIES))

    def in_flight_bytes(self, partitions: int) -> int:
        """A producer's limit in flight: enough for every partition's buffer, less than librdkafka's own limit."""
        return max(64 * _MIB, min(256 * _MIB, partitions * 4 * _MIB))


def quick_plan(**changes: Any) -> Plan:
    """Every workload, for a first impression: too short for a decision."""
    return Plan(
        **{
            "warmup_seconds": 1.0,
            "seconds": 2.0,
            "jit_warmup_seconds": 3.0,
            "partition_counts": (6,),
            "consume_tail_bytes": 256 * _MIB,
            "consume_cold_bytes": 128 * _MIB,
            "consume_passes": 2,
            "latency_seconds": 6.0,
            "settle_seconds": 2.0,
            "rest_seconds": 3.0,
            "standing_partitions": (0, 1_000),
            "connections": 200,
            "connection_partitions": 1_000,
            "poll_seconds": 3.0,
            "group_members": 20,
            "group_rebalances": 3,
            "consumer_members": 200,
            "consumer_partitions": 200,
            "share_records": 2_000_000,
            "durable_rates": (20.0, 100.0),
            "durable_intervals_ms": (0,),
            "durable_seconds": 8.0,
            "durable_many_partitions": 10,
            **changes,
        }
    )
