"""What the harness asks of a driver process and what it gets back; both travel as one line of JSON."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSpec:
    """Produce records of one size as fast as `in_flight_bytes` (or `in_flight_records`) allow."""

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    payload: str
    warmup_seconds: float
    seconds: float
    broker_pid: int
    properties: dict[str, str]
    in_flight_bytes: int
    in_flight_records: int
    chunk_bytes: int  # handed to one partition by one call


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeSpec:
    """Consume what a topic holds, `passes` times, after one pass that is not measured."""

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    from_end: bool  # the newest records; otherwise the oldest
    records: int
    warmup_passes: int
    passes: int
    broker_pid: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpec:
    """Produce single records to one partition at a fixed rate and time each acknowledgement."""

    bootstrap: str
    topic: str
    record_bytes: int
    payload: str
    per_second: float
    warmup_seconds: float
    seconds: float
    properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesSpec:
    """Send prebuilt Produce frames over one raw connection, `in_flight_frames` ahead of the replies."""

    host: str
    port: int
    topic: str
    partitions: int
    record_bytes: int
    records_per_frame: int
    payload: str
    in_flight_frames: int
    warmup_seconds: float
    seconds: float
    broker_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened between the two edges of the measured window."""

    seconds: float
    records: int
    payload_bytes: int
    broker_user_seconds: float
    broker_system_seconds: float
    machine_seconds: float  # CPU of the whole machine, the driver's own taken off
    driver_seconds: float
    total_records: int  # with warm-up and the rest after the window


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Times from handing over a record to its acknowledgement, in milliseconds, sorted."""

    milliseconds: list[float]


Spec = ProduceSpec | ConsumeSpec | LatencySpec | FramesSpec
SPECS: dict[str, type[Spec]] = {
    kind.__name__: kind for kind in (ProduceSpec, ConsumeSpec, LatencySpec, FramesSpec)
}
