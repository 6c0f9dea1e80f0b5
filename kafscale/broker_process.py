"""The composition root: the only place that knows every part of a broker, and their start and stop."""

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from kafscale.errors import (
    StartupError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.groups.service import GroupService
from kafscale.handlers.context import Broker
from kafscale.handlers.leader_changes import LeaderChanges
from kafscale.handlers.produce_purgatory import ProducePurgatory
from kafscale.handlers.sequence_refusals import SequenceRefusals
from kafscale.metadata.feature_updates import FeatureUpdates
from kafscale.metadata.features import SEGMENT_FORMAT, SUPPORTED, check_segment_settings
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.registration import Registration
from kafscale.metadata.store import MetadataStore
from kafscale.metadata.view import ClusterView
from kafscale.metadata.view_feeder import ClusterViewFeeder
from kafscale.ops import metric_families
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.ops.open_files import allow_connections
from kafscale.server.dispatcher import Dispatcher
from kafscale.server.listener import Listener
from kafscale.setting_kinds import Address
from kafscale.settings import Settings, advertised_address
from kafscale.storage.bucket.probe import prove_conditional_writes
from kafscale.storage.checkpointer import Checkpointer
from kafscale.storage.cluster_identity import establish_cluster
from kafscale.storage.flusher import Flusher, FlushPolicy
from kafscale.storage.index import index_version_at
from kafscale.storage.log_manager import LogManager
from kafscale.storage.measured_store import MeasuredObjectStore
from kafscale.storage.memory_budget import MemoryBudget
from kafscale.storage.object_store import ObjectReader, ObjectStore
from kafscale.storage.object_store_health import ObjectStoreHealth, ObjectStoreProbe, health_policy
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import SealedSegment
from kafscale.storage.partition_service import PartitionService
from kafscale.storage.publisher import Publisher
from kafscale.storage.reading.log_reader import log_reader
from kafscale.storage.reading.replica_reads import ReplicaReads
from kafscale.storage.segment_life import SegmentLife
from kafscale.storage.slab import SlabPool
from kafscale.storage.topic_deletion import TopicDeletion
from kafscale.storage.topics import Topics

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

EXIT_STOPPED = 0
EXIT_FAILED = 1

# How long a stop waits for requests that are neither produce nor fetch, creating a topic for one.
FINISH_REQUESTS_SEC = 1.0
# How long a stop waits for the metadata store before it does without handing over.
_ANNOUNCE_SEC = 2.0
_RETRY_DELAY_SEC = 0.5


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds of a clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000


def steady_clock() -> Callable[[], int]:
    """Unix milliseconds as of now and the time since: a clock that is set does not move it."""
    offset_ms = now_ms() - steady_ms()
    return lambda: steady_ms() + offset_ms


def _new_token() -> str:
    return uuid.uuid4().hex[:8]


class BrokerProcess:
    """One broker from its start to its stop."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        metadata: MetadataStore,
        objects: ObjectStore,
        replica: ObjectReader | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._metadata = metadata = MeasuredMetadataStore(metadata, metrics)
        self._registration = Registration(metadata, settings.lease_ttl_sec)
        self._tasks: list[asyncio.Task[None]] = []
        self._staying_registered: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._object_store_health = ObjectStoreHealth(health_policy(settings), steady_ms)
        self._objects = objects = MeasuredObjectStore(objects, metrics, self._object_store_health)
        self._replica_reads = ReplicaReads(replica, objects, metrics, steady_ms) if replica else None
        self._pool = SlabPool(settings.buffer_bytes)
        self._budget = MemoryBudget(settings.buffer_bytes)
        self._reader = log_reader(
            self._replica_reads or objects, objects, settings, self._pool, metrics, self._index_version
        )
        self._checkpointer = Checkpointer(objects, settings.s3_namespace, now_ms, _new_token)
        self._publisher = Publisher(
            objects,
            metadata,
            settings.s3_namespace,
            now_ms,
            self._on_published,
            random.Random(),
            self._index_version,
        )
        self._flusher = Flusher(
            self._publisher,
            FlushPolicy(interval_ms=settings.flush_interval_ms, concurrency=settings.flush_concurrency),
            self._budget,
            now_ms,
            metrics,
        )
        self._purgatory = ProducePurgatory(now_ms, self._budget)
        self._listener = Listener(
            self._pool,
            self._budget,
            metrics,
            frame_max_bytes=settings.frame_max_bytes,
            max_connections=allow_connections(settings.max_connections),
            max_idle_ms=settings.connections_max_idle_ms,
        )

    def _index_version(self) -> int:
        """The version in which indexes are written, once the picture of the cluster is there."""
        return index_version_at(self._view.feature_level(SEGMENT_FORMAT))

    def _on_published(self, partition: Partition, sealed: SealedSegment) -> None:
        self._reader.add_published(partition, sealed)
        self._checkpointer.consider(partition)

    async def run(self, stop: asyncio.Event) -> int:
        """Serve until `stop` is set; returns the exit status. Raises `StartupError`."""
        advertised = await self._bind()
        stopping = asyncio.create_task(stop.wait(), name="stop signal")
        ending = asyncio.create_task(self._ended.wait(), name="end of the work")
        starting = asyncio.create_task(self._start(advertised), name="start")
        try:
            await asyncio.wait({starting, stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done() or starting.exception() is not None:
                return await self._give_up_starting(starting)
            logger.info(
                "ready",
                extra={
                    "broker_id": self._settings.broker_id,
                    "advertised": str(advertised),
                    "cluster_id": self._view.cluster_id,
                },
            )
            await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            drained = await self._stop()
            return EXIT_STOPPED if drained and not self._log_failures() else EXIT_FAILED
        finally:
            tasks = (starting, stopping, ending, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._replica_reads is not None:
                await self._replica_reads.close()

    async def _bind(self) -> Address:
        listen = self._settings.broker_addr
        host, port = await self._listener.bind(listen.host, listen.port)
        return advertised_address(self._settings, Address(host, port), socket.gethostname())

    async def _start(self, advertised: Address) -> None:
        settings = self._settings
        self._keep_running(
            ObjectStoreProbe(
                self._objects,
                self._object_store_health,
                self._metrics,
                namespace=settings.s3_namespace,
                broker_id=settings.broker_id,
                jitter=random.Random(),
            ).run(),
            "object store probe",
        )
        if settings.s3_bucket is not None:
            await _until_answered(
                lambda: prove_conditional_writes(self._objects, settings.s3_namespace, _new_token())
            )
        cluster_id = await _until_answered(
            lambda: establish_cluster(self._metadata, self._objects, settings.s3_namespace)
        )
        self._view = view = ClusterView(cluster_id)
        await self._registration.register(
            BrokerRecord(
                broker_id=settings.broker_id,
                host=advertised.host,
                port=advertised.port,
                rack=settings.rack,
                state=BrokerState.STARTING,
                features=SUPPORTED,
            )
        )
        self._build()
        self._keep_running(ClusterViewFeeder(self._metadata, view).run(), "cluster view")
        self._staying_registered = self._keep_running(self._stay_registered(), "registration")
        await view.ready()
        await view.wait_until(lambda: view.broker_state(settings.broker_id) is not None)
        check_segment_settings(settings, view.feature_level(SEGMENT_FORMAT))
        self._topic_deletion.start()
        await self._partitions.start()
        await self._groups.start()
        for name, work in self._segment_life.work().items():
            self._keep_running(work, name)
        await self._registration.announce(BrokerState.RUNNING)
        await view.wait_until(lambda: view.broker(settings.broker_id) is not None)
        await self._listener.start(Dispatcher(self._services()))
        self._health.set_ready()

    def _build(self) -> None:
        """The parts that need the picture of the cluster and this broker's place in it."""
        settings, metrics, view, registration = self._settings, self._metrics, self._view, self._registration
        self._logs = LogManager(
            view,
            self._metadata,
            self._flusher,
            self._publisher,
            self._reader,
            self._checkpointer,
            self._pool,
            self._budget,
            settings,
            metrics,
        )
        self._partitions = PartitionService(
            self._metadata, view, lambda: registration.lease, self._logs, settings.broker_id
        )
        self._segment_life = SegmentLife(
            self._objects,
            self._object_store_health,
            self._logs,
            self._checkpointer,
            settings,
            metrics,
            cluster_id=view.cluster_id,
            now_ms=now_ms,
            index_version=self._index_version,
        )
        self._topic_deletion = TopicDeletion(
            self._metadata,
            self._objects,
            view,
            self._logs,
            broker_id=settings.broker_id,
            namespace=settings.s3_namespace,
        )
        self._groups = GroupService(
            self._metadata,
            view,
            lambda: registration.lease,
            self._logs.log_end_offset,
            settings,
            metrics,
            steady_clock(),
        )
        self._leader_changes = LeaderChanges(view, settings.broker_id)
        self._sequence_refusals = SequenceRefusals(self._logs)
        self._register_gauges(view)

    def _services(self) -> Broker:
        return Broker(
            settings=self._settings,
            view=self._view,
            topics=Topics(self._metadata, self._view, self._settings),
            features=FeatureUpdates(self._metadata, self._view),
            logs=self._logs,
            producer_ids=ProducerIds(self._metadata),
            metrics=self._metrics,
            purgatory=self._purgatory,
            leader_changes=self._leader_changes,
            sequence_refusals=self._sequence_refusals,
            record_deletion=self._segment_life.record_deletion,
            groups=self._groups.coordinator,
            object_store_health=self._object_store_health,
            now_ms=now_ms,
        )

    def _keep_running(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Work without which the broker cannot go on, nor start: its end is the broker's."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda _: self._ended.set())
        self._tasks.append(task)
        return task

    async def _stay_registered(self) -> None:
        """Renew the lease; when it has ended all the same, lead nothing and begin again under a new one."""
        while True:
            await self._registration.keep_alive()
            self._metrics.leases_ended += 1
            logger.error(
                "the lease of this broker has ended: others may lead its partitions and groups by now"
            )
            await asyncio.gather(self._partitions.let_go(), self._groups.let_go())
            await self._registration.register_again()
            logger.info("registered again")
            self._partitions.reconsider()
            self._groups.reconsider()

    async def _give_up_starting(self, starting: asyncio.Task[None]) -> int:
        """The stop signal came before the start was over, or the start cannot go on. Raises what ended it."""
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        self._listener.stop_accepting()
        await self._end_registration()
        if not starting.cancelled():
            starting.result()
        return EXIT_FAILED if self._log_failures() else EXIT_STOPPED

    def _register_gauges(self, view: ClusterView) -> None:
        gauge, budget = self._metrics.gauge, self._budget
        gauge(metric_families.BUFFER_USED, lambda: budget.used_bytes)
        gauge(metric_families.BUFFER_LIMIT, lambda: budget.limit_bytes)
        self._reader.register_gauges(self._metrics)
        self._object_store_health.register_gauges(self._metrics)
        self._health.add_warning("object_store", self._object_store_health.warning)
        gauge(metric_families.TOPICS, lambda: view.topic_count)
        gauge(metric_families.BROKERS, lambda: view.broker_count)
        self._logs.register_gauges(self._metrics)
        gauge(metric_families.PARTITIONS_OFFLINE, view.offline_partition_count)

    async def _stop(self) -> bool:
        """Hand over, flush what is buffered, answer what waits, let go; False when not all could be flushed."""
        self._health.set_not_ready()
        deadline = asyncio.get_running_loop().time() + self._settings.shutdown_timeout_ms / 1000
        await self._hand_over(deadline)
        self._listener.stop_accepting()
        self._groups.refuse_requests()
        await self._listener.finish_requests(FINISH_REQUESTS_SEC)
        await self._groups.close()
        drained = True
        try:
            async with asyncio.timeout_at(deadline):
                await self._logs.drain()
        except TimeoutError:
            drained = False
            logger.error("stopping without having flushed everything; it was not acknowledged to anybody")
        self._logs.end_waiting()
        await self._listener.close()
        self._purgatory.close()
        await self._leader_changes.close()
        await self._sequence_refusals.close()
        await self._topic_deletion.close()
        await self._segment_life.close()
        await self._partitions.close()
        await self._logs.close()
        await self._end_registration()
        logger.info("stopped")
        return drained

    async def _hand_over(self, deadline_sec: float) -> None:
        """Let the brokers that go on lead and coordinate what this one does, as far as there is time."""
        view, broker_id = self._view, self._settings.broker_id
        try:
            async with asyncio.timeout(_ANNOUNCE_SEC):
                await self._registration.announce(BrokerState.STOPPING)
                await view.wait_until(lambda: view.broker_state(broker_id) in (BrokerState.STOPPING, None))
        except TimeoutError:
            logger.warning("the metadata store does not answer: stopping without handing over")
            return
        try:
            async with asyncio.timeout_at(deadline_sec):
                await asyncio.gather(self._partitions.handed_over(), self._groups.handed_over())
        except TimeoutError:
            logger.warning("stopping without having handed over everything")
            return
        if view.brokers_to_read_from():
            await self._linger(deadline_sec)

    async def _linger(self, deadline_sec: float) -> None:
        """Tell the clients at their next request that others serve them from now on.

        A consumer sends a heartbeat every three seconds. One that finds its connection closed and nobody
        listening may give up its partitions for that, as franz-go's does.
        """
        with suppress(TimeoutError):
            async with (
                asyncio.timeout_at(deadline_sec),
                asyncio.timeout(self._settings.shutdown_linger_ms / 1000),
            ):
                await self._listener.no_connections()

    async def _end_registration(self) -> None:
        """End the lease; if the store is away, it ends by itself."""
        if self._staying_registered is not None:
            # It would take the lease's end for a reason to register again.
            self._staying_registered.cancel()
            await asyncio.gather(self._staying_registered, return_exceptions=True)
        try:
            async with asyncio.timeout(_ANNOUNCE_SEC):
                await self._registration.close()
        except (TimeoutError, StoreUnavailableError, StoreIndeterminateError) as problem:
            logger.warning("could not end the lease, it will end by itself", extra={"problem": str(problem)})

    def _log_failures(self) -> bool:
        """Whether work without which the broker cannot go on has ended by itself."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        for task in ended:
            logger.error("cannot go on without the %s", task.get_name(), exc_info=task.exception())
        return bool(ended)


async def _until_answered(call: Callable[[], Awaitable[Result]]) -> Result:
    """What a call of the stores gives, however long they are away: nothing is taken for empty meanwhile.

    Raises `StartupError` when one of them refuses it: that will not change by itself.
    """
    while True:
        try:
            return await call()
        except StoreRefusedError as refused:
            raise StartupError(f"a store refuses what the broker needs: {refused}") from refused
        except (StoreUnavailableError, StoreIndeterminateError) as problem:
            logger.warning("waiting for the stores", extra={"problem": str(problem)})
        await asyncio.sleep(_RETRY_DELAY_SEC)
