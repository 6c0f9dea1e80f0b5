"""Requests to a driver process and its results; both travel as one line of JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSpec:
    """Produce records of one size as fast as `in_flight_bytes` (or `in_flight_records`) allow.

    The window ends early when `at_most_records` have been acknowledged in all; 0: only by time.
    """

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    payload: str
    warmup_seconds: float
    seconds: float
    broker_pids: list[int]
    properties: dict[str, str]
    in_flight_bytes: int
    in_flight_records: int
    chunk_bytes: int  # passed to one partition by one call
    at_most_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeSpec:
    """Consume a topic `passes` times, after one pass that is not measured."""

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    from_end: bool  # the newest records; otherwise the oldest
    records: int
    warmup_passes: int
    passes: int
    broker_pids: list[int]
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
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFramesSpec:
    """Fetch a topic by prebuilt frames over raw connections, again and again, and drop the bytes.

    Partition n is read from `start_offsets[n]` on; all of them together up to `volume_bytes`, and then again.
    `requests_ahead`: on each connection.
    """

    host: str
    port: int
    topic: str
    start_offsets: list[int]
    volume_bytes: int
    fetch_bytes: int
    connections: int
    requests_ahead: int
    warmup_seconds: float
    seconds: float
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedSpec:
    """Produce one record per request at a fixed rate over raw connections, independently of replies.

    A consumer follows all partitions meanwhile, and must get every record.
    """

    host: str
    port: int
    topic: str
    partitions: int
    record_bytes: int
    payload: str
    per_second: float
    connections: int
    warmup_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatSpec:
    """Send one prebuilt request (its frame in hexadecimal) again and again over one raw connection."""

    host: str
    port: int
    frame: str
    in_flight: int
    warmup_seconds: float
    seconds: float
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PollsSpec:
    """Keep connections open: idle, or each with a Fetch at the end of some empty partitions.

    Connection n polls `partitions_each` partitions from the n-th lot on; lots go through `topics`, each of which
    has `topic_partitions`. `max_wait_ms`: of each Fetch; 0: nothing is asked.
    """

    host: str
    port: int
    connections: int
    topics: list[str]
    topic_partitions: int
    partitions_each: int
    max_wait_ms: int
    seconds: float
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySpec:
    """Read a topic again and again, and write it to another one in transactions of `commit_ms` each.

    `ends`: the end offset of each partition of the source.
    """

    bootstrap: str
    source: str
    target: str
    ends: list[int]
    record_bytes: int
    commit_ms: int
    warmup_seconds: float
    seconds: float
    broker_pids: list[int]
    producer_properties: dict[str, str]
    consumer_properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsSpec:
    """Transactions of one record each, over raw connections: one producer each, its transactions in turn."""

    host: str
    port: int
    topic: str
    partitions: int
    producers: int
    record_bytes: int
    payload: str
    warmup_seconds: float
    seconds: float
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSpec:
    """A consumer group (KIP-848) whose members join at once, each over a raw connection; then their heartbeats.

    `interval_seconds`: between a member's heartbeats while the group assigns. Then heartbeats are sent as fast as
    they are answered, one of each member at a time, and after that `paced_per_second`.
    """

    host: str
    port: int
    group: str
    topic: str
    partitions: int
    members: int
    interval_seconds: float
    join_timeout_seconds: float
    paced_per_second: float
    warmup_seconds: float
    settle_seconds: float
    seconds: float
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSpec:
    """A share group (KIP-932) that reads a topic of `records`: raw members fetch and acknowledge in turn.

    `releases_every_other`: record, when it is delivered first. The window ends early when nearly all is accepted.
    """

    host: str
    port: int
    group: str
    topic: str
    partitions: int
    records: int
    record_bytes: int
    members: int
    max_records: int
    releases_every_other: bool
    warmup_seconds: float
    seconds: float
    broker_pids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The measurements between the two edges of the window."""

    seconds: float
    records: int
    payload_bytes: int
    broker_user_seconds: float
    broker_system_seconds: float
    machine_seconds: float  # CPU of the whole machine, the driver's own subtracted
    driver_seconds: float
    total_records: int  # with warm-up and the rest after the window

    @property
    def broker_seconds(self) -> float:
        """CPU of the broker's processes."""
        return self.broker_user_seconds + self.broker_system_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Times from handing over a record (or from when it was due) to its acknowledgement, sorted."""

    milliseconds: list[float]
    total_records: int  # with warm-up


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """The results of one request sent again and again. `milliseconds`: of each in the window, sorted."""

    window: Window  # its records are replies
    milliseconds: list[float]
    reply_bytes: int  # of one reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """Open connections for a while. Resident memory of the first broker, without and with them."""

    window: Window  # its records are replies
    resident_bytes_before: int
    resident_bytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transacted:
    """Transactions. `milliseconds`: of each in the window, or of its end, sorted.

    `asked_again`: how often a request was too early for the end of the transaction before.
    """

    window: Window  # its records are those copied, or transactions
    milliseconds: list[float]
    asked_again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBeats:
    """A consumer group. `milliseconds`: of each paced heartbeat, from when it was due, sorted."""

    joined: Window  # its records are members; from the first request until all have their targets
    beats_of_joins: int  # replies until then
    fast: Window  # its records are heartbeats
    paced: Window
    milliseconds: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A share group. `milliseconds`: of each ShareAcknowledge, sorted."""

    window: Window  # its records are those that were accepted
    acknowledgements: int  # requests in the window
    milliseconds: list[float]


Spec = (
    ProduceSpec
    | ConsumeSpec
    | LatencySpec
    | FramesSpec
    | FetchFramesSpec
    | PacedSpec
    | RepeatSpec
    | PollsSpec
    | CopySpec
    | TransactionsSpec
    | ConsumerGroupSpec
    | ShareGroupSpec
)
Result = Window | Latencies | Repeated | Polled | Transacted | GroupBeats | Shared
SPECS: dict[str, type[Spec]] = {
    kind.__name__: kind
    for kind in (
        ProduceSpec, ConsumeSpec, LatencySpec, FramesSpec, FetchFramesSpec, PacedSpec, RepeatSpec, PollsSpec,
        CopySpec, TransactionsSpec, ConsumerGroupSpec, ShareGroupSpec,
    )
}  # fmt: skip
_RESULTS: dict[str, type[Result]] = {
    kind.__name__: kind for kind in (Window, Latencies, Repeated, Polled, Transacted, GroupBeats, Shared)
}


def to_json(value: Spec | Result) -> str:
    """The JSON, one line."""
    return json.dumps({"kind": type(value).__name__, "fields": asdict(value)})


def spec_from_json(line: str) -> Spec:
    """The inverse of `to_json`. Raises KeyError, TypeError for an invalid spec."""
    decoded = json.loads(line)
    return SPECS[decoded["kind"]](**decoded["fields"])


def result_from_json(line: str) -> Result:
    """The inverse of `to_json`. Raises KeyError, TypeError for an invalid result."""
    decoded = json.loads(line)
    fields: dict[str, Any] = {
        name: Window(**value) if isinstance(value, dict) else value
        for name, value in decoded["fields"].items()
    }
    return _RESULTS[decoded["kind"]](**fields)
