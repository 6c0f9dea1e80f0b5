"""What the broker counts: plain integers on slotted objects, read only when somebody scrapes them.

A caller fetches its object once (`metrics.topic("orders")`) and then adds to its attributes, which costs
what an attribute costs. Only the event loop's thread writes; the scrape reads from another thread and may
see one counter of an event before the next.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from kafscale.ops import metric_families
from kafscale.ops.histogram import DURATION_BOUNDS_SEC, Histogram
from kafscale.ops.item_failures import BackgroundWork
from kafscale.ops.metric_families import Family, MetricType
from kafscale.ops.request_stages import FetchStages, ProduceStages
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode

MAX_TOPICS: Final = 10_000
"""Topics with series of their own: a client that creates topics must not fill what scrapes them."""

OTHER_TOPICS: Final = "(others)"
"""Stands for the topics beyond `MAX_TOPICS`; no topic can have this name."""

SIZE_BOUNDS_BYTES = tuple(float(2**exponent) for exponent in range(10, 31, 2))

ReadSeries = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Gives the values of a gauge's labels, in their order, and the sample."""


class FlushOutcome(StrEnum):
    """What became of a flush. `FENCED`: another broker leads. `FAILED`: given up, nobody was acknowledged."""

    PUBLISHED = "published"
    FENCED = "fenced"
    FAILED = "failed"


class ProbeOutcome(StrEnum):
    """What became of a call that was made only to see how the object store is."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class LeadershipChange(StrEnum):
    """How a partition came to be led by this broker, or ceased to be."""

    GAINED = "gained"
    HANDED_OVER = "handed_over"
    LOST = "lost"


class ExpiryReason(StrEnum):
    """By which limit retention let a segment go."""

    SIZE = "size"
    TIME = "time"


class LossOutcome(StrEnum):
    """What became of a segment whose object was found missing."""

    DROPPED = "dropped"
    KEPT = "kept"


class FrameRefusal(StrEnum):
    """Why a request ended its connection."""

    BAD_LENGTH = "bad_length"
    TOO_LARGE = "too_large"
    UNSUPPORTED_API = "unsupported_api"
    MALFORMED = "malformed"
    TOO_SLOW = "too_slow"


class TopicMetrics:
    """One topic's counters: add to the attributes. Bytes are those of whole record batches."""

    __slots__ = ("batches_in", "bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.records_in = 0
        self.batches_in = 0
        self.bytes_out = 0
        self.records_out = 0


class ApiMetrics:
    """One API's requests and the error codes it answered."""

    __slots__ = ("duration", "errors")

    def __init__(self) -> None:
        self.duration = Histogram(DURATION_BOUNDS_SEC)
        self.errors: Counter[int] = Counter()

    def observe(self, seconds: float, error_code: int = ErrorCode.NONE) -> None:
        """Count one answered request and, unless it is `NONE`, its error code."""
        self.duration.observe(seconds)
        if error_code:
            self.errors[error_code] += 1

    def count_error(self, error_code: int) -> None:
        """Count one more error code of a reply that carries several; `NONE` is not counted."""
        if error_code:
            self.errors[error_code] += 1


class FlushMetrics:
    """All flushes of this broker."""

    __slots__ = ("duration", "outcomes", "size")

    def __init__(self) -> None:
        self.size = Histogram(SIZE_BOUNDS_BYTES)
        self.duration = Histogram(DURATION_BOUNDS_SEC)
        self.outcomes: Counter[str] = Counter(dict.fromkeys(FlushOutcome, 0))

    def observe(self, size_bytes: int, seconds: float, outcome: FlushOutcome) -> None:
        """Count one finished flush."""
        self.size.observe(size_bytes)
        self.duration.observe(seconds)
        self.outcomes[outcome] += 1


class GroupMetrics:
    """The consumer groups that this broker coordinates. `commits`: committed offsets, one per partition."""

    __slots__ = ("commit_duration", "commits", "rebalance_duration")

    def __init__(self) -> None:
        self.rebalance_duration = Histogram(DURATION_BOUNDS_SEC)
        self.commit_duration = Histogram(DURATION_BOUNDS_SEC)
        self.commits = 0


class OperationMetrics:
    """One operation of a store: its calls, its errors by name, and the bytes it moved."""

    __slots__ = ("bytes", "duration", "errors")

    def __init__(self) -> None:
        self.duration = Histogram(DURATION_BOUNDS_SEC)
        self.errors: Counter[str] = Counter()
        self.bytes = 0

    def observe(self, seconds: float, error: BaseException | None = None) -> None:
        """Count one finished call; an error is counted under its class's name.

        A call that nobody waits for any more, as the slower one of two for one answer, is no error.
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


class StoreReadMetrics:
    """The reads of segments and indexes that one of two stores is asked for: add to the attributes."""

    __slots__ = ("bytes", "errors", "misses", "passed_over", "reads")

    def __init__(self) -> None:
        self.reads = 0
        self.bytes = 0
        self.misses = 0
        self.passed_over = 0
        self.errors: Counter[str] = Counter()


class CacheMetrics:
    """One cache's reads, and what it dropped to make room: add to the attributes."""

    __slots__ = ("evictions", "hits", "misses")

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.evictions = 0


class MergeOutcome(StrEnum):
    """What became of a merge. `GIVEN_UP`: the partition is led elsewhere, or the segments expired."""

    PUBLISHED = "published"
    GIVEN_UP = "given_up"
    FAILED = "failed"


class MergeMetrics:
    """Segments that were rewritten as larger ones."""

    __slots__ = ("bytes", "outcomes", "sources")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(MergeOutcome, 0))
        self.sources = 0
        self.bytes = 0

    def count(self, outcome: MergeOutcome) -> None:
        """Count a merge that did not come to its end."""
        self.outcomes[outcome] += 1

    def published(self, sources: int, size_bytes: int) -> None:
        """Count a merge of so many segments, none when they expired meanwhile."""
        self.outcomes[MergeOutcome.PUBLISHED if sources else MergeOutcome.GIVEN_UP] += 1
        self.sources += sources
        self.bytes += size_bytes


class DecompressionMetrics:
    """Batches that were decompressed for clients without the codec; `bytes`: of them after it."""

    __slots__ = ("batches", "bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.bytes = 0


class ConnectionMetrics:
    """Kafka clients: add to the attributes, and take from `current` when one leaves."""

    __slots__ = ("accepted", "current", "rejected")

    def __init__(self) -> None:
        self.current = 0
        self.accepted = 0
        self.rejected = 0


class Metrics:
    """All of one broker's metrics. Names and meanings: `metric_families`; text form: `metric_export`."""

    def __init__(self, *, broker_id: int = 0, version: str = "unknown") -> None:
        self.broker_id = broker_id
        self.version = version
        self.topics: dict[str, TopicMetrics] = {}
        self.apis: dict[str, ApiMetrics] = {}
        self.object_store_operations: dict[str, OperationMetrics] = {}
        self.metadata_store_operations: dict[str, OperationMetrics] = {}
        self.segment_stores: dict[str, StoreReadMetrics] = {}
        self.caches: dict[str, CacheMetrics] = {}
        self.fetch_stages = FetchStages()
        self.produce_stages = ProduceStages()
        self.flushes = FlushMetrics()
        self.groups = GroupMetrics()
        self.merges = MergeMetrics()
        self.decompression = DecompressionMetrics()
        self.connections = ConnectionMetrics()
        self.frames_refused: Counter[str] = Counter(dict.fromkeys(FrameRefusal, 0))
        self.object_store_probes: Counter[str] = Counter(dict.fromkeys(ProbeOutcome, 0))
        self.leadership_changes: Counter[str] = Counter(dict.fromkeys(LeadershipChange, 0))
        self.leases_ended = 0
        self.background_failures: Counter[str] = Counter(dict.fromkeys(BackgroundWork, 0))
        self.garbage_removed = 0
        self.segments_expired: Counter[str] = Counter(dict.fromkeys(ExpiryReason, 0))
        self.bytes_expired: Counter[str] = Counter(dict.fromkeys(ExpiryReason, 0))
        self.segments_lost: Counter[str] = Counter(dict.fromkeys(LossOutcome, 0))
        self.index_rebuilds = 0
        self.readings: dict[str, dict[tuple[str, ...], Callable[[], float]]] = {}
        self.series_readings: dict[str, ReadSeries] = {}

    def topic(self, name: str) -> TopicMetrics:
        """The topic's counters, created at first use. Name only topics that exist: each is exported.

        Beyond `MAX_TOPICS` they are those of `OTHER_TOPICS`, so that sums over all topics stay right.
        """
        return self.topics.get(name) or self._new_topic(name)

    def _new_topic(self, name: str) -> TopicMetrics:
        key = name if len(self.topics) < MAX_TOPICS else OTHER_TOPICS
        return self.topics.setdefault(key, TopicMetrics())

    def forget_topic(self, name: str) -> None:
        """Export a deleted topic no longer; no error when it was never counted."""
        self.topics.pop(name, None)

    def api(self, api: ApiKey) -> ApiMetrics:
        """The API's requests, created at first use and labelled with Kafka's name."""
        return self.apis.get(api.name) or self.apis.setdefault(api.name, ApiMetrics())

    def object_store(self, operation: str) -> OperationMetrics:
        """The calls of one of `ObjectStore`'s methods."""
        return self.object_store_operations.setdefault(operation, OperationMetrics())

    def lease_ended(self) -> None:
        """The broker's lease has ended although the broker runs."""
        self.leases_ended += 1

    def metadata_store(self, operation: str) -> OperationMetrics:
        """The calls of one of `MetadataStore`'s methods."""
        return self.metadata_store_operations.setdefault(operation, OperationMetrics())

    def store_reads(self, store: str) -> StoreReadMetrics:
        """The reads of segments from one store: `primary` or `replica`."""
        return self.segment_stores.setdefault(store, StoreReadMetrics())

    def cache(self, name: str) -> CacheMetrics:
        """The reads of one cache: `segment` or `index`."""
        return self.caches.setdefault(name, CacheMetrics())

    def frame_refused(self, reason: FrameRefusal) -> None:
        """Count a request that ended its connection."""
        self.frames_refused[reason] += 1

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


def _check_gauge(family: Family) -> None:
    if family.type is not MetricType.GAUGE or family not in metric_families.FAMILIES:
        raise ValueError(f"{family.name} is not a gauge of metric_families.FAMILIES")
