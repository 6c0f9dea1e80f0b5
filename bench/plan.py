"""How much is measured: sizes, durations, volumes and client settings, stated once."""

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
    partitions: int = 6
    warmup_seconds: float = 2.0  # of each workload
    seconds: float = 5.0
    jit_warmup_seconds: float = 6.0  # once after a start, before the first workload that counts
    in_flight_bytes: int = 64 * _MIB
    in_flight_records: int = 1_000_000
    chunk_bytes: int = 64 * 1024
    consume_tail_bytes: int = 512 * _MIB
    consume_begin_bytes: int = 1024 * _MIB
    consume_passes: int = 3
    tiny_record_bytes: int = 100
    tiny_in_flight: int = 20_000
    large_frame_bytes: int = _MIB
    large_frames_in_flight: int = 64
    latency_per_second: float = 20.0
    latency_seconds: float = 20.0
    rest_seconds: float = 5.0
    startup_partitions: tuple[int, ...] = (0, 1_000)
    startup_repeats: int = 3
    produce_properties: dict[str, str] = field(default_factory=lambda: dict(PRODUCE_PROPERTIES))
    single_record_properties: dict[str, str] = field(default_factory=lambda: dict(SINGLE_RECORD_PROPERTIES))
    consume_properties: dict[str, str] = field(default_factory=lambda: dict(CONSUME_PROPERTIES))


def quick_plan(**changes: Any) -> Plan:
    """A few minutes for all peers: good for a direction, too short for a decision."""
    return Plan(
        **changes,
        warmup_seconds=1.0,
        seconds=2.0,
        jit_warmup_seconds=3.0,
        consume_tail_bytes=256 * _MIB,
        consume_begin_bytes=512 * _MIB,
        consume_passes=2,
        latency_seconds=6.0,
        rest_seconds=3.0,
        startup_repeats=1,
    )
