"""What a handler is given: the broker's services, the request it answers, and where a hot path's reply goes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafscale.groups.coordinator import GroupCoordinator
from kafscale.handlers.deadlines import Deadlines
from kafscale.handlers.encoded_topics import EncodedTopics
from kafscale.handlers.idle_answers import IdleAnswers
from kafscale.handlers.leader_changes import LeaderChanges
from kafscale.handlers.listed_brokers import ListedBrokers
from kafscale.handlers.produce_purgatory import ProducePurgatory
from kafscale.handlers.read_replicas import ReadReplicas
from kafscale.handlers.sequence_refusals import SequenceRefusals
from kafscale.handlers.stale_view import StaleView
from kafscale.metadata.feature_updates import FeatureUpdates
from kafscale.metadata.model import ListenerName
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.view import ClusterView
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer
from kafscale.settings import Settings
from kafscale.storage.expiry.record_deletion import RecordDeletion
from kafscale.storage.log_manager import LogManager
from kafscale.storage.object_store_health import ObjectStoreHealth
from kafscale.storage.producer_gap_guard import ProducerGapGuard
from kafscale.storage.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The services of this broker. Handlers keep no state of their own. `now_ms`: Unix milliseconds."""

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
    listed_brokers: ListedBrokers
    stale_view: StaleView
    leader_changes: LeaderChanges
    deadlines: Deadlines
    idle_answers: IdleAnswers
    sequence_refusals: SequenceRefusals
    gap_guard: ProducerGapGuard
    record_deletion: RecordDeletion
    groups: GroupCoordinator
    object_store_health: ObjectStoreHealth
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The request at hand. `client_host` is the peer's address as text, `listener` where it came in."""

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    listener: ListenerName = ListenerName.PLAINTEXT


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
