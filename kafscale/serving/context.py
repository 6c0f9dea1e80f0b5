"""What a handler is given: the broker's services, the request it answers, and where a hot path's reply goes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafscale.cluster.feature_updates import FeatureUpdates
from kafscale.cluster.producer_ids import ProducerIds
from kafscale.cluster.topics import Topics
from kafscale.cluster.view import ClusterView
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.log.life.record_deletion import RecordDeletion
from kafscale.log.manager import LogManager
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.metadata.model import ListenerName
from kafscale.objects.health import ObjectStoreHealth
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer
from kafscale.serving.batch_opener import BatchOpener
from kafscale.serving.deadlines import Deadlines
from kafscale.serving.decompression import Decompression
from kafscale.serving.encoded_topics import EncodedTopics
from kafscale.serving.idle_answers import IdleAnswers
from kafscale.serving.leader_changes import LeaderChanges
from kafscale.serving.listed_brokers import ListedBrokers
from kafscale.serving.produce_purgatory import ProducePurgatory
from kafscale.serving.read_replicas import ReadReplicas
from kafscale.serving.sequence_refusals import SequenceRefusals
from kafscale.serving.stale_view import StaleView
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The services of this broker. Handlers keep no state of their own. `now_ms`: Unix milliseconds.

    `started`: work that a request started and that goes on when the request's time is over.

    `decoding`: the turns of large messages, which are decoded in a thread, one at a time: their decoding must
    not fill the threads that segments are sealed in, nor keep several of them from the event loop's.
    """

    settings: Settings
    view: ClusterView
    topics: Topics
    features: FeatureUpdates
    logs: LogManager
    producer_ids: ProducerIds
    metrics: Metrics
    encoded_topics: EncodedTopics
    read_replicas: ReadReplicas
    purgatory: ProducePurgatory
    batch_opener: BatchOpener
    listed_brokers: ListedBrokers
    stale_view: StaleView
    leader_changes: LeaderChanges
    deadlines: Deadlines
    decompression: Decompression
    idle_answers: IdleAnswers
    sequence_refusals: SequenceRefusals
    gap_guard: ProducerGapGuard
    record_deletion: RecordDeletion
    groups: GroupCoordinator
    object_store_health: ObjectStoreHealth
    now_ms: Callable[[], int]
    started: TaskOwner
    decoding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))


@dataclass(slots=True)
class ClientSoftware:
    """What a connection's client says of itself. `has_codecs`: whether it reads all that a batch may be in."""

    has_codecs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The request at hand. `client_host` is the peer's address as text, `listener` where it came in.

    `software` is the connection's, the same for all its requests.
    """

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    listener: ListenerName = ListenerName.PLAINTEXT
    software: ClientSoftware = field(default_factory=ClientSoftware)


class Held(Protocol):
    """Memory that a reply's buffers are views of."""

    def release(self) -> None:
        """The buffers have left."""


class Reply(Protocol):
    """The place of one reply among its connection's: replies leave in the order of the requests.

    `abandoned` is called when the connection ends before the reply was sent.
    """

    abandoned: Callable[[], None] | None

    @property
    def connected_for_ms(self) -> int:
        """How long the connection has been open."""

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """Send a whole frame, once. `held` is released when the last byte has left; `error_code` is counted."""

    def drop(self) -> None:
        """There is no reply to this request (acks=0)."""

    def end_connection(self) -> None:
        """There is no reply, and the client must not go on as if all were well."""
