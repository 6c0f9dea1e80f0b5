"""One broker's control plane over stores in memory, with a stand-in for the log manager."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from kafscale.clocks import steady_ms
from kafscale.cluster.feature_updates import FeatureUpdates
from kafscale.cluster.group_config_updates import GroupConfigUpdates
from kafscale.cluster.leadership import Leadership
from kafscale.cluster.quota_updates import QuotaUpdates
from kafscale.cluster.registration import Registration
from kafscale.cluster.topic_deletion import TopicDeletion
from kafscale.cluster.topics import Topics
from kafscale.cluster.user_updates import UserUpdates
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats.features import SUPPORTED
from kafscale.formats.journal_keys import deleted_prefix
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadataStore
from kafscale.metadata.model import BrokerRecord, TopicRecord
from kafscale.metadata.store import MetadataStore
from kafscale.metadata.store_contact import StoreContact
from kafscale.objects.memory_store import MemoryStore as MemoryObjectStore
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.protocol.messages import decode_request, encode_response
from kafscale.security.access import UNRESTRICTED, Access
from kafscale.serving.context import Broker, ClientSoftware, RequestContext
from kafscale.serving.encoded_topics import EncodedTopics
from kafscale.serving.metadata_brokers import MetadataBrokers
from kafscale.serving.read_replicas import ReadReplicas
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner
from tests.support.owners import OneJournal
from tests.support.waiting import PATIENCE_MS

NAMESPACE = "default"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TIMEOUT_MS = PATIENCE_MS
CORRELATION_ID = 7


class LogsStandIn:
    """Leads every partition in the view, as the log manager does, and remembers what it closed."""

    def __init__(self, view: ClusterView, leadership: Leadership) -> None:
        self.closed: list[str] = []
        self.sizes: dict[tuple[str, int], int] = {}
        self.size_error: Exception | None = None
        self.highest_epoch = -1
        self._view = view
        self._leadership = leadership
        self._claims: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        topics = list(self._view.topics())
        self._view.subscribe(self._topic_changed)
        await self._claim([(topic.name, index) for topic in topics for index in range(topic.partition_count)])

    def _topic_changed(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        if after is None or self._view.topic(after.name) is None:
            return
        first = 0 if before is None else before.partition_count
        wanted = [(after.name, index) for index in range(first, after.partition_count)]
        if wanted:
            task = asyncio.create_task(self._claim(wanted))
            self._claims.add(task)
            task.add_done_callback(self._claims.discard)

    async def _claim(self, wanted: list[tuple[str, int]]) -> None:
        for claimed in await self._leadership.claim(wanted):
            self.highest_epoch = max(self.highest_epoch, claimed.record.leader_epoch)

    async def close_topic(self, name: str) -> None:
        await asyncio.sleep(0)
        self.closed.append(name)

    def partition(self, topic: str, index: int) -> None:
        """No log is open here."""

    async def size_bytes(self, topic: str, index: int) -> int | None:
        if self.size_error is not None:
            raise self.size_error
        return self.sizes.get((topic, index))

    async def close(self) -> None:
        for task in self._claims:
            task.cancel()
        await asyncio.gather(*self._claims, return_exceptions=True)


@dataclass(kw_only=True)
class ControlPlane:
    """The parts for a test. `store` and `objects` are the ones without faults."""

    store: MetadataStore
    objects: ObjectStore
    view: ClusterView
    topics: Topics
    features: FeatureUpdates
    user_updates: UserUpdates
    quota_updates: QuotaUpdates
    group_config_updates: GroupConfigUpdates
    deletion: TopicDeletion
    logs: LogsStandIn
    encoded_topics: EncodedTopics
    read_replicas: ReadReplicas
    metadata_brokers: MetadataBrokers
    settings: Settings = field(default_factory=Settings)
    groups: Any = None
    now_ms: int = 0

    @property
    def broker(self) -> Broker:
        return cast(
            Broker,
            SimpleNamespace(
                settings=self.settings,
                view=self.view,
                topics=self.topics,
                features=self.features,
                user_updates=self.user_updates,
                acls=None,
                quota_updates=self.quota_updates,
                group_config_updates=self.group_config_updates,
                logs=self.logs,
                encoded_topics=self.encoded_topics,
                read_replicas=self.read_replicas,
                metadata_brokers=self.metadata_brokers,
                decompression=SimpleNamespace(has_codecs=lambda name: False),
                started=TaskOwner(),
                groups=self.groups,
                now_ms=lambda: self.now_ms,
            ),
        )

    async def keys_under(self, prefix: str) -> list[str]:
        return [item.key for item in (await self.store.range(prefix)).items]

    async def topic_objects(self) -> list[str]:
        """The objects of topics, with those of topics that were deleted."""
        markers = deleted_prefix(NAMESPACE)
        return [item.key async for item in self.objects.list("") if not item.key.startswith(markers)]


def memory_stores(max_operations: int = 128) -> tuple[MemoryMetadataStore, MemoryObjectStore]:
    return MemoryMetadataStore(max_operations=max_operations), MemoryObjectStore(lambda: 0)


def host_of(broker_id: int) -> str:
    """The address of a control plane's broker."""
    return f"broker-{broker_id}.test" if broker_id else "broker.test"


@asynccontextmanager
async def control_plane(
    store: MetadataStore | None = None,
    objects: ObjectStore | None = None,
    *,
    settings: Settings | None = None,
    faulty_store: Callable[[MetadataStore], MetadataStore] = lambda store: store,
    faulty_objects: Callable[[ObjectStore], ObjectStore] = lambda objects: objects,
    grace_sec: float = 0.0,
) -> AsyncIterator[ControlPlane]:
    """A registered, ready control plane. Topics and deletions work with the faulty stores."""
    settings = settings or Settings()
    if store is None or objects is None:
        store, objects = memory_stores()
    view = ClusterView(CLUSTER_ID)
    feeder = asyncio.create_task(ClusterViewFeeder(store, view).run())
    broker_record = BrokerRecord(
        broker_id=settings.broker_id,
        host=host_of(settings.broker_id),
        port=9092,
        features=SUPPORTED,
    )
    registration = Registration(store, lease_ttl_sec=60)
    await registration.register(broker_record)

    def topic_id_of(name: str) -> uuid.UUID | None:
        topic = view.topic(name, include_deleting=True)  # as a broker that has not heard of it yet
        return None if topic is None else topic.topic_id

    leadership = Leadership(store, settings.broker_id, lambda: registration.lease, OneJournal(topic_id_of))
    await view.ready()
    await view.wait_until(lambda: view.broker(settings.broker_id) is not None)
    logs = LogsStandIn(view, leadership)
    await logs.start()
    deletion = TopicDeletion(
        faulty_store(store),
        faulty_objects(objects),
        view,
        logs,
        broker_id=settings.broker_id,
        namespace=NAMESPACE,
        retry_delay_sec=0.001,
        grace_sec=grace_sec,
    )
    deletion.start()
    topics = Topics(faulty_store(store), view, settings, retry_delay_sec=0.001)
    read_replicas = ReadReplicas(view)
    plane = ControlPlane(
        store=store,
        objects=objects,
        view=view,
        topics=topics,
        features=FeatureUpdates(faulty_store(store), view, retry_delay_sec=0.001),
        user_updates=UserUpdates(faulty_store(store), view, max_users=10, retry_delay_sec=0.001),
        quota_updates=QuotaUpdates(faulty_store(store), view, max_entities=10, retry_delay_sec=0.001),
        group_config_updates=GroupConfigUpdates(
            faulty_store(store), view, settings, max_groups=3, retry_delay_sec=0.001
        ),
        deletion=deletion,
        logs=logs,
        encoded_topics=EncodedTopics(view, read_replicas),
        read_replicas=read_replicas,
        metadata_brokers=MetadataBrokers(
            view,
            lambda: registration.broker,
            settings.lease_ttl_sec * 1000,
            StoreContact(settings.lease_ttl_sec * 1000, steady_ms),
            steady_ms,
        ),
        settings=settings,
    )
    try:
        yield plane
    finally:
        await deletion.close()
        await logs.close()
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)
        await registration.close()


async def put_segment(plane: ControlPlane, key: str) -> None:
    await plane.objects.put_if_absent(key, [b"bytes"])


async def ask(
    plane: ControlPlane,
    handle: Callable[..., Any],
    version: int,
    message: Any,
    access: Access = UNRESTRICTED,
) -> Any:
    """The reply for a client of this version: request and reply go through the codec."""
    reply_class, frame = await ask_for_frame(plane, handle, version, message, access)
    decoded = reply_class.decode(frame, version=version, header=True, framed=True)
    assert decoded.header.correlation_id == CORRELATION_ID
    return decoded


async def ask_with_bytes(
    plane: ControlPlane, handle: Callable[..., Any], api_key: int, version: int, body: bytes
) -> Any:
    """The reply to a request whose body, after the header, is made by hand."""
    frame = await _frame_for(plane, handle, api_key, version, body)
    return RESPONSE_CLASSES[api_key].decode(frame, version=version, header=True, framed=True)


async def ask_for_frame(
    plane: ControlPlane,
    handle: Callable[..., Any],
    version: int,
    message: Any,
    access: Access = UNRESTRICTED,
) -> tuple[Any, bytes]:
    """The class of the reply and its frame."""
    api_key = type(message).API_KEY
    frame = await _frame_for(plane, handle, api_key, version, message.encode(version=version), access)
    return RESPONSE_CLASSES[api_key], frame


async def _frame_for(
    plane: ControlPlane,
    handle: Callable[..., Any],
    api_key: int,
    version: int,
    body: bytes,
    access: Access = UNRESTRICTED,
) -> bytes:
    request = decode_request(api_key, version, memoryview(body))
    context = RequestContext(
        api_version=version,
        correlation_id=CORRELATION_ID,
        client_id="test",
        client_host="127.0.0.1",
        software=ClientSoftware(),
        access=access,
    )
    reply = handle(plane.broker, context, request)
    if asyncio.iscoroutine(reply):
        reply = await reply
    return reply if isinstance(reply, bytes) else encode_response(reply, version, CORRELATION_ID)


def by_name(items: Any) -> Mapping[str, Any]:
    """Items of a reply by their names."""
    return {item.name: item for item in items}


TOPIC_KEYS = (keys.TOPICS, keys.PARTITIONS, keys.LEADERS)
