"""A whole broker in the test's own process and loop, over stores in memory, and a client for its socket."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka.protocol.admin import CreateTopicsResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.broker.parts import BasicParts
from kafscale.broker.process import BrokerProcess
from kafscale.clocks import SYSTEM, Clocks
from kafscale.formats.topic_record import decode_broker_record
from kafscale.log.partition import Partition
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadataStore
from kafscale.metadata.store import MetadataStore
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode
from kafscale.server.dispatcher import Dispatcher
from kafscale.settings.broker import CompressionCodec, Settings
from kafscale.settings.kinds import Address
from kafscale.testing.faulty_dispatcher import FaultyDispatcher
from kafscale.testing.request_faults import RequestFaults
from kafscale.testing.store_faults import FaultyObjectStore, StoreFaults
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.group_shards import with_group_shards
from tests.support.sealing import seal
from tests.support.topics import create_topics_request
from tests.support.waiting import PATIENCE_SEC

TIMEOUT_SEC = PATIENCE_SEC
CREATE_TOPICS_VERSION = 7


async def until(condition: Callable[[], object], what: str) -> None:
    """Let the loop run until the condition holds."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT_SEC
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"{what}: not within {TIMEOUT_SEC} s")
        await asyncio.sleep(0.001)


class ConnectionEndedError(Exception):
    """The broker closed the connection where a reply was read."""


class NotStartedError(Exception):
    """The broker stopped before it was ready."""

    def __init__(self, exit_status: int) -> None:
        super().__init__(f"exit status {exit_status}")
        self.exit_status = exit_status


class Client:
    """A raw connection. Replies are read in the order in which they come."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._correlation_id = 0

    async def send_bytes(self, data: bytes) -> None:
        # Not `wait_for`: before Python 3.12 it loses a cancellation that comes with the result.
        async with asyncio.timeout(TIMEOUT_SEC):
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def send_some(self, data: bytes) -> int:
        """Send what the socket accepts now; returns its size."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def frame(self, request: Any, version: int) -> bytes:
        """A request's bytes, under the next correlation id."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id="tests")
        return bytes(request.encode(framed=True, header=True))

    async def send(self, request: Any, version: int) -> int:
        """Send a request and do not wait; returns its correlation id."""
        await self.send_bytes(self.frame(request, version))
        return self._correlation_id

    async def receive_exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            read = asyncio.get_running_loop().sock_recv(self._socket, min(count - len(received), 1 << 20))
            try:
                async with asyncio.timeout(TIMEOUT_SEC):
                    chunk = await read
            except ConnectionError as problem:
                raise ConnectionEndedError(str(problem)) from problem
            if not chunk:
                raise ConnectionEndedError(f"closed after {len(received)} of {count} bytes")
            received += chunk
        return bytes(received)

    async def receive_frame(self) -> bytes:
        """The next frame without its length."""
        (length,) = struct.unpack(">i", await self.receive_exactly(4))
        return await self.receive_exactly(length)

    async def receive(self, response: Any, version: int) -> Any:
        return response.decode(await self.receive_frame(), version=version, header=True)

    async def call(self, request: Any, response: Any, version: int) -> Any:
        """Send, wait, decode."""
        sent = await self.send(request, version)
        reply = await self.receive(response, version)
        assert reply.header.correlation_id == sent
        return reply

    async def closed_by_peer(self) -> bool:
        """True if the next event is the connection's end."""
        try:
            await self.receive_exactly(1)
        except ConnectionEndedError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()

    # --- produce and fetch

    async def send_produce(
        self,
        topic: str,
        partitions: Mapping[int, bytes],
        *,
        version: int = wire.PRODUCE_VERSION,
        **extra: int,
    ) -> int:
        return await self.send(wire.produce_request(topic, dict(partitions), **extra), version)

    async def receive_produce(self, *, version: int = wire.PRODUCE_VERSION) -> tuple[int, dict[int, Any]]:
        """The next reply's correlation id, and its parts by partition."""
        reply = await self.receive(ProduceResponse, version)
        return reply.header.correlation_id, {
            part.index: part for topic in reply.responses for part in topic.partition_responses
        }

    async def produce_together(self, topic: str, partition: int, batches: Sequence[bytes]) -> None:
        """Produce batches that become one segment: one request that names the partition for each of them."""
        request = wire.produce_request(topic, {})
        for batch in batches:
            request.topic_data += wire.produce_request(topic, {partition: batch}).topic_data
        reply = await self.call(request, ProduceResponse, wire.PRODUCE_VERSION)
        assert {part.error_code for one in reply.responses for part in one.partition_responses} == {0}

    async def produce(self, topic: str, partition: int, records: bytes, **extra: int) -> Any:
        """Produce to one partition; returns its part of the reply."""
        await self.send_produce(topic, {partition: records}, **extra)
        version = extra.get("version", wire.PRODUCE_VERSION)
        return (await self.receive_produce(version=version))[1][partition]

    async def produce_as_clients_do(self, topic: str, partition: int, records: bytes) -> Any:
        """The same, sent again while no broker leads: a leader that meets an orphan starts a new epoch."""
        async with asyncio.timeout(TIMEOUT_SEC):
            while True:
                part = await self.produce(topic, partition, records)
                if part.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    return part
                await asyncio.sleep(0.001)

    async def send_fetch(self, topic: str, offsets: Mapping[int, int], **limits: int) -> int:
        return await self.send(wire.fetch_request(topic, dict(offsets), **limits), wire.FETCH_VERSION)

    async def receive_fetch(self) -> dict[int, Any]:
        """The next reply's parts by partition."""
        reply = await self.receive(FetchResponse, wire.FETCH_VERSION)
        return {part.partition_index: part for topic in reply.responses for part in topic.partitions}

    async def fetch(self, topic: str, offsets: Mapping[int, int], **limits: int) -> dict[int, Any]:
        await self.send_fetch(topic, offsets, **limits)
        return await self.receive_fetch()


@dataclass(kw_only=True)
class InProcessBroker:
    """The parts for a test."""

    process: BrokerProcess
    metrics: Metrics
    metadata: MetadataStore
    objects: ControlledStore
    port: int
    stop_signal: asyncio.Event
    running: asyncio.Task[int]

    # The parts that tests look into: they are not visible to clients.

    @property
    def budget(self) -> MemoryBudget:
        return self.process.basics.budget

    @property
    def pool(self) -> SlabPool:
        return self.process.basics.pool

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.process.serving.logs.partition(topic, index)
        assert found is not None
        return found

    async def seal(self, topic: str, index: int = 0) -> None:
        """Make a segment of what the journal has of the partition."""
        await seal(self.process.serving.log_parts, self.partition(topic, index))

    def forget_cached(self, topic: str, index: int = 0) -> None:
        """Make the next fetch of the partition a cold one."""
        self.process.serving.reader.forget(self.partition(topic, index))

    @property
    def connection_count(self) -> int:
        return self.metrics.connections.current

    async def stop(self) -> int:
        """Stop as a signal does; returns the exit status."""
        self.stop_signal.set()
        return await self.running

    @contextlib.asynccontextmanager
    async def connect(self, *, receive_buffer_bytes: int | None = None) -> AsyncIterator[Client]:
        connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connected.setblocking(False)
        if receive_buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", self.port))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield Client(connected)
        finally:
            connected.close()

    async def create_topic(
        self, name: str = "topic", partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic and wait until this broker leads it."""
        request = create_topics_request(name, partitions, configs)
        async with self.connect() as client:
            reply = (await client.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION)).topics[0]
            assert reply.error_code == 0, reply
        logs = self.process.serving.logs
        await until(
            lambda: all(logs.partition(name, index) is not None for index in range(partitions)),
            f"{name} is led",
        )
        return name


class _FewShards:
    """Fewer group shards while such a broker is there: two thirds of a start go to the 64 that brokers have."""

    COUNT = 4

    def __init__(self) -> None:
        self._brokers = 0
        self._patch = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        if not self._brokers:
            self._patch.enter_context(with_group_shards(self.COUNT))
        self._brokers += 1
        try:
            yield
        finally:
            self._brokers -= 1
            if not self._brokers:
                self._patch.close()


_few_shards = _FewShards()


def dispatcher_of(broker: InProcessBroker) -> Dispatcher:
    """The dispatcher of its connections, for a broker without faults."""
    dispatcher = broker.process.basics.listener.dispatcher
    assert isinstance(dispatcher, Dispatcher)
    return dispatcher


@contextlib.asynccontextmanager
async def in_process_broker(
    *,
    metadata: MetadataStore | None = None,
    objects: ControlledStore | None = None,
    stop_signal: asyncio.Event | None = None,
    clocks: Clocks = SYSTEM,
    faults: RequestFaults | None = None,
    store_faults: StoreFaults | None = None,
    **settings: Any,
) -> AsyncIterator[InProcessBroker]:
    """A running broker. By default it flushes at once, keeps batches as they come, and reads nothing ahead.

    Every client is sent batches as they are stored, unless `codec_clients` says otherwise. With a flush interval
    nothing is flushed before its time unless `flushes_per_sec` says so.
    """
    values: dict[str, Any] = {
        "broker_addr": Address("127.0.0.1", 0),
        "flush_interval_ms": 0,
        "flushes_per_sec": 0,
        "codec_clients": ("*",),
        "compression_codec": CompressionCodec.PRODUCER,
        "read_ahead_segments": 0,
        "shutdown_linger_ms": 0,
        **settings,
    }
    metadata = metadata or MemoryMetadataStore()
    objects = objects or ControlledStore()
    metrics, health, stop = Metrics(), Health(), stop_signal or asyncio.Event()
    around = None if faults is None else partial(FaultyDispatcher, faults)
    store = objects if store_faults is None else FaultyObjectStore(objects, store_faults)
    parts = BasicParts(
        Settings(**values), metrics, health, metadata, store, clocks=clocks, around_dispatcher=around
    )
    with _few_shards():
        process = BrokerProcess(parts)
        running = asyncio.create_task(process.run(stop))
        try:
            await until(lambda: running.done() or not health.readiness_problems(), "the broker is ready")
            if running.done():
                raise NotStartedError(running.result())
            registered = await metadata.get(keys.broker(values.get("broker_id", 0)))
            assert registered is not None
            yield InProcessBroker(
                process=process,
                metrics=metrics,
                metadata=metadata,
                objects=objects,
                port=decode_broker_record(registered.key, registered.value).port,
                stop_signal=stop,
                running=running,
            )
        finally:
            stop.set()
            await running
