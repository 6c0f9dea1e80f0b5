"""The composition root: the only place that knows every part of a broker, and what each of them needs.

`BasicParts` need nothing but the settings and the stores. `ServingParts` need the picture of the cluster, too.
Who starts and stops them, and in which order: `broker_process`.
"""

import random
import uuid
from collections.abc import Callable
from functools import cached_property, partial

from kafscale.broker.security import apply_quotas, open_sasl, open_tls, open_token_keys
from kafscale.broker.sharing import SharingParts
from kafscale.broker.stores import journal_place
from kafscale.clocks import SYSTEM, Clocks
from kafscale.cluster.feature_updates import FeatureUpdates
from kafscale.cluster.group_config_updates import GroupConfigUpdates
from kafscale.cluster.producer_ids import ProducerIds
from kafscale.cluster.quota_updates import QuotaUpdates
from kafscale.cluster.registration import Registration
from kafscale.cluster.tenure import Tenure
from kafscale.cluster.topic_deletion import TopicDeletion
from kafscale.cluster.topics import Topics
from kafscale.cluster.unreadable_records import KINDS
from kafscale.cluster.user_updates import UserUpdates
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats.journal_keys import JOURNAL_BUCKET_MARK, journal_bucket_folder
from kafscale.formats.object_keys import health_key
from kafscale.groups.service import GroupService
from kafscale.log.compaction.cleaning_work import CleaningProcesses, CleaningWork
from kafscale.log.log_parts import LogParts, LogSurroundings
from kafscale.log.reading.log_reader import log_reader
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.store import NO_LEASE, MetadataStore
from kafscale.metadata.store_contact import StoreContact
from kafscale.objects.health import ObjectStoreHealth, ObjectStoreProbe, health_policy
from kafscale.objects.hedging import Hedge
from kafscale.objects.journal_bucket import ReplicatedReader
from kafscale.objects.measured_store import MeasuredObjectStore
from kafscale.objects.object_store import ObjectReader, ObjectStore
from kafscale.objects.replica_reads import ReplicaReads
from kafscale.objects.request_meter import SharedCost, register_price_gauges, unshared
from kafscale.ops import client_metric_families, metric_families
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.ops.open_files import allow_connections
from kafscale.ops.start_progress import StartProgress
from kafscale.pages.collector import ServingBroker
from kafscale.security.access import unrestricted
from kafscale.security.acl_feeder import AclFeeder
from kafscale.security.acl_store import AclStore
from kafscale.security.audit import Audit
from kafscale.security.authorizer import Authorizer
from kafscale.security.client_quotas import ClientQuotas
from kafscale.security.rates import Windows
from kafscale.server.connection_host import RequestDispatcher
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
from kafscale.settings.broker import AuthorizerKind, Settings
from kafscale.tasks.owner import TaskOwner
from kafscale.transactions.service import TransactionService


def new_token() -> str:
    """Eight characters that no other process draws."""
    return uuid.uuid4().hex[:8]


def new_journal_id() -> str:
    """An id that no other journal has."""
    return uuid.uuid4().hex


AroundDispatcher = Callable[[RequestDispatcher, ClusterView], RequestDispatcher]
"""Puts something between the connections and the dispatcher, in a broker of tests."""


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
        shared_cost: SharedCost = unshared,
        clocks: Clocks = SYSTEM,
        around_dispatcher: AroundDispatcher | None = None,
        cleaning: CleaningWork | None = None,
    ) -> None:
        self.clocks = clocks
        self.cleaning = cleaning or CleaningProcesses()
        self.around_dispatcher = around_dispatcher
        self.start = start or StartProgress(clocks.steady_ms)
        health.set_starting(self.start.reason)
        self.settings = settings
        self.metrics = metrics
        self.health = health
        self.hedge = hedge
        self.shared_cost = shared_cost
        register_price_gauges(metrics, settings)
        self.metadata_contact = StoreContact(settings.lease_ttl_sec * 1000, clocks.steady_ms)
        self.metadata = MeasuredMetadataStore(metadata, metrics, self.metadata_contact)
        mark = JOURNAL_BUCKET_MARK if journal_place(settings).begins_there else ""
        self.registration = Registration(
            self.metadata,
            settings.lease_ttl_sec,
            new_journal_id=lambda: mark + new_journal_id(),
            boot_ms=clocks.boot_ms,
        )
        self.tenure = Tenure(self.registration, metrics.lease_ended)
        self.object_store_health = ObjectStoreHealth(health_policy(settings), clocks.steady_ms)
        self.objects = MeasuredObjectStore(objects, metrics, self.object_store_health)
        self.replica_reads = (
            ReplicaReads(replica, self.objects, metrics, clocks.steady_ms) if replica else None
        )
        self.segment_reads: ObjectReader = self.objects
        if self.replica_reads is not None:
            self.segment_reads = ReplicatedReader(self.replica_reads, self.objects, settings.s3_namespace)
        self.object_store_probe = ObjectStoreProbe(
            self.objects,
            self.object_store_health,
            metrics,
            keys=_health_keys(settings),
            broker_id=settings.broker_id,
            jitter=random.Random(),
        )
        tls = open_tls(settings, metrics)
        self.tls_files = None if tls is None else tls.files
        self.authorizer: Authorizer | None = None
        if settings.authorizer is AuthorizerKind.ACL:
            self.authorizer = Authorizer(
                settings.super_users,
                Audit(metrics),
                allow_if_no_acl=settings.allow_everyone_if_no_acl_found,
            )
        self.pool = SlabPool(settings.buffer_bytes)
        self.budget = MemoryBudget(settings.buffer_bytes)
        self.quotas = ClientQuotas(
            Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        )
        self.listener = Listener(
            self.pool,
            self.budget,
            metrics,
            frame_max_bytes=settings.frame_max_bytes,
            max_connections=allow_connections(settings.max_connections),
            max_idle_ms=settings.connections_max_idle_ms,
            slow_request_ms=settings.slow_request_ms,
            max_per_ip=settings.max_connections_per_ip,
            max_of_ips=dict(settings.max_connections_per_ip_overrides.pairs),
            tls=None if tls is None else tls.services,
            access_of=unrestricted if self.authorizer is None else self.authorizer.access,
            connection_quota=self.quotas.connection,
            clocks=clocks,
        )


class ServingParts:
    """The partitions, the groups and what serves requests for them, in the cluster that `view` shows.

    To be made before anything is fed to the view: some of them listen to it from its first event on.
    """

    def __init__(self, basics: BasicParts, view: ClusterView) -> None:
        settings, metrics, metadata = basics.settings, basics.metrics, basics.metadata
        clocks = basics.clocks
        self._basics = basics
        self.view = view
        self.feeder = ClusterViewFeeder(metadata, view)
        self.acl_feeder = None if basics.authorizer is None else AclFeeder(metadata, basics.authorizer)
        apply_quotas(view, basics.quotas)
        self.reader = log_reader(
            basics.segment_reads,
            basics.objects,
            settings,
            basics.pool,
            metrics,
            lambda: self.log_parts.index_version(),
        )
        around = LogSurroundings(
            settings=settings,
            metrics=metrics,
            metadata=metadata,
            objects=basics.objects,
            health=basics.object_store_health,
            view=view,
            pool=basics.pool,
            budget=basics.budget,
            lease=self._lease,
            end_lease=basics.tenure.end,
            unrenewed_ms=basics.registration.unrenewed_ms,
            new_random=random.Random,
            new_token=new_token,
            hedge=basics.hedge,
            shared_cost=basics.shared_cost,
            clocks=clocks,
            cleaning=basics.cleaning,
        )
        self.log_parts = LogParts(around, self.reader)
        self.logs, self.partitions = self.log_parts.logs, self.log_parts.partitions
        self.segment_life = self.log_parts.segment_life
        self.topic_deletion = TopicDeletion(
            metadata,
            basics.objects,
            view,
            self.logs,
            broker_id=settings.broker_id,
            namespace=settings.s3_namespace,
            failures=metrics.background_failures,
        )
        self.producer_ids = ProducerIds(metadata)
        self.transactions = TransactionService(
            metadata, view, self.producer_ids, settings, metrics, clocks.steady_clock()
        )
        self.sharing = SharingParts(metadata, view, self.logs, settings, metrics, clocks)
        self.groups = GroupService(
            metadata,
            view,
            self._lease,
            self.logs.log_end_offset,
            settings,
            metrics,
            clocks.steady_clock(),
            self.transactions.participation,
            self.sharing.starts,
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
        self.stale_view = StaleView(
            basics.metadata_contact,
            self.metadata_brokers,
            lambda: self.log_parts.journals.unended_ms,
            self.logs.end_waiting,
        )
        self.sequence_error_check = SequenceErrorCheck(self.logs)
        self.token_keys = open_token_keys(settings, clocks)
        self.sasl = open_sasl(settings, view, metrics, self.token_keys, clocks)
        self._register_gauges()

    async def begin_journal(self) -> None:
        """Begin the journal of this registration. Before it, nothing is claimed."""
        await self.log_parts.begin_journal(self._basics.registration.broker.journal_id)

    def _lease(self) -> int:
        return self._basics.tenure.lease

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
        gauge(metric_families.PARTITIONS_HELD_UP, lambda: self.log_parts.checkpointer.held_up_count)
        gauge(metric_families.BROKERS, lambda: view.broker_count)
        gauge(client_metric_families.USERS, lambda: len(view.users))
        gauge(client_metric_families.LOGINS_WAITING, lambda: self.sasl.logins_waiting)
        for prefix, kind in KINDS.items():
            gauge(metric_families.RECORDS_UNREADABLE, partial(view.unreadable.count, prefix), kind=kind)
        rules = self.acl_feeder
        if rules is not None:
            gauge(metric_families.RECORDS_UNREADABLE, lambda: rules.stored.unreadable_count, kind="acl")
            gauge(client_metric_families.ACCESS_RULES, lambda: rules.stored.rule_count)
        self.logs.register_gauges(basics.metrics)
        gauge(metric_families.PARTITIONS_OFFLINE, view.offline_partition_count)

    @cached_property
    def services(self) -> Broker:
        """The parts that handlers use: the same for every connection."""
        basics, view = self._basics, self.view
        read_replicas = ReadReplicas(view)
        return Broker(
            settings=basics.settings,
            view=view,
            topics=Topics(basics.metadata, view, basics.settings),
            features=FeatureUpdates(basics.metadata, view),
            user_updates=UserUpdates(basics.metadata, view),
            acls=None if self.acl_feeder is None else AclStore(basics.metadata, self.acl_feeder),
            quota_updates=QuotaUpdates(basics.metadata, view),
            group_config_updates=GroupConfigUpdates(basics.metadata, view, basics.settings),
            quotas=basics.quotas,
            logs=self.logs,
            producer_ids=self.producer_ids,
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
            gap_guard=self.log_parts.gap_guard,
            record_deletion=self.log_parts.segment_life.record_deletion,
            markers=self.log_parts.markers,
            groups=self.groups.coordinator,
            transactions=self.transactions.coordinator,
            sharing=self.sharing.service,
            participation=self.transactions.participation,
            object_store_health=basics.object_store_health,
            now_ms=basics.clocks.now_ms,
            started=self.started,
        )

    def shown(self) -> ServingBroker:
        """The parts that the page for people shows."""
        basics = self._basics
        return ServingBroker(
            view=self.view,
            logs=self.logs,
            groups=self.groups,
            brokers=self.metadata_brokers,
            is_registered=lambda: basics.registration.lease != NO_LEASE,
            unrenewed_ms=basics.registration.unrenewed_ms,
        )

    def dispatcher(self) -> RequestDispatcher:
        """The dispatcher of this broker's connections."""
        dispatcher = Dispatcher(self.services)
        around = self._basics.around_dispatcher
        return dispatcher if around is None else around(dispatcher, self.view)


def _health_keys(settings: Settings) -> list[str]:
    """An object in each bucket that a broker writes to."""
    keys = [health_key(settings.s3_namespace, settings.broker_id)]
    if settings.journal_bucket is not None:
        folder = journal_bucket_folder(settings.s3_namespace, "health")
        keys.append(f"{folder}broker-{settings.broker_id}")
    return keys
