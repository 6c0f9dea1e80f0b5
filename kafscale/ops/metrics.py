"""The broker's counters: plain integers on slotted objects, read only at a scrape.

A caller fetches its object once (`metrics.topic("orders")`) and then adds to its attributes, which costs
what an attribute costs. Only the event loop's thread writes; the scrape reads from another thread and may
see one counter of an event before the next.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafscale.ops import client_metric_families
from kafscale.ops import metric_families as families
from kafscale.ops.client_metrics import AuthenticationMetrics as AuthenticationMetrics
from kafscale.ops.client_metrics import ConnectionMetrics as ConnectionMetrics
from kafscale.ops.client_metrics import RefusalMetrics as RefusalMetrics
from kafscale.ops.client_metrics import ThrottleMetrics as ThrottleMetrics
from kafscale.ops.compaction_metrics import CompactionMetrics as CompactionMetrics
from kafscale.ops.compaction_metrics import CompactionOutcome as CompactionOutcome
from kafscale.ops.counted import counted, counted_by, observed, part
from kafscale.ops.histogram import Histogram as Histogram
from kafscale.ops.item_failures import BackgroundWork
from kafscale.ops.journal_metrics import JournalMetrics as JournalMetrics
from kafscale.ops.merge_metrics import MergeMetrics as MergeMetrics
from kafscale.ops.merge_metrics import MergeOutcome as MergeOutcome
from kafscale.ops.metric_families import Family, MetricType
from kafscale.ops.request_costs import StoreRequests, TopicCosts
from kafscale.ops.request_stages import FetchStages, ProduceStages
from kafscale.ops.share_metrics import ShareMetrics as ShareMetrics
from kafscale.ops.transaction_metrics import TransactionMetrics as TransactionMetrics
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quota_kinds import QuotaKind

MAX_TOPICS: Final = 10_000
"""Topics with series of their own: a client that creates topics must not fill what scrapes them."""

OTHER_TOPICS: Final = "(others)"
"""Stands for the topics beyond `MAX_TOPICS`; no topic can have this name."""

NO_TOPIC: Final = "(none)"
"""Stands for the costs of requests that serve no topic; no topic can have this name."""

ReadSeries = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Gives the values of a gauge's labels, in their order, and the sample."""


class FlushOutcome(StrEnum):
    """The outcome of a flush. `FENCED`: another broker leads. `FAILED`: nothing of it was acknowledged."""

    PUBLISHED = "published"
    FENCED = "fenced"
    FAILED = "failed"


class ProbeOutcome(StrEnum):
    """The outcome of a call that was made only to see how the object store is."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class LeadershipChange(StrEnum):
    """How this broker's leadership of a partition began or ended."""

    GAINED = "gained"
    HANDED_OVER = "handed_over"
    LOST = "lost"


class ExpiryReason(StrEnum):
    """The limit by which retention removed a segment."""

    SIZE = "size"
    TIME = "time"


class LossOutcome(StrEnum):
    """The outcome for a segment whose object was found missing."""

    DROPPED = "dropped"
    KEPT = "kept"


class FrameRefusal(StrEnum):
    """The reason why a request ended its connection."""

    BAD_LENGTH = "bad_length"
    TOO_LARGE = "too_large"
    UNSUPPORTED_API = "unsupported_api"
    MALFORMED = "malformed"
    TOO_SLOW = "too_slow"
    TLS = "tls"
    UNAUTHENTICATED = "unauthenticated"
    SESSION_EXPIRED = "session_expired"


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


@dataclass(slots=True, eq=False)
class TopicMetrics:
    """One topic's counters: add to the attributes. Bytes are those of whole record batches."""

    bytes_in: int = counted(families.TOPIC_BYTES_IN)
    records_in: int = counted(families.TOPIC_RECORDS_IN)
    batches_in: int = counted(families.TOPIC_BATCHES_IN)
    bytes_out: int = counted(families.TOPIC_BYTES_OUT)
    records_out: int = counted(families.TOPIC_RECORDS_OUT)
    flushes: int = counted(families.TOPIC_FLUSHES)


@dataclass(slots=True, eq=False)
class ApiMetrics:
    """One API's requests and the error codes it answered."""

    duration: Histogram = observed(families.REQUEST_DURATION)
    errors: Counter[int] = counted_by(families.REQUEST_ERRORS, shown=_error_name)

    def observe(self, seconds: float, error_code: int = ErrorCode.NONE) -> None:
        """Count one answered request and, unless it is `NONE`, its error code."""
        self.duration.observe(seconds)
        if error_code:
            self.errors[error_code] += 1


@dataclass(slots=True, eq=False)
class FlushMetrics:
    """All flushes of this broker."""

    size: Histogram = observed(families.FLUSH_BYTES)
    duration: Histogram = observed(families.FLUSH_DURATION)
    outcomes: Counter[str] = counted_by(families.FLUSHES, FlushOutcome)

    def observe(self, size_bytes: int, seconds: float, outcome: FlushOutcome) -> None:
        """Count one finished flush."""
        self.size.observe(size_bytes)
        self.duration.observe(seconds)
        self.outcomes[outcome] += 1


@dataclass(slots=True, eq=False)
class GroupMetrics:
    """The consumer groups that this broker coordinates. `commits`: committed offsets, one per partition."""

    classic_rebalance_duration: Histogram = observed(families.GROUP_REBALANCE_DURATION, "classic")
    consumer_rebalance_duration: Histogram = observed(families.GROUP_REBALANCE_DURATION, "consumer")
    assignment_duration: Histogram = observed(families.GROUP_ASSIGNMENT_DURATION)
    commit_duration: Histogram = observed(families.OFFSET_COMMIT_DURATION)
    commits: int = counted(families.OFFSET_COMMITS)
    share_partitions_refused: int = counted(families.SHARE_PARTITIONS_REFUSED)

    def rebalanced(self, group_type: str, seconds: float) -> None:
        """Count a rebalance that is complete, of a `classic` or a `consumer` group."""
        is_classic = group_type == "classic"
        (self.classic_rebalance_duration if is_classic else self.consumer_rebalance_duration).observe(seconds)


@dataclass(slots=True, eq=False)
class OperationMetrics:
    """One operation of a store: its calls, and its errors by name."""

    duration: Histogram
    errors: Counter[str]

    def observe(self, seconds: float, error: BaseException | None = None) -> None:
        """Count one finished call; an error is counted under its class's name.

        A cancelled call, as the slower one of two for one answer, is no error.
        """
        self.duration.observe(seconds)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.errors[type(error).__name__] += 1

    @contextmanager
    def measure(self, *answers: type[Exception]) -> Iterator[None]:
        """Count the block as one call. What it raises passes through; `answers` are not counted as errors."""
        started = time.perf_counter()
        try:
            yield
        except BaseException as error:
            self.observe(time.perf_counter() - started, None if isinstance(error, answers) else error)
            raise
        self.observe(time.perf_counter() - started)


@dataclass(slots=True, eq=False)
class ObjectStoreMetrics(OperationMetrics):
    """One of `ObjectStore`'s methods, with the bytes that it moved."""

    duration: Histogram = observed(families.OBJECT_STORE_DURATION)
    errors: Counter[str] = counted_by(families.OBJECT_STORE_ERRORS)
    bytes: int = counted(families.OBJECT_STORE_BYTES)


@dataclass(slots=True, eq=False)
class MetadataStoreMetrics(OperationMetrics):
    """One of `MetadataStore`'s methods."""

    duration: Histogram = observed(families.METADATA_STORE_DURATION)
    errors: Counter[str] = counted_by(families.METADATA_STORE_ERRORS)


@dataclass(slots=True, eq=False)
class StoreReadMetrics:
    """The reads of segments and indexes that one of two stores serves: add to the attributes."""

    reads: int = counted(families.SEGMENT_READS)
    bytes: int = counted(families.SEGMENT_READ_BYTES)
    misses: int = counted(families.SEGMENT_READ_MISSES)
    passed_over: int = counted(families.SEGMENT_READS_PASSED_OVER)
    errors: Counter[str] = counted_by(families.SEGMENT_READ_ERRORS)


@dataclass(slots=True, eq=False)
class CacheMetrics:
    """One cache's reads and evictions: add to the attributes."""

    hits: int = counted(families.CACHE_HITS)
    misses: int = counted(families.CACHE_MISSES)
    evictions: int = counted(families.CACHE_EVICTIONS)


@dataclass(slots=True, eq=False)
class DecompressionMetrics:
    """Batches that were decompressed for clients without the codec; `bytes`: of them after it."""

    batches: int = counted(families.DECOMPRESSED_BATCHES)
    bytes: int = counted(families.DECOMPRESSED_BYTES)


@dataclass(slots=True, eq=False, kw_only=True)
class Metrics:
    """All of one broker's metrics. Names and meanings: `metric_families`; text form: `metric_export`."""

    broker_id: int = 0
    version: str = "unknown"
    topics: dict[str, TopicMetrics] = part(dict)
    apis: dict[str, ApiMetrics] = part(dict)
    object_store_operations: dict[str, ObjectStoreMetrics] = part(dict)
    store_requests: dict[str, StoreRequests] = part(dict)
    topic_costs: dict[str, TopicCosts] = part(dict)
    metadata_store_operations: dict[str, MetadataStoreMetrics] = part(dict)
    segment_stores: dict[str, StoreReadMetrics] = part(dict)
    caches: dict[str, CacheMetrics] = part(dict)
    fetch_stages: FetchStages = part(FetchStages)
    produce_stages: ProduceStages = part(ProduceStages)
    flushes: FlushMetrics = part(FlushMetrics)
    journal: JournalMetrics = part(JournalMetrics)
    groups: GroupMetrics = part(GroupMetrics)
    transactions: TransactionMetrics = part(TransactionMetrics)
    shares: ShareMetrics = part(ShareMetrics)
    merges: MergeMetrics = part(MergeMetrics)
    compactions: CompactionMetrics = part(CompactionMetrics)
    decompression: DecompressionMetrics = part(DecompressionMetrics)
    connections: ConnectionMetrics = part(ConnectionMetrics)
    authentications: dict[str, AuthenticationMetrics] = part(dict)
    authorization_refusals: dict[str, RefusalMetrics] = part(dict)
    throttles: dict[str, ThrottleMetrics] = part(lambda: {kind: ThrottleMetrics() for kind in QuotaKind})
    frames_refused: Counter[str] = counted_by(client_metric_families.FRAMES_REFUSED, FrameRefusal)
    tls_files_failed: int = counted(client_metric_families.TLS_FILES_FAILED)
    object_store_probes: Counter[str] = counted_by(families.OBJECT_STORE_PROBES, ProbeOutcome)
    leadership_changes: Counter[str] = counted_by(families.LEADERSHIP_CHANGES, LeadershipChange)
    leases_ended: int = counted(families.LEASES_ENDED)
    background_failures: Counter[str] = counted_by(families.BACKGROUND_FAILURES, BackgroundWork)
    garbage_removed: int = counted(families.GARBAGE_REMOVED)
    segments_expired: Counter[str] = counted_by(families.SEGMENTS_EXPIRED, ExpiryReason)
    bytes_expired: Counter[str] = counted_by(families.BYTES_EXPIRED, ExpiryReason)
    segments_lost: Counter[str] = counted_by(families.SEGMENTS_LOST, LossOutcome)
    index_rebuilds: int = counted(families.INDEX_REBUILDS)
    readings: dict[str, dict[tuple[str, ...], Callable[[], float]]] = field(default_factory=dict)
    series_readings: dict[str, ReadSeries] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gauge(families.BROKER_INFO, lambda: 1, broker_id=str(self.broker_id), version=self.version)

    def topic(self, name: str) -> TopicMetrics:
        """The topic's counters, created at first use. Name only topics that exist: each is exported.

        Beyond `MAX_TOPICS` they are those of `OTHER_TOPICS`, so that sums over all topics stay right.
        """
        return self.topics.get(name) or self._new_topic(name)

    def _new_topic(self, name: str) -> TopicMetrics:
        key = name if len(self.topics) < MAX_TOPICS else OTHER_TOPICS
        return self.topics.setdefault(key, TopicMetrics())

    def flushed(self, topic: str) -> None:
        """Count a published flush; one of a topic that was deleted meanwhile does not export it again."""
        counters = self.topics.get(topic) or self.topics.get(OTHER_TOPICS)
        if counters is not None:
            counters.flushes += 1

    def forget_topic(self, name: str) -> None:
        """Export a deleted topic no longer; no error when it was never counted."""
        self.topics.pop(name, None)
        self.topic_costs.pop(name, None)

    def costs(self, topic: str) -> TopicCosts:
        """The costs of a topic's requests, or of `NO_TOPIC`: created at first use, and bounded as for `topic`."""
        return self.topic_costs.get(topic) or self._new_costs(topic)

    def _new_costs(self, topic: str) -> TopicCosts:
        key = topic if len(self.topic_costs) < MAX_TOPICS or topic == NO_TOPIC else OTHER_TOPICS
        return self.topic_costs.setdefault(key, TopicCosts())

    def api(self, api: ApiKey) -> ApiMetrics:
        """The API's requests, created at first use and labelled with Kafka's name."""
        return self.apis.get(api.name) or self.apis.setdefault(api.name, ApiMetrics())

    def object_store(self, operation: str) -> ObjectStoreMetrics:
        """The calls of one of `ObjectStore`'s methods."""
        return self.object_store_operations.setdefault(operation, ObjectStoreMetrics())

    def requests(self, operation: str) -> StoreRequests:
        """The requests of one operation of a bucket, by S3's name."""
        return self.store_requests.setdefault(operation, StoreRequests())

    def lease_ended(self) -> None:
        """The broker's lease has ended although the broker runs."""
        self.leases_ended += 1

    def metadata_store(self, operation: str) -> MetadataStoreMetrics:
        """The calls of one of `MetadataStore`'s methods."""
        return self.metadata_store_operations.setdefault(operation, MetadataStoreMetrics())

    def store_reads(self, store: str) -> StoreReadMetrics:
        """The reads of segments from one store: `primary` or `replica`."""
        return self.segment_stores.setdefault(store, StoreReadMetrics())

    def cache(self, name: str) -> CacheMetrics:
        """The reads of one cache: `segment` or `index`."""
        return self.caches.setdefault(name, CacheMetrics())

    def authentications_at(self, listener: str) -> AuthenticationMetrics:
        """Those of a listener, created at first use."""
        return self.authentications.setdefault(listener, AuthenticationMetrics())

    def throttle(self, kind: QuotaKind) -> ThrottleMetrics:
        """The clients that have to wait for a quota of this kind."""
        return self.throttles[kind]

    def frame_refused(self, reason: FrameRefusal) -> None:
        """Count a request that ended its connection."""
        self.frames_refused[reason] += 1

    def count_tls_failure(self) -> None:
        """Count changed TLS files that were of no use."""
        self.tls_files_failed += 1

    def authorization_refused(self, resource_type: str, operation: str) -> None:
        """Count something that access rules refused."""
        of_type = self.authorization_refusals.setdefault(resource_type, RefusalMetrics())
        of_type.operations[operation] += 1

    def gauge(self, family: Family, read: Callable[[], float], **labels: str) -> None:
        """Export what `read` returns at each scrape, in another thread: it may only look at plain values.

        Raises `ValueError` unless `family` is a gauge of the table and `labels` are exactly its labels.
        """
        _check_gauge(family)
        if set(labels) != set(family.labels):
            raise ValueError(f"{family.name} has the labels {family.labels}, not {tuple(labels)}")
        self.readings.setdefault(family.name, {})[tuple(labels[label] for label in family.labels)] = read

    def gauge_series(self, family: Family, read: ReadSeries) -> None:
        """Export the samples that `read` gives at each scrape, in another thread, as for `gauge`.

        For labels that come and go. Raises `ValueError` unless `family` is a gauge of the table.
        """
        _check_gauge(family)
        self.series_readings[family.name] = read


_TABLE: Final = {family.name: family for family in families.FAMILIES}


def _check_gauge(family: Family) -> None:
    if family.type is not MetricType.GAUGE or family != _TABLE.get(family.name):
        raise ValueError(f"{family.name} is not a gauge of metric_families.FAMILIES")
