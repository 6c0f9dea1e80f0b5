"""One broker inside its event loop: started, stopped, killed, and started again where it was."""

import asyncio
import dataclasses
import logging
import socket
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kafscale.broker.parts import BasicParts
from kafscale.broker.process import BrokerProcess
from kafscale.clocks import Clocks
from kafscale.cluster.view import ClusterView
from kafscale.errors import StartupError
from kafscale.log.journal.end_journal import JournalUnknownError
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.health import Health
from kafscale.ops.http import AdminServer
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.listeners import ListenerName
from kafscale.server.connection_host import RequestDispatcher
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import NamedAddress
from kafscale.settings.listener_list import listener_specs
from kafscale.testing.faulty_dispatcher import FaultyDispatcher
from kafscale.testing.interventions import fence
from kafscale.testing.lives import Life, linked
from kafscale.testing.orders import OrderedFaults
from kafscale.testing.requests import RequestError, Requests
from kafscale.testing.store_faults import FaultyMetadataStore, FaultyObjectStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOCAL = "127.0.0.1"
_ACCEPT_TURNS = 4
_FENCE_SEC = 30.0
_LOOK_AGAIN_SEC = 0.001


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a cluster, and the faults of all its brokers. `clocks`: the brokers' clocks."""

    metadata: MetadataStore
    objects: ObjectStore
    faults: OrderedFaults
    clocks: Clocks


class Node:
    """A broker over stores that outlive it. All but its attributes is for the loop's thread alone."""

    def __init__(self, settings: Settings, stores: Stores, *, serves_metrics: bool) -> None:
        self.faults = OrderedFaults()
        self.broker_id = settings.broker_id
        self.address = settings.broker_addr
        self.metrics_url: str | None = None
        self._settings = settings
        self._stores = stores
        self._serves_metrics = serves_metrics
        self._life: Life | None = None
        self._process: BrokerProcess | None = None
        self._requests: Requests | None = None
        self._running: asyncio.Task[int] | None = None
        self._stop = asyncio.Event()
        self._admin: AdminServer | None = None
        self._kept_ports: list[socket.socket] = []

    @property
    def is_up(self) -> bool:
        """True while it serves clients."""
        return self._requests is not None and self._running is not None and not self._running.done()

    @property
    def process(self) -> BrokerProcess:
        """The parts of the broker. Raises `RuntimeError` while it does not run."""
        if self._process is None or self._requests is None:
            raise _not_running(self.broker_id)
        return self._process

    @property
    def requests(self) -> Requests:
        """The test's own requests to it. Raises `RuntimeError` while it does not run."""
        if self._requests is None:
            raise _not_running(self.broker_id)
        return self._requests

    async def start(self) -> None:
        """Start it, at the port that it had before if it ran before. Raises `StartupError`."""
        await self._end_lease()  # of an earlier run that was killed, or that could not reach the store
        self.close()
        self._stop = asyncio.Event()
        self._life = life = Life()
        process = self._process = BrokerProcess(self._parts(life))
        self._running = life.spawn(process.run(self._stop), f"broker {self.broker_id}")
        ready = life.spawn(process.ready.wait(), "ready")
        await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            try:
                status = self._running.result()
            finally:
                await self._gone()
            raise StartupError(f"broker {self.broker_id} ended with status {status} before it was ready")
        self.address = next(iter(process.listeners.values()))
        self._settings = _bound(self._settings, process.listeners)
        self._requests = Requests(process.serving.services)

    def _parts(self, life: Life) -> BasicParts:
        metrics, health = Metrics(broker_id=self.broker_id), Health()
        if self._serves_metrics:
            self._admin = AdminServer(metrics, health)
            self.metrics_url = f"http://{LOCAL}:{self._admin.start(LOCAL, 0)}/metrics"
        metadata, objects = self._stores.metadata, self._stores.objects
        for faults in self._fault_levels:
            metadata = FaultyMetadataStore(metadata, faults.metadata)
            objects = FaultyObjectStore(objects, faults.objects)
        return BasicParts(
            self._settings,
            metrics,
            health,
            linked(metadata, life),
            linked(objects, life),
            clocks=self._stores.clocks,
            around_dispatcher=self._with_faults,
        )

    @property
    def _fault_levels(self) -> tuple[OrderedFaults, OrderedFaults]:
        return self._stores.faults, self.faults

    def _with_faults(self, dispatcher: RequestDispatcher, view: ClusterView) -> RequestDispatcher:
        for faults in self._fault_levels:
            dispatcher = FaultyDispatcher(faults.requests, dispatcher, view)
        return dispatcher

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a request to this broker, as a part of its life: what is killed answers nothing.

        Raises what it raises, and `RequestError` if the broker is killed meanwhile.
        """
        life = self._life
        if life is None or self._requests is None:
            work.close()
            raise _not_running(self.broker_id)
        running = life.spawn(work, "request of the test")
        await asyncio.wait([running])
        if running.cancelled() and life.is_over:
            raise RequestError(ErrorCode.NETWORK_EXCEPTION.name, f"broker {self.broker_id} was killed")
        return running.result()

    async def stop(self) -> None:
        """Stop as by SIGTERM: what is buffered is stored, requests in flight are answered."""
        if self._running is None or self._life is None:
            return
        self._requests = None
        self._stop.set()
        try:
            await self._running
        finally:
            await self._gone()

    async def kill(self, *, lease_ends: bool) -> None:
        """End as by `kill -9`: nothing is stored any more, clients get no answers, only the connections' end."""
        _ = self.process
        self._requests = None
        await self._gone()
        if lease_ends:
            await self._end_lease()

    async def _end_lease(self) -> None:
        """End the lease that its registration is bound to, if there is one: it does not run."""
        registered = await self._stores.metadata.get(keys.broker(self.broker_id))
        if registered is not None:
            await self._stores.metadata.revoke_lease(registered.lease)

    async def fence(self) -> None:
        """See `KafkaBroker.fence`."""
        stores, deadline = self._stores, time.monotonic() + _FENCE_SEC
        while True:
            try:
                await fence(self.process, stores.metadata, stores.objects, stores.clocks.now_ms)
            except JournalUnknownError:
                # It registers again just now, and is about to begin its next journal.
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_LOOK_AGAIN_SEC)
            else:
                return

    async def _gone(self) -> None:
        life, process = self._life, self._process
        assert life is not None and process is not None
        self._life = self._running = self._process = None
        life.is_over = True
        await life.accepted()
        process.basics.listener.stop_accepting()
        # A client may have been accepted just now: its task, its transport and its protocol take a turn each.
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        process.basics.listener.abort()
        self._keep_ports()
        admin, self._admin, self.metrics_url = self._admin, None, None
        await life.end()
        if admin is not None:
            await asyncio.to_thread(admin.stop)

    def _keep_ports(self) -> None:
        """No other program is to have the ports before the restart; until then connections are refused."""
        for spec in listener_specs(self._settings):
            kept = socket.socket(socket.AF_INET6 if ":" in spec.address.host else socket.AF_INET)
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                kept.bind((spec.address.host, spec.address.port))
            except OSError as problem:
                kept.close()
                logger.warning("cannot keep a port", extra={"at": str(spec.address), "problem": str(problem)})
            else:
                self._kept_ports.append(kept)

    def close(self) -> None:
        """Give the ports back."""
        while self._kept_ports:
            self._kept_ports.pop().close()


def _bound(settings: Settings, listeners: Mapping[ListenerName, Address]) -> Settings:
    """The settings with the ports that the system has chosen, so that the next start has the same ones."""
    if settings.listeners is None:
        port = next(iter(listeners.values())).port
        return dataclasses.replace(settings, broker_addr=Address(settings.broker_addr.host, port))
    bound = tuple(
        entry
        if entry.address.port or entry.name not in listeners
        else NamedAddress(entry.name, Address(entry.address.host, listeners[entry.name].port))
        for entry in settings.listeners
    )
    return dataclasses.replace(settings, listeners=bound)


def _not_running(broker_id: int) -> RuntimeError:
    return RuntimeError(f"broker {broker_id} does not run: start it with restart()")
