"""Producers of a simulated cluster, who behave as Kafka's do and note what they were told."""

import asyncio
from dataclasses import dataclass

from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.sim.client_frames import Produced, produce_frame, produced
from tests.sim.simulated_broker import START_MS, SimulatedBroker
from tests.sim.simulated_clients import Client, Surroundings
from tests.sim.simulated_connection import ClientConnection, DisconnectedError
from tests.support.history_checker import Promise
from tests.support.ledger import value_of

# What a produce request may hear while the cluster is in trouble: its client tries again.
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


@dataclass(slots=True, eq=False)
class _Batch:
    number: int
    sequence: int
    values: list[bytes]
    sent_again: bool = False
    is_first: bool = False  # when it was sent
    is_behind: bool = False  # and not before any: its broker has seen all that is not settled before it
    broker: SimulatedBroker | None = None
    connection: ClientConnection | None = None
    answer: "asyncio.Task[Produced | None] | None" = None


@dataclass(slots=True, kw_only=True)
class Load:
    """How much a producer sends, and when. Times in seconds."""

    batches: int
    longest_pause: float
    timeout: float = 3.0


class Producer(Client):
    """The common part of idempotent and plain producers."""

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

    def _records(self, values: list[bytes]) -> list[Record]:
        """With a key, if there are keys: the same for the same value."""
        count = self.around.keys
        return [
            Record(at, START_MS, b"%d" % (sum(value) % count) if count else None, value)
            for at, value in enumerate(values)
        ]

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

    def _acknowledge_somewhere(self, values: list[bytes]) -> None:
        self.around.trace.add(self.name, f"is told {self.topic}-{self.index} has", values[0])
        for value in values:
            found = self.around.invariants.acknowledged_somewhere(self.name, self.topic, self.index, value)
            if found is not None:
                log, offset = found
                self.around.history.acknowledge(*log.place, offset, value)

    def _check_error(self, error_code: int) -> None:
        self.around.trace.add(self.name, "hears", ErrorCode(error_code).name)
        if error_code not in RETRIABLE:
            self.around.fail(f"{self.name} was refused with {ErrorCode(error_code).name}")


class PlainProducer(Producer):
    """Sends each batch once, whatever happens to it."""

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
        batch = encode_batch(self._records(values))
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
    to another leader while an answer of the last one is awaited, as with librdkafka. The Java client does not wait:
    any number of later batches may be stored before it hears of one, or sends it again (KAFKA-14359).
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
        self._leader: SimulatedBroker | None = None

    async def run(self) -> None:
        """Until everything was acknowledged."""
        while self.unfinished:
            if not self._drains:
                self._leader, _ = self.leader(self.topic, self.index)
            if self._has_room(self._in_flight):
                values = self._values()
                self._unsettled.append(_Batch(self._made, self._sequence, values))
                self._sequence += len(values)
                self._made += 1
            self._send_what_may_be()
            waiting = [batch.answer for batch in self._unsettled if batch.answer is not None]
            pause = self.rng.random() * self.load.longest_pause
            if waiting:
                may_go_on = self._has_room(self._in_flight) or len(waiting) < len(self._unsettled)
                # There may be another leader, to which one that does not drain has room.
                timeout = pause if may_go_on or not self._drains else None
                await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                self._settle()
            else:
                await asyncio.sleep(pause)
        if self._unsettled:
            self.around.fail(f"{self.name} is done and {len(self._unsettled)} batches are not settled")

    def _has_room(self, room: int) -> bool:
        """True if one more batch may be made: so many are in flight to one broker, or lie behind the oldest one."""
        if not self._drains:
            elsewhere = sum(
                batch.answer is not None and batch.broker is not self._leader for batch in self._unsettled
            )
            return self._made < self.load.batches and len(self._unsettled) - elsewhere < room
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
            if self._in_flight_to(broker) >= self._in_flight:
                return
            batch.broker, batch.connection = broker, self.connection(broker)
            batch.is_behind = self._drains and all(
                other.answer is not None for other in self._unsettled[: self._unsettled.index(batch)]
            )
            batch.is_first = batch is self._unsettled[0]
            self.around.trace.add(self.name, "sends", batch.values[0], "to", broker.name)
            batch.answer = asyncio.create_task(self._send(broker, batch))

    def _in_flight_to(self, broker: SimulatedBroker) -> int:
        return sum(batch.answer is not None and batch.broker is broker for batch in self._unsettled)

    def _must_wait_for(self, broker: SimulatedBroker) -> bool:
        """True if answers are awaited that come another way."""
        connection = self.connection(broker)
        return self._drains and any(
            batch.answer is not None and batch.connection is not connection for batch in self._unsettled
        )

    async def _send(self, broker: SimulatedBroker, batch: _Batch) -> Produced | None:
        encoded = encode_batch(
            self._records(batch.values),
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
                self._settled(batch)
            elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._acknowledge_somewhere(batch.values)
                self._settled(batch)
            elif (
                answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                and not batch.is_first
                and not batch.is_behind
            ):
                self.around.trace.add(self.name, "is out of order behind another batch")
            else:
                self._check_error(answer.error_code)

    def _settled(self, batch: _Batch) -> None:
        self._unsettled.remove(batch)
        self.unfinished -= 1
