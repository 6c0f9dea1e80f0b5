"""The composition root: the only place that knows every part of a broker, and what each of them needs.

`BasicParts` need nothing but the settings and the stores. `ServingParts` need the picture of the cluster, too.
Who starts and stops them, and in which order: `broker_process`.
"""

import random
import uuid
from functools import partial

from kafscale import clocks
from kafscale.cluster.feature_updates import FeatureUpdates
from kafscale.cluster.producer_ids import ProducerIds
from kafscale.cluster.registration import Registration
from kafscale.cluster.tenure import Tenure
from kafscale.cluster.topic_deletion import TopicDeletion
from kafscale.cluster.topics import Topics
from kafscale.cluster.unreadable_records import KINDS
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats.features import SEGMENT_FORMAT
from kafscale.formats.index import index_version_at
from kafscale.groups.service import GroupService
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.segment_life import SegmentLife
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_service import PartitionService
from kafscale.log.producer_gap_guard import ProducerGapGuard
from kafscale.log.reading.log_reader import log_reader
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.flusher import Flusher, FlushPolicy
from kafscale.log.writing.publisher import Publisher
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.store import MetadataStore
from kafscale.metadata.store_contact import StoreContact
from kafscale.objects.health import ObjectStoreHealth, ObjectStoreProbe, health_policy
from kafscale.objects.hedging import Hedge
from kafscale.objects.measured_store import MeasuredObjectStore
from kafscale.objects.object_store import ObjectReader, ObjectStore
from kafscale.objects.replica_reads import ReplicaReads
from kafscale.ops import metric_families
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.ops.open_files import allow_connections
from kafscale.ops.start_progress import StartProgress
from kafscale.server.dispatcher import Dispatcher
from kafscale.server.listener import Listener
from kafscale.serving.batch_opener import BatchOpener
from kafscale.serving.context import Broker
from kafscale.serving.deadlines import Deadlines
from kafscale.serving.decompression import Decompression
from kafscale.serving.encoded_topics import EncodedTopics
from kafscale.serving.idle_answers import IdleAnswers
from kafscale.serving.leader_changes import LeaderChanges
from kafscale.serving.metadata_brokers import MetadataBrokers
from kafscale.serving.produce_purgatory import ProducePurgatory
from kafscale.serving.read_replicas import ReadReplicas
from kafscale.serving.sequence_error_check import SequenceErrorCheck
from kafscale.serving.stale_view import StaleView
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner

_EARLY_FLUSHES = 2


def new_token() -> str:
    """Eight characters that no other process draws."""
    return uuid.uuid4().hex[:8]


def _flush_policy(settings: Settings) -> FlushPolicy:
    early = settings.early_flushes
    if early is None:
        # On a bucket each costs two paid requests, and takes as long as many together.
        early = _EARLY_FLUSHES if settings.s3_bucket is None else 0
    return FlushPolicy(
        interval_ms=settings.flush_interval_ms, concurrency=settings.flush_concurrency, early=early
    )


class BasicParts:
    """The ways to the stores, the registration, the memory and the sockets. Nothing of it runs yet."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        metadata: MetadataStore,
        objects: ObjectStore,
        replica: ObjectReader | None = None,
        hedge: Hedge | None = None,
        start: StartProgress | None = None,
    ) -> None:
        self.start = start or StartProgress(clocks.steady_ms)
        health.set_starting(self.start.reason)
        self.settings = settings
        self.metrics = metrics
        self.health = health
        self.hedge = hedge
        self.metadata_contact = StoreContact(settings.lease_ttl_sec * 1000, clocks.steady_ms)
        self.metadata = MeasuredMetadataStore(metadata, metrics, self.metadata_contact)
        self.registration = Registration(self.metadata, settings.lease_ttl_sec)
        self.tenure = Tenure(self.registration, metrics.lease_ended)
        self.object_store_health = ObjectStoreHealth(health_policy(settings), clocks.steady_ms)
        self.objects = MeasuredObjectStore(objects, metrics, self.object_store_health)
        self.replica_reads = (
            ReplicaReads(replica, self.objects, metrics, clocks.steady_ms) if replica else None
        )
        self.object_store_probe = ObjectStoreProbe(
            self.objects,
            self.object_store_health,
            metrics,
            namespace=settings.s3_namespace,
            broker_id=settings.broker_id,
            jitter=random.Random(),
        )
        self.pool = SlabPool(settings.buffer_bytes)
        self.budget = MemoryBudget(settings.buffer_bytes)
        self.listener = Listener(
            self.pool,
            self.budget,
            metrics,
            frame_max_bytes=settings.frame_max_bytes,
            max_connections=allow_connections(settings.max_connections),
            max_idle_ms=settings.connections_max_idle_ms,
            slow_request_ms=settings.slow_request_ms,
        )


class ServingParts:
    """The partitions, the groups and what serves requests for them, in the cluster that `view` shows.

    To be made before anything is fed to the view: some of them listen to it from its first event on.
    """

    def __init__(self, basics: BasicParts, view: ClusterView) -> None:
        settings, metrics, metadata = basics.settings, basics.metrics, basics.metadata
        self._basics = basics
        self.view = view
        self.feeder = ClusterViewFeeder(metadata, view)
        self.reader = log_reader(
            basics.replica_reads or basics.objects,
            basics.objects,
            settings,
            basics.pool,
            metrics,
            self._index_version,
        )
        self.checkpointer = Checkpointer(
            basics.objects,
            metadata,
            settings.s3_namespace,
            clocks.now_ms,
            new_token,
            metrics.background_failures,
        )
        self.gap_guard = ProducerGapGuard()
        self.logs = self._make_logs()
        self.partitions = PartitionService(metadata, view, self._lease, self.logs, settings.broker_id)
        self.segment_life = self._make_segment_life()
        self.topic_deletion = TopicDeletion(
            metadata,
            basics.objects,
            view,
            self.logs,
            broker_id=settings.broker_id,
            namespace=settings.s3_namespace,
            failures=metrics.background_failures,
        )
        self.groups = GroupService(
            metadata, view, self._lease, self.logs.log_end_offset, settings, metrics, clocks.steady_clock()
        )
        self.purgatory = ProducePurgatory(clocks.now_ms, basics.budget)
        self.started = TaskOwner()
        self.leader_changes = LeaderChanges(view, settings.broker_id)
        self.metadata_brokers = MetadataBrokers(
            view,
            lambda: basics.registration.broker,
            settings.lease_ttl_sec * 1000,
            basics.metadata_contact,
            clocks.steady_ms,
        )
        self.stale_view = StaleView(basics.metadata_contact, self.metadata_brokers, self.logs.end_waiting)
        self.sequence_error_check = SequenceErrorCheck(self.logs)
        self._register_gauges()

    def _lease(self) -> int:
        return self._basics.tenure.lease

    def _index_version(self) -> int:
        """The version in which indexes are written."""
        return index_version_at(self.view.feature_level(SEGMENT_FORMAT))

    def _on_published(self, partition: Partition, sealed: SealedSegment) -> None:
        self.reader.add_published(partition, sealed)
        self.checkpointer.consider(partition)

    def _make_logs(self) -> LogManager:
        basics, settings = self._basics, self._basics.settings
        publisher = Publisher(
            basics.objects,
            basics.metadata,
            settings.s3_namespace,
            clocks.now_ms,
            self._on_published,
            random.Random(),
            self._index_version,
            basics.hedge,
        )
        flusher = Flusher(
            publisher,
            _flush_policy(settings),
            basics.budget,
            clocks.now_ms,
            basics.metrics,
            self.gap_guard,
            self.checkpointer.make_room,
        )
        return LogManager(
            self.view,
            basics.metadata,
            flusher,
            publisher,
            self.reader,
            self.checkpointer,
            basics.pool,
            basics.budget,
            settings,
            basics.metrics,
        )

    def _make_segment_life(self) -> SegmentLife:
        basics = self._basics
        return SegmentLife(
            basics.objects,
            basics.object_store_health,
            self.logs,
            self.checkpointer,
            basics.settings,
            basics.metrics,
            cluster_id=self.view.cluster_id,
            now_ms=clocks.now_ms,
            index_version=self._index_version,
        )

    def _register_gauges(self) -> None:
        basics, view = self._basics, self.view
        gauge, budget = basics.metrics.gauge, basics.budget
        gauge(metric_families.BUFFER_USED, lambda: budget.used_bytes)
        gauge(metric_families.BUFFER_LIMIT, lambda: budget.limit_bytes)
        self.reader.register_gauges(basics.metrics)
        basics.object_store_health.register_gauges(basics.metrics)
        basics.health.add_warning("object_store", basics.object_store_health.warning)
        basics.health.add_warning("metadata_store", self.stale_view.warning)
        self.stale_view.register_gauge(basics.metrics)
        gauge(metric_families.TOPICS, lambda: view.topic_count)
        gauge(metric_families.PARTITIONS_HELD_UP, lambda: self.checkpointer.held_up_count)
        gauge(metric_families.BROKERS, lambda: view.broker_count)
        for prefix, kind in KINDS.items():
            gauge(metric_families.RECORDS_UNREADABLE, partial(view.unreadable.count, prefix), kind=kind)
        self.logs.register_gauges(basics.metrics)
        gauge(metric_families.PARTITIONS_OFFLINE, view.offline_partition_count)

    def services(self) -> Broker:
        """The parts that handlers use."""
        basics, view = self._basics, self.view
        read_replicas = ReadReplicas(view)
        return Broker(
            settings=basics.settings,
            view=view,
            topics=Topics(basics.metadata, view, basics.settings),
            features=FeatureUpdates(basics.metadata, view),
            logs=self.logs,
            producer_ids=ProducerIds(basics.metadata),
            metrics=basics.metrics,
            encoded_topics=EncodedTopics(view, read_replicas),
            read_replicas=read_replicas,
            purgatory=self.purgatory,
            batch_opener=BatchOpener(),
            metadata_brokers=self.metadata_brokers,
            stale_view=self.stale_view,
            leader_changes=self.leader_changes,
            deadlines=Deadlines(),
            decompression=Decompression(basics.settings.codec_clients, self.reader, basics.metrics),
            idle_answers=IdleAnswers(view, self.logs),
            sequence_error_check=self.sequence_error_check,
            gap_guard=self.gap_guard,
            record_deletion=self.segment_life.record_deletion,
            groups=self.groups.coordinator,
            object_store_health=basics.object_store_health,
            now_ms=clocks.now_ms,
            started=self.started,
        )

    def dispatcher(self) -> Dispatcher:
        """The dispatcher of this broker's connections."""
        return Dispatcher(self.services())
