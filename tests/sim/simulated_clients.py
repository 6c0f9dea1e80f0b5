"""Producers and consumers of a simulated cluster, who behave as Kafka's do and note what they were told."""

import asyncio
import random
import uuid
from dataclasses import dataclass, field
from typing import Protocol

from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.sim.client_frames import Produced, fetch_frame, fetched, produce_frame, produced
from tests.sim.invariants import Invariants
from tests.sim.links import Conditions, Link
from tests.sim.published_log import PublishedLog
from tests.sim.simulated_broker import START_MS, SimulatedBroker
from tests.sim.simulated_connection import ClientConnection, DisconnectedError
from tests.sim.trace import Trace
from tests.support.history import History
from tests.support.history_checker import Promise
from tests.support.ledger import value_of

STALE_LEADER_RATE = 0.05
NO_LEADER_EPOCH = -1

# What a produce request may hear while the cluster is in trouble: its client tries again.
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
FETCH_RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


class Surroundings(Protocol):
    """What a client needs of the simulated cluster."""

    rng: random.Random
    trace: Trace
    invariants: Invariants
    history: History
    client_conditions: Conditions

    def broker(self, broker_id: int) -> SimulatedBroker | None:
        """The broker that listens under that id now, if it can be reached."""

    def brokers_up(self) -> list[SimulatedBroker]:
        """Those that clients can reach, in order."""

    def fail(self, message: str) -> None:
        """Something that must never happen has happened."""


class Client:
    """Looks up leaders and keeps one connection for each broker."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name = name
        self.around = surroundings
        self.rng = surroundings.rng
        self.link = Link(name, surroundings.rng, surroundings.client_conditions, surroundings.trace)
        self._connections: dict[SimulatedBroker, ClientConnection] = {}

    def leader(self, topic: str, index: int) -> tuple[SimulatedBroker | None, int]:
        """Who leads the partition, and in which epoch, as some broker tells it; sometimes simply any broker."""
        up = self.around.brokers_up()
        if not up:
            return None, NO_LEADER_EPOCH
        asked = self.rng.choice(up)
        if self.rng.random() < STALE_LEADER_RATE:
            return self.rng.choice(up), NO_LEADER_EPOCH
        leader = asked.view.leader(topic, index)
        if leader is None:
            return None, NO_LEADER_EPOCH
        return self.around.broker(leader.broker_id), leader.leader_epoch

    def connection(self, broker: SimulatedBroker) -> ClientConnection:
        """The one that is open, or a new one."""
        held = self._connections.get(broker)
        if held is None or not held.is_open:
            held = self._connections[broker] = ClientConnection(self.name, broker, self.link)
        return held

    async def ask(self, broker: SimulatedBroker, frame: bytes, timeout_sec: float) -> bytes:
        """The reply. Raises `DisconnectedError` also when it does not come in time."""
        connection = self.connection(broker)
        try:
            return await asyncio.wait_for(connection.request(frame), timeout_sec)
        except TimeoutError:
            connection.close()
            raise DisconnectedError from None

    async def rest(self, longest_sec: float) -> None:
        """A while."""
        await asyncio.sleep(self.rng.random() * longest_sec)


@dataclass(slots=True, eq=False)
class _Batch:
    number: int
    sequence: int
    values: list[bytes]
    sent_again: bool = False
    is_first: bool = False  # when it was sent
    is_behind: bool = False  # and not before any: its broker has seen all that is not settled before it
    connection: ClientConnection | None = None
    answer: "asyncio.Task[Produced | None] | None" = None


@dataclass(slots=True, kw_only=True)
class Load:
    """How much a producer sends, and when. Times in seconds."""

    batches: int
    longest_pause: float
    timeout: float = 3.0


class Producer(Client):
    """What idempotent and plain producers have in common."""

    promise: Promise

    def __init__(self, name: str, around: Surroundings, topic: str, index: int, load: Load) -> None:
        super().__init__(name, around)
        self.topic = topic
        self.index = index
        self.load = load
        self.unfinished = load.batches
        self._number = 0
        around.history.promise(name, self.promise)

    def _values(self) -> list[bytes]:
        count = self.rng.randrange(1, 4)
        values = [value_of(self.name, self._number + one) for one in range(count)]
        self._number += count
        return values

    def _frame(self, batch: bytes) -> bytes:
        return produce_frame(self.topic, self.index, batch, int(self.load.timeout * 1000))

    def _acknowledge(self, values: list[bytes], base_offset: int) -> None:
        self.around.trace.add(
            self.name, f"is told {self.topic}-{self.index} offset {base_offset} for", values[0]
        )
        for number, value in enumerate(values):
            log = self.around.invariants.acknowledged(
                self.name, self.topic, self.index, base_offset + number, value
            )
            if log is not None:
                self.around.history.acknowledge(*log.place, base_offset + number, value)

    def _check_error(self, error_code: int) -> None:
        self.around.trace.add(self.name, "hears", ErrorCode(error_code).name)
        if error_code not in RETRIABLE:
            self.around.fail(f"{self.name} was refused with {ErrorCode(error_code).name}")


class PlainProducer(Producer):
    """Sends each batch once, whatever becomes of it."""

    promise = Promise.SENT_ONCE

    async def run(self) -> None:
        """Until everything was sent."""
        while self.unfinished:
            await self.rest(self.load.longest_pause)
            broker, _ = self.leader(self.topic, self.index)
            if broker is not None:
                await self._send(broker)
                self.unfinished -= 1

    async def _send(self, broker: SimulatedBroker) -> None:
        values = self._values()
        batch = encode_batch([Record(at, START_MS, None, value) for at, value in enumerate(values)])
        self.around.trace.add(self.name, "sends", values[0], "to", broker.name)
        try:
            answer = produced(await self.ask(broker, self._frame(batch), 2 * self.load.timeout))
        except DisconnectedError:
            self._doubt(values, "disconnected")
            return
        if answer.error_code:
            self._check_error(answer.error_code)
            self._doubt(values, ErrorCode(answer.error_code).name)
        else:
            self._acknowledge(values, answer.base_offset)

    def _doubt(self, values: list[bytes], reason: str) -> None:
        for value in values:
            self.around.history.doubt(self.topic, self.index, value, reason)


class IdempotentProducer(Producer):
    """Sends every batch until it is acknowledged, several at a time.

    A batch that is sent again is sent alone: only the oldest one that is not settled may be. `drains`: nothing goes
    to another leader while an answer of the last one is awaited, as with librdkafka; the Java client does not wait.
    """

    promise = Promise.IDEMPOTENT

    def __init__(
        self,
        name: str,
        around: Surroundings,
        topic: str,
        index: int,
        load: Load,
        producer_id: int,
        in_flight: int,
        *,
        drains: bool,
    ) -> None:
        super().__init__(name, around, topic, index, load)
        self._producer_id = producer_id
        self._in_flight = in_flight
        self._drains = drains
        self._sequence = 0
        self._unsettled: list[_Batch] = []
        self._made = 0

    async def run(self) -> None:
        """Until everything was acknowledged."""
        while self.unfinished:
            if self._has_room(self._in_flight):
                values = self._values()
                self._unsettled.append(_Batch(self._made, self._sequence, values))
                self._sequence += len(values)
                self._made += 1
            self._send_what_may_be()
            waiting = [batch.answer for batch in self._unsettled if batch.answer is not None]
            pause = self.rng.random() * self.load.longest_pause
            if waiting:
                timeout = (
                    pause if self._has_room(self._in_flight) or len(waiting) < len(self._unsettled) else None
                )
                await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                self._settle()
            else:
                await asyncio.sleep(pause)
        if self._unsettled:
            self.around.fail(f"{self.name} is done and {len(self._unsettled)} batches are not settled")

    def _has_room(self, room: int) -> bool:
        """No more than so many from the oldest one on: a leader remembers the last five to recognise them."""
        oldest = self._unsettled[0].number if self._unsettled else self._made
        return self._made < min(self.load.batches, oldest + room)

    def _send_what_may_be(self) -> None:
        broker = None
        for batch in self._unsettled:
            if batch.answer is not None:
                continue
            if batch.sent_again and batch is not self._unsettled[0]:
                return
            if broker is None:
                broker, _ = self.leader(self.topic, self.index)
                if broker is None or self._must_wait_for(broker):
                    return
            batch.connection = self.connection(broker)
            batch.is_behind = self._drains and all(
                other.answer is not None for other in self._unsettled[: self._unsettled.index(batch)]
            )
            batch.is_first = batch is self._unsettled[0]
            self.around.trace.add(self.name, "sends", batch.values[0], "to", broker.name)
            batch.answer = asyncio.create_task(self._send(broker, batch))

    def _must_wait_for(self, broker: SimulatedBroker) -> bool:
        """Whether answers are awaited that come another way."""
        connection = self.connection(broker)
        return self._drains and any(
            batch.answer is not None and batch.connection is not connection for batch in self._unsettled
        )

    async def _send(self, broker: SimulatedBroker, batch: _Batch) -> Produced | None:
        encoded = encode_batch(
            [Record(at, START_MS, None, value) for at, value in enumerate(batch.values)],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )
        try:
            return produced(await self.ask(broker, self._frame(encoded), 2 * self.load.timeout))
        except DisconnectedError:
            return None

    def _settle(self) -> None:
        for batch in list(self._unsettled):
            if batch.answer is None or not batch.answer.done():
                continue
            answer, batch.answer, batch.sent_again = batch.answer.result(), None, True
            if answer is None:
                self.around.trace.add(self.name, "loses its connection, and", batch.values[0])
            elif answer.error_code == ErrorCode.NONE:
                self._acknowledge(batch.values, answer.base_offset)
                self._unsettled.remove(batch)
                self.unfinished -= 1
            elif (
                answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                and not batch.is_first
                and not batch.is_behind
            ):
                self.around.trace.add(self.name, "is out of order behind another batch")
            else:
                self._check_error(answer.error_code)


@dataclass(eq=False)
class Consumer(Client):
    """Reads one partition of one topic, from its leader or from any broker, as long as the topic is there."""

    name: str
    around: Surroundings
    log: PublishedLog
    topic_id: uuid.UUID
    rack: str
    hop_rate: float
    position: int = 0
    max_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        super().__init__(self.name, self.around)
        self.max_bytes = self.rng.choice((1, 300, 1 << 20))
        self._journal = self.around.history.reader(self.name)
        self._journal.begin(self.log.place, 0)
        self._preferred: int | None = None

    async def run(self) -> None:
        """Until its topic is deleted."""
        while not self.log.is_deleted:
            broker, leader_epoch = self._choose()
            if broker is None:
                await self.rest(0.5)
                continue
            frame = fetch_frame(
                self.topic_id,
                self.log.index,
                self.position,
                leader_epoch=leader_epoch,
                max_wait_ms=2_000,
                max_bytes=self.max_bytes,
                rack=self.rack,
            )
            try:
                answer = fetched(await self.ask(broker, frame, 12))
            except DisconnectedError:
                self._preferred = None
                await self.rest(0.2)
                continue
            await self._take(broker, answer.error_code, answer.preferred_read_replica, answer.records)

    def _choose(self) -> tuple[SimulatedBroker | None, int]:
        if self._preferred is not None:
            return self.around.broker(self._preferred), NO_LEADER_EPOCH
        up = self.around.brokers_up()
        if up and self.rng.random() < self.hop_rate:
            return self.rng.choice(up), NO_LEADER_EPOCH
        return self.leader(self.log.name, self.log.index)

    async def _take(
        self, broker: SimulatedBroker, error_code: int, preferred: int, records: list[tuple[int, bytes]]
    ) -> None:
        if error_code or self.rng.random() < self.hop_rate:
            self._preferred = None
        if error_code:
            await self._handle(broker, error_code)
        if preferred >= 0:
            self._preferred = preferred
        for offset, value in records:
            if offset >= self.position:
                self.around.trace.add(self.name, f"reads {self.log} offset {offset} at {broker.name}:", value)
                self.around.invariants.seen(self.name, self.log, self.position, offset, value)
                self._journal.see(self.log.place, offset, value)
                self.position = offset + 1

    async def _handle(self, broker: SimulatedBroker, error_code: int) -> None:
        name = ErrorCode(error_code).name
        self.around.trace.add(self.name, f"at {self.position} hears", name, "from", broker.name)
        if error_code not in FETCH_RETRIABLE and not self.log.is_deleted:
            self.around.fail(f"{self.name} heard {name} from {broker.name} for {self.log} at {self.position}")
        await self.rest(0.3)
