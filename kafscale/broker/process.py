"""A broker's life: it registers, claims what it is to lead, serves, hands over, drains and stops."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from kafscale.broker.parts import BasicParts, ServingParts, new_token
from kafscale.broker.stores import journal_place
from kafscale.cluster.identity import establish_cluster
from kafscale.cluster.journal_place import settle_journal_place
from kafscale.cluster.view import ClusterView
from kafscale.errors import (
    StartupError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.formats.features import SEGMENT_FORMAT, SUPPORTED, check_segment_settings
from kafscale.formats.journal_keys import journal_probe_key
from kafscale.metadata.model import BrokerRecord, BrokerState, Endpoint, ListenerName
from kafscale.objects.bucket.probe import prove_conditional_writes
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.pages.collector import ServingBroker
from kafscale.settings.kinds import Address
from kafscale.settings.listener_list import check_open_listeners, listener_specs

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

EXIT_STOPPED = 0
EXIT_FAILED = 1

# How long a stop waits for requests that are neither produce nor fetch, creating a topic for one.
FINISH_REQUESTS_SEC = 1.0
# How long a stop waits for the metadata store before it does without handing over.
_ANNOUNCE_SEC = 2.0
_RETRY_DELAY_SEC = 0.5


class BrokerProcess:
    """One broker from its start to its stop."""

    def __init__(self, basics: BasicParts) -> None:
        self.basics = basics
        self.serving: ServingParts  # from when this broker is registered
        self._shown: ServingBroker | None = None
        self.listeners: dict[ListenerName, Address] = {}
        self.ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._staying_registered: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def shown(self) -> ServingBroker | None:
        """The parts that the page for people shows, once this broker is ready. For any thread."""
        return self._shown

    async def run(self, stop: asyncio.Event) -> int:
        """Serve until `stop` is set; returns the exit status. Raises `StartupError`."""
        await self._bind()
        stopping = asyncio.create_task(stop.wait(), name="stop signal")
        ending = asyncio.create_task(self._ended.wait(), name="end of the work")
        starting = asyncio.create_task(self._start(), name="start")
        slow_steps = asyncio.create_task(self.basics.start.log_slow_steps(), name="slow steps of the start")
        try:
            await asyncio.wait({starting, stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            slow_steps.cancel()
            if not starting.done() or starting.exception() is not None:
                return await self._give_up_starting(starting)
            logger.info(
                "ready",
                extra={
                    "broker_id": self.basics.settings.broker_id,
                    "advertised": _text(self.listeners),
                    "cluster_id": self.serving.view.cluster_id,
                    "start": self.basics.start.summary(),
                },
            )
            await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            drained = await self._stop()
            return EXIT_STOPPED if drained and not self._log_failures() else EXIT_FAILED
        finally:
            tasks = (starting, stopping, ending, slow_steps, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.basics.replica_reads is not None:
                await self.basics.replica_reads.close()

    async def _bind(self) -> None:
        """Bind every listener. Raises `StartupError`."""
        listener, settings, host_name = self.basics.listener, self.basics.settings, socket.gethostname()
        for warning in check_open_listeners(settings):
            logger.warning("%s", warning)
        bound_at: dict[ListenerName, Address] = {}
        for spec in listener_specs(settings):
            bound = Address(*await listener.bind(spec))
            bound_at[spec.name] = bound
            if spec.is_advertised:
                self.listeners[spec.name] = spec.advertised(bound, host_name)
        logger.info(
            "Kafka clients connect here once the broker is ready",
            extra={"bootstrap_servers": _text(self.listeners), "listening_on": _text(bound_at)},
        )

    async def _start(self) -> None:
        basics, settings = self.basics, self.basics.settings
        self._keep_running(basics.object_store_probe.run(), "object store probe")
        if basics.tls_files is not None:
            self._keep_running(basics.tls_files.run(), "TLS files")
        step, registration = basics.start.step, basics.registration
        cluster_id = await self._find_cluster()
        with step(f"registering broker id {settings.broker_id}", lambda: registration.obstacle):
            await registration.register(self._record())
        self.serving = serving = ServingParts(basics, self._view(cluster_id))
        with step("beginning the journal"):
            await serving.begin_journal()
        view = serving.view
        self._keep_running(serving.feeder.run(), "cluster view")
        self._staying_registered = self._keep_running(
            basics.tenure.run(
                serving.partitions,
                serving.groups,
                on_registered=serving.begin_journal,
                on_unanswered=serving.stale_view.look,
            ),
            "registration",
        )
        with step("reading the view of the cluster", view.missing):
            await view.ready()
        if serving.acl_feeder is not None:
            self._keep_running(serving.acl_feeder.run(), "access rules")
            with step("reading the access rules"):
                await serving.acl_feeder.ready()
        with step("waiting until the view shows the registration"):
            await view.wait_until(lambda: view.broker_state(settings.broker_id) is not None)
        check_segment_settings(settings, view.feature_level(SEGMENT_FORMAT))
        serving.topic_deletion.start()
        with step("claiming partitions", lambda: f"leads {serving.logs.partition_count}"):
            await serving.partitions.start()
        with step("claiming group shards and loading them", serving.groups.progress):
            await serving.groups.start()
        with step("reading the transactions that it coordinates"):
            await serving.transactions.start()
            serving.sharing.start()
        with step("announcing that it runs"):
            await registration.announce(BrokerState.RUNNING)
            await view.wait_until(lambda: view.broker(settings.broker_id) is not None)
        if serving.token_keys is not None:
            self._keep_running(serving.token_keys.run(), "token keys")
        await basics.listener.start(serving.dispatcher(), serving.sasl)
        basics.health.set_ready()
        self.ready.set()
        self._shown = serving.shown()
        # Not before: what is behind with merging or retention is no reason to keep clients waiting.
        for name, work in serving.log_parts.work().items():
            self._keep_running(work, name)

    def _view(self, cluster_id: str) -> ClusterView:
        counts = self.basics.metrics.background_failures
        return ClusterView(cluster_id, ItemFailures(BackgroundWork.VIEW, counts))

    async def _find_cluster(self) -> str:
        """The cluster's id, once the stores have shown that they are fit for it. Raises `StartupError`."""
        basics, namespace = self.basics, self.basics.settings.s3_namespace
        obstacle = _Obstacle()
        if basics.settings.s3_bucket is not None:
            with basics.start.step("proving the bucket's conditional writes", obstacle.get):
                await _until_answered(
                    lambda: prove_conditional_writes(basics.objects, namespace, new_token()), obstacle
                )
        if basics.settings.journal_bucket is not None:
            with basics.start.step("proving the journal bucket's conditional writes", obstacle.get):
                await _until_answered(
                    lambda: prove_conditional_writes(
                        basics.objects, namespace, new_token(), journal_probe_key
                    ),
                    obstacle,
                )
        with basics.start.step("reading which cluster the stores belong to", obstacle.get):
            cluster_id = await _until_answered(
                lambda: establish_cluster(basics.metadata, basics.objects, namespace), obstacle
            )
            place = journal_place(basics.settings)
            await _until_answered(
                lambda: settle_journal_place(basics.metadata, basics.objects, namespace, place), obstacle
            )
            return cluster_id

    def _record(self) -> BrokerRecord:
        """This broker's registration while it starts."""
        settings = self.basics.settings
        record = BrokerRecord(
            broker_id=settings.broker_id,
            host="",
            port=0,
            rack=settings.rack,
            state=BrokerState.STARTING,
            features=SUPPORTED,
        )
        return record.reached_at({name: Endpoint(at.host, at.port) for name, at in self.listeners.items()})

    def _keep_running(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Work without which the broker cannot go on, nor start: its end is the broker's."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda _: self._ended.set())
        self._tasks.append(task)
        return task

    async def _give_up_starting(self, starting: asyncio.Task[None]) -> int:
        """The stop signal came before the start was over, or the start cannot go on. Raises what ended it."""
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        self.basics.listener.stop_accepting()
        await self._end_registration()
        if not starting.cancelled():
            starting.result()
        return EXIT_FAILED if self._log_failures() else EXIT_STOPPED

    async def _stop(self) -> bool:
        """Hand over, flush what is buffered, answer what waits, close; False if not everything was flushed."""
        basics, serving = self.basics, self.serving
        basics.health.set_not_ready()
        deadline = asyncio.get_running_loop().time() + basics.settings.shutdown_timeout_ms / 1000
        is_announced = await self._hand_over(deadline)
        basics.listener.stop_accepting()
        serving.groups.refuse_requests()
        serving.transactions.refuse_requests()
        await basics.listener.finish_requests(FINISH_REQUESTS_SEC)
        await serving.groups.close()
        await serving.transactions.close()
        await serving.sharing.close()
        drained = True
        try:
            async with asyncio.timeout_at(deadline):
                await serving.logs.drain()
        except TimeoutError:
            drained = False
            logger.error(
                "stopping without having flushed everything; what is left was not acknowledged",
                extra=serving.logs.unfinished(),
            )
        serving.logs.end_waiting()
        await basics.listener.close()
        serving.sasl.close()
        serving.purgatory.close()
        await serving.leader_changes.close()
        await serving.sequence_error_check.close()
        await serving.started.close()
        await serving.topic_deletion.close()
        if is_announced:
            await self._store_records(deadline)
        await serving.partitions.close()
        await serving.log_parts.close()
        await self._end_registration()
        logger.info("stopped")
        return drained

    async def _store_records(self, deadline_sec: float) -> None:
        """Store the records of the partitions that no other broker leads by now, as far as there is time.

        Tools that run while no broker does find them up to date, and the next leader has no journal to read.
        """
        try:
            async with asyncio.timeout_at(deadline_sec):
                await self.serving.partitions.resign_all()
        except TimeoutError:
            logger.warning("stopping with records that are behind: the next leader reads the journal")

    async def _hand_over(self, deadline_sec: float) -> bool:
        """Let the brokers that go on lead and coordinate what this one does, as far as there is time.

        False if the metadata store does not answer.
        """
        basics, serving, view = self.basics, self.serving, self.serving.view
        broker_id = basics.settings.broker_id
        try:
            async with asyncio.timeout(_ANNOUNCE_SEC):
                await basics.registration.announce(BrokerState.STOPPING)
                await view.wait_until(lambda: view.broker_state(broker_id) in (BrokerState.STOPPING, None))
        except TimeoutError:
            logger.warning("the metadata store does not answer: stopping without handing over")
            return False
        try:
            async with asyncio.timeout_at(deadline_sec):
                await asyncio.gather(serving.partitions.handed_over(), serving.groups.handed_over())
        except TimeoutError:
            logger.warning("stopping without having handed over everything")
            return True
        if view.brokers_to_read_from():
            await self._linger(deadline_sec)
        return True

    async def _linger(self, deadline_sec: float) -> None:
        """Answer the clients' next requests: other brokers serve them from now on.

        A consumer sends a heartbeat every three seconds. One that finds its connection closed and no listener may
        revoke its partitions, as franz-go's does.
        """
        with suppress(TimeoutError):
            async with (
                asyncio.timeout_at(deadline_sec),
                asyncio.timeout(self.basics.settings.shutdown_linger_ms / 1000),
            ):
                await self.basics.listener.no_connections()

    async def _end_registration(self) -> None:
        """End the lease; if the store is away, it ends by itself."""
        if self._staying_registered is not None:
            # It would take the lease's end for a reason to register again.
            self._staying_registered.cancel()
            await asyncio.gather(self._staying_registered, return_exceptions=True)
        try:
            async with asyncio.timeout(_ANNOUNCE_SEC):
                await self.basics.registration.close()
        except (TimeoutError, StoreUnavailableError, StoreIndeterminateError) as problem:
            logger.warning("could not end the lease, it will end by itself", extra={"problem": str(problem)})

    def _log_failures(self) -> bool:
        """True if work that the broker cannot go on without has ended by itself."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        for task in ended:
            logger.error("cannot go on without the %s", task.get_name(), exc_info=task.exception())
        return bool(ended)


def _text(addresses: Mapping[ListenerName, Address]) -> str:
    """As in Kafka's `listeners`; without the name if there is only PLAINTEXT."""
    if addresses.keys() == {ListenerName.PLAINTEXT}:
        return str(addresses[ListenerName.PLAINTEXT])
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


class _Obstacle:
    """Why the last attempt of something failed."""

    def __init__(self) -> None:
        self.problem: str | None = None

    def get(self) -> str | None:
        return self.problem


async def _until_answered(call: Callable[[], Awaitable[Result]], obstacle: _Obstacle) -> Result:
    """The result of a call of the stores, however long they are away: nothing is taken for empty meanwhile.

    Raises `StartupError` when one of them refuses it: that will not change by itself.
    """
    while True:
        try:
            result = await call()
        except StoreRefusedError as refused:
            raise StartupError(f"a store refuses what the broker needs: {refused}") from refused
        except (StoreUnavailableError, StoreIndeterminateError) as problem:
            logger.warning("waiting for the stores", extra={"problem": str(problem)})
            obstacle.problem = str(problem)
        else:
            obstacle.problem = None
            return result
        await asyncio.sleep(_RETRY_DELAY_SEC)
