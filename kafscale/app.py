"""The composition root: the only place that knows every part, and their start and stop."""

import asyncio
import contextlib
import logging
import random
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

import uvloop

from kafscale.errors import StartupError
from kafscale.groups.service import GroupService
from kafscale.handlers.context import Broker
from kafscale.handlers.produce_purgatory import ProducePurgatory
from kafscale.metadata.cluster import ensure_cluster_id
from kafscale.metadata.leadership import Leadership
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.model import BrokerRecord
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.sqlite_store import SqliteStore
from kafscale.metadata.store import MetadataStore
from kafscale.metadata.view import ClusterView
from kafscale.metadata.view_feeder import ClusterViewFeeder
from kafscale.ops import metric_families
from kafscale.ops.health import Health
from kafscale.ops.http import AdminServer
from kafscale.ops.loop_probe import loop_probe
from kafscale.ops.metrics import Metrics
from kafscale.ops.open_files import allow_connections
from kafscale.server.dispatcher import Dispatcher
from kafscale.server.listener import Listener
from kafscale.setting_kinds import Address
from kafscale.settings import Settings, advertised_address
from kafscale.storage.checkpointer import Checkpointer
from kafscale.storage.flusher import Flusher, FlushPolicy
from kafscale.storage.local_store import LocalStore
from kafscale.storage.log_manager import LogManager
from kafscale.storage.log_reader import LogReader
from kafscale.storage.measured_store import MeasuredObjectStore
from kafscale.storage.memory_budget import MemoryBudget
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import SealedSegment
from kafscale.storage.publisher import Publisher
from kafscale.storage.record_deletion import RecordDeletion
from kafscale.storage.segment_loader import SegmentLoader
from kafscale.storage.slab import SlabPool
from kafscale.storage.topic_deletion import TopicDeletion
from kafscale.storage.topics import Topics

logger = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 1

# The embedded store ends its leases with the process; the cluster's setting comes with the cluster.
LEASE_TTL_SEC = 10
# The stores' threads wake from every system call into a contest with the event loop, which a busy loop wins for
# the whole interval, again and again: at Python's 5 ms one durable write can take seconds (decision 0005).
THREAD_SWITCH_INTERVAL_SEC = 0.0001
# How long a stop waits for requests that are neither produce nor fetch, creating a topic for one.
FINISH_REQUESTS_SEC = 1.0


def run(settings: Settings) -> int:
    """Serve until told to stop; returns the exit status. Raises `StartupError`."""
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_SEC)
    return uvloop.run(_serve(settings))


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def steady_clock() -> Callable[[], int]:
    """Unix milliseconds as of now and the time since: a clock that is set does not move it."""
    offset_ms = now_ms() - time.monotonic_ns() // 1_000_000
    return lambda: time.monotonic_ns() // 1_000_000 + offset_ms


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics(broker_id=settings.broker_id, version=version("kafscale"))
    health = Health()
    health.add_liveness_check("event_loop", loop_probe(loop))
    admin = AdminServer(metrics, health)
    admin_port = admin.start(settings.metrics_addr.host, settings.metrics_addr.port)
    logger.info("metrics and health", extra={"address": str(Address(settings.metrics_addr.host, admin_port))})
    try:
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await _open_stores(settings, metrics, stack)
            process = BrokerProcess(settings, metrics, health, metadata, objects)
            return await process.run(stop)
    finally:
        admin.stop()


async def _open_stores(
    settings: Settings, metrics: Metrics, stack: contextlib.AsyncExitStack
) -> tuple[MetadataStore, ObjectStore]:
    """The embedded stores: a SQLite file and a folder. Raises `StartupError`."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StartupError(
            f"cannot use the data folder {settings.data_dir} ({problem.strerror}): "
            "create it, or set KAFSCALE_DATA_DIR to a folder that can be written"
        ) from problem
    metadata = await SqliteStore.open(settings.data_dir / "metadata.db", fsync=settings.local_fsync)
    stack.push_async_callback(metadata.close)
    objects = LocalStore(settings.data_dir / "objects", fsync=settings.local_fsync)
    stack.push_async_callback(objects.close)
    return MeasuredMetadataStore(metadata, metrics), MeasuredObjectStore(objects, metrics)


class BrokerProcess:
    """One broker from its start to its stop."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        metadata: MetadataStore,
        objects: ObjectStore,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._metadata = metadata
        self._objects = objects
        self._pool = SlabPool(settings.buffer_bytes)
        self._budget = MemoryBudget(settings.buffer_bytes)
        self._reader = LogReader(
            SegmentLoader(objects, settings.s3_namespace, self._pool, metrics),
            settings.cache_size_bytes,
            settings.read_ahead_segments,
            self._pool,
            metrics,
        )
        self._checkpointer = Checkpointer(
            objects, settings.s3_namespace, now_ms, lambda: uuid.uuid4().hex[:8]
        )
        self._publisher = Publisher(
            objects, metadata, settings.s3_namespace, now_ms, self._on_published, random.Random()
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

    def _on_published(self, partition: Partition, sealed: SealedSegment) -> None:
        self._reader.add_published(partition, sealed)
        self._checkpointer.consider(partition)

    async def run(self, stop: asyncio.Event) -> int:
        """Serve until `stop` is set; returns the exit status. Raises `StartupError`."""
        settings = self._settings
        advertised = await self._bind()
        view = ClusterView(await ensure_cluster_id(self._metadata))
        self._leadership = Leadership(
            self._metadata,
            BrokerRecord(broker_id=settings.broker_id, host=advertised.host, port=advertised.port),
            LEASE_TTL_SEC,
        )
        if not await self._leadership.register():
            raise StartupError(
                f"broker id {settings.broker_id} is in use by a live broker: set KAFSCALE_BROKER_ID to another one"
            )
        feeding = asyncio.create_task(ClusterViewFeeder(self._metadata, view).run(), name="cluster view")
        keeping = asyncio.create_task(self._leadership.keep_alive(), name="lease")
        stopping = asyncio.create_task(stop.wait(), name="stop signal")
        try:
            if not await _comes_first(view.ready(), feeding, keeping, stopping):
                _log_failure(feeding, keeping)
                self._listener.stop_accepting()
                await self._leadership.close()
                return EXIT_STOPPED if stopping.done() else EXIT_FAILED
            await self._start(view)
            logger.info(
                "ready",
                extra={
                    "broker_id": settings.broker_id,
                    "advertised": str(advertised),
                    "cluster_id": view.cluster_id,
                },
            )
            await asyncio.wait({feeding, keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                _log_failure(feeding, keeping)
            drained = await self._stop()
            return EXIT_STOPPED if drained and stopping.done() else EXIT_FAILED
        finally:
            for task in (feeding, keeping, stopping):
                task.cancel()
            await asyncio.gather(feeding, keeping, stopping, return_exceptions=True)

    async def _bind(self) -> Address:
        listen = self._settings.broker_addr
        host, port = await self._listener.bind(listen.host, listen.port)
        return advertised_address(self._settings, Address(host, port), socket.gethostname())

    async def _start(self, view: ClusterView) -> None:
        settings, metrics = self._settings, self._metrics
        self._logs = LogManager(
            view,
            self._leadership,
            self._flusher,
            self._publisher,
            self._reader,
            self._checkpointer,
            self._pool,
            self._budget,
            settings,
            metrics,
        )
        await self._logs.start()
        self._record_deletion = RecordDeletion(self._logs, self._objects, settings.s3_namespace)
        self._topic_deletion = TopicDeletion(
            self._metadata,
            self._objects,
            view,
            self._logs,
            broker_id=settings.broker_id,
            namespace=settings.s3_namespace,
        )
        self._topic_deletion.start()
        self._groups = GroupService(
            self._metadata,
            view,
            self._leadership.lease,
            self._logs.log_end_offset,
            settings,
            metrics,
            steady_clock(),
        )
        await self._groups.start()
        broker = Broker(
            settings=settings,
            view=view,
            topics=Topics(self._metadata, view, settings),
            logs=self._logs,
            producer_ids=ProducerIds(self._metadata),
            metrics=metrics,
            purgatory=self._purgatory,
            record_deletion=self._record_deletion,
            groups=self._groups.coordinator,
            now_ms=now_ms,
        )
        self._register_gauges(view)
        await self._listener.start(Dispatcher(broker))
        self._health.set_ready()

    def _register_gauges(self, view: ClusterView) -> None:
        gauge, cache, budget = self._metrics.gauge, self._reader.cache, self._budget
        gauge(metric_families.BUFFER_USED, lambda: budget.used_bytes)
        gauge(metric_families.BUFFER_LIMIT, lambda: budget.limit_bytes)
        gauge(metric_families.CACHE_USED, lambda: cache.used_bytes, cache="segment")
        gauge(metric_families.CACHE_LIMIT, lambda: cache.limit_bytes, cache="segment")
        gauge(metric_families.TOPICS, lambda: view.topic_count)
        gauge(metric_families.PARTITIONS_LED, lambda: self._logs.partition_count)

    async def _stop(self) -> bool:
        """Flush what is buffered, answer what waits, let go; False when not everything could be flushed."""
        self._health.set_not_ready()
        self._listener.stop_accepting()
        self._groups.refuse_requests()
        await self._listener.finish_requests(FINISH_REQUESTS_SEC)
        await self._groups.close()
        drained = True
        try:
            await asyncio.wait_for(self._logs.drain(), self._settings.shutdown_timeout_ms / 1000)
        except TimeoutError:
            drained = False
            logger.error("stopping without having flushed everything; it was not acknowledged to anybody")
        self._logs.end_waiting()
        await self._listener.close()
        self._purgatory.close()
        await self._topic_deletion.close()
        await self._record_deletion.close()
        await self._logs.close()
        await self._leadership.close()
        logger.info("stopped")
        return drained


async def _comes_first(awaited: Coroutine[Any, Any, None], *others: asyncio.Task[Any]) -> bool:
    """Whether `awaited` ends before any of the others; if not, it is cancelled."""
    task = asyncio.create_task(awaited, name="start")
    await asyncio.wait({task, *others}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
        return True
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return False


def _log_failure(feeding: asyncio.Task[None], keeping: asyncio.Task[None]) -> None:
    for task in (feeding, keeping):
        if task.done():
            problem = task.exception()
            logger.error("cannot go on without the %s", task.get_name(), exc_info=problem)
