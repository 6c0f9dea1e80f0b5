"""A handler's arguments: the broker's services, the request to answer, and the place of a hot path's reply."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafscale.cluster.feature_updates import FeatureUpdates
from kafscale.cluster.group_config_updates import GroupConfigUpdates
from kafscale.cluster.producer_ids import ProducerIds
from kafscale.cluster.quota_updates import QuotaUpdates
from kafscale.cluster.topics import Topics
from kafscale.cluster.user_updates import UserUpdates
from kafscale.cluster.view import ClusterView
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.log.life.record_deletion import RecordDeletion
from kafscale.log.manager import LogManager
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.log.transactions.markers import Markers
from kafscale.metadata.model import ListenerName
from kafscale.objects.health import ObjectStoreHealth
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer
from kafscale.security.access import UNRESTRICTED, Access
from kafscale.security.acl_store import AclStore
from kafscale.security.client_quotas import ClientQuotas
from kafscale.serving.batch_opener import BatchOpener
from kafscale.serving.deadlines import Deadlines
from kafscale.serving.decompression import Decompression
from kafscale.serving.encoded_topics import EncodedTopics
from kafscale.serving.idle_answers import IdleAnswers
from kafscale.serving.leader_changes import LeaderChanges
from kafscale.serving.metadata_brokers import MetadataBrokers
from kafscale.serving.produce_purgatory import ProducePurgatory
from kafscale.serving.read_replicas import ReadReplicas
from kafscale.serving.request_throttle import RequestThrottle
from kafscale.serving.request_times import RequestTimes
from kafscale.serving.sequence_error_check import SequenceErrorCheck
from kafscale.serving.stale_view import StaleView
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner
from kafscale.transactions.coordinator import TransactionCoordinator
from kafscale.transactions.participation import Participation

if TYPE_CHECKING:
    from kafscale.serving.sharing.service import ShareService


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The services of this broker. Handlers keep no state of their own. `now_ms`: Unix milliseconds.

    `acls`: the access rules, None where no authorizer is configured.

    `started`: work that a request started and that goes on when the request's time is over.

    `decoding`: the turns of large messages, which are decoded in a thread, one at a time: their decoding must
    neither fill the threads that segments are sealed in, nor compete several-fold with the event loop's thread.
    """

    settings: Settings
    view: ClusterView
    topics: Topics
    features: FeatureUpdates
    user_updates: UserUpdates
    acls: AclStore | None
    quota_updates: QuotaUpdates
    group_config_updates: GroupConfigUpdates
    quotas: ClientQuotas
    logs: LogManager
    producer_ids: ProducerIds
    metrics: Metrics
    encoded_topics: EncodedTopics
    read_replicas: ReadReplicas
    purgatory: ProducePurgatory
    batch_opener: BatchOpener
    metadata_brokers: MetadataBrokers
    stale_view: StaleView
    leader_changes: LeaderChanges
    deadlines: Deadlines
    decompression: Decompression
    idle_answers: IdleAnswers
    sequence_error_check: SequenceErrorCheck
    gap_guard: ProducerGapGuard
    record_deletion: RecordDeletion
    markers: Markers
    participation: Participation
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    sharing: "ShareService"
    object_store_health: ObjectStoreHealth
    now_ms: Callable[[], int]
    started: TaskOwner
    decoding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))


@dataclass(slots=True, eq=False)
class ClientSoftware:
    """The client of a connection, by ApiVersions. `has_codecs`: it reads batches in every codec.

    `when_ended`: called when the connection has ended.
    """

    has_codecs: bool = False
    when_ended: Callable[[], None] | None = None


class RequestContext(NamedTuple):
    """One request. `client_host`: the peer's address as text. `listener`: where the client is connected.

    `access`: who the client is and what it may do; a handler asks there before it touches a topic or a group.
    `throttle`: where there are client quotas. `software`: the connection's, shared by all its requests.
    `size_bytes`: of the body, without the header. A tuple, because one is made for each request and a frozen
    dataclass takes three times as long to make.
    """

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    software: ClientSoftware
    listener: ListenerName = ListenerName.PLAINTEXT
    size_bytes: int = 0
    access: Access = UNRESTRICTED
    throttle: RequestThrottle | None = None


class Held(Protocol):
    """Memory that a reply's buffers are views of."""

    def release(self) -> None:
        """The buffers have left."""


class Reply(Protocol):
    """The place of one reply among its connection's: replies leave in the order of the requests.

    `abandoned` is called when the connection ends before the reply was sent, or at once if it has ended. `times`:
    counted when the reply has left; to be set before `send`.
    """

    abandoned: Callable[[], None] | None
    times: RequestTimes | None

    @property
    def connected_for_ms(self) -> int:
        """The age of the connection."""

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """Send a whole frame, once. `held` is released when the last byte has left; `error_code` is counted."""

    def drop(self) -> None:
        """There is no reply to this request (acks=0)."""

    def end_connection(self) -> None:
        """There is no reply, and the client must not go on as if all were well."""
