"""Whatever happens to a broker: an idle consumer gets the bytes that a broker without memory of it would send."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
)

from kafscale.formats.topic_record import encode_broker_record
from kafscale.log.leadership.events import Event
from kafscale.log.leadership.states import State
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord
from kafscale.metadata.store import Delete, Put
from tests.log.outcome import RefusedError
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.fetch_twins import PARTITIONS, TOPIC, VERSIONS, Recorded, Twins, body_of
from tests.support.in_process_broker import in_process_broker, until
from tests.support.log_transactions import Writer
from tests.support.nightly import by_day
from tests.support.on_uvloop import on_uvloop
from tests.support.owners import lead_elsewhere
from tests.support.topics import create_topics_request

PRODUCER_ID = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Asks for partitions from the ends that it sees on (and a step from there)."""

    at_reader: bool
    version: int
    steps: dict[int, int]
    epoch: int
    min_bytes: int
    rack: str
    isolation: int


@dataclass(frozen=True, slots=True)
class Poll:
    """A consumer's request, sent so many times as it was, or made again; something happens during the last."""

    consumer: int
    anew: bool
    times: int
    happens: str
    target: int


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 8 + [*others])


CONSUMERS = st.builds(
    Consumer,
    at_reader=st.booleans(),
    version=st.sampled_from(VERSIONS),
    steps=st.dictionaries(st.integers(0, PARTITIONS - 1), mostly(0, -1, 1), min_size=1)
    | st.just({0: 0, PARTITIONS: 0}),
    epoch=mostly(-1, 0, 0, 0, 1),
    min_bytes=mostly(1, 100, 100, 0),
    rack=st.sampled_from(["", "", "a", "b", "c"]),
    isolation=st.sampled_from([0, 1]),
)
EVENTS = [
    "",
    "produce",
    "transaction",
    "marker",
    "delete records",
    "delete topic",
    "led elsewhere",
    "lost",
    "broker",
]
POLLS = st.builds(
    Poll,
    st.integers(0, 1),
    mostly(False, True),
    st.integers(1, 3),
    st.sampled_from(EVENTS),
    st.integers(0, PARTITIONS - 1),
)


@dataclass
class History:
    """Two brokers of two racks, each asked at the same time with and without its memory."""

    leader: Twins
    reader: Twins
    metadata: MemoryStore
    consumers: Sequence[Consumer]
    bodies: dict[int, bytes] = field(default_factory=dict)
    offsets: dict[int, dict[int, int]] = field(
        default_factory=dict
    )  # by consumer, those that its body asks for
    has_third_broker: bool = False
    leases: list[int] = field(default_factory=list)
    handed_over: list[tuple[LogManager, Partition]] = field(default_factory=list)

    async def play(self, poll: Poll) -> None:
        consumer = self.consumers[poll.consumer]
        twin = self.reader if consumer.at_reader else self.leader
        if poll.anew or poll.consumer not in self.bodies:
            self.offsets[poll.consumer] = self._offsets(twin, consumer)
            self.bodies[poll.consumer] = self._body(twin, consumer, self.offsets[poll.consumer])
        for turn in range(poll.times):
            await self._lead_again()
            body = self.bodies[poll.consumer]
            twin.deadlines.tick()
            fast, slow = (twin.ask(one, body, consumer.version) for one in (twin.fast, twin.slow))
            answered = partial(are_answered, fast, slow)
            ends = self._ends(twin, consumer)
            if any(offset > ends[index] for index, offset in self.offsets[poll.consumer].items()):
                # The stores are asked about an offset above the end: one of the two could see what happens meanwhile.
                await until(answered, "both are answered")
            if turn == poll.times - 1:
                await self._happens(poll.happens, poll.target)
            await until(answered, "both are answered")
            assert fast.answer == slow.answer, (consumer, poll)
            assert slow.correlation_id == fast.correlation_id + 1

    async def _lead_again(self) -> None:
        """A write may have shown a broker that another one ended its journal: it resigns, but during no question."""
        fenced = [one for one in (self.leader, self.reader) if one.is_fenced()]
        if fenced:
            await self._leave_it_to_the_two()
            await until(lambda: all(one.leads_its_own() for one in fenced), "those that resigned lead again")
            await until(self._nothing_is_to_be_claimed, "what was theirs is led")

    def _nothing_is_to_be_claimed(self) -> bool:
        """One of the two may lead what was taken from it, until it is told: nobody claims that."""
        two = (self.leader, self.reader)
        return all(
            any(one.believes_it_leads(index) for one in two)
            or all(index in one.fast.view.leaders(TOPIC) for one in two)
            for index in range(PARTITIONS)
        )

    def _ends(self, twin: Twins, consumer: Consumer) -> dict[int, int]:
        logs, ends = twin.broker.process.serving.logs, {}
        for index in consumer.steps:
            partition = logs.readable(TOPIC, index)
            end = 0
            if partition is not None:
                end = partition.last_stable_offset if consumer.isolation else partition.high_watermark
            ends[index] = end
        return ends

    def _offsets(self, twin: Twins, consumer: Consumer) -> dict[int, int]:
        return {
            index: max(0, end + consumer.steps[index]) for index, end in self._ends(twin, consumer).items()
        }

    def _body(self, twin: Twins, consumer: Consumer, offsets: dict[int, int]) -> bytes:
        request = wire.fetch_request(TOPIC, offsets, max_wait_ms=5, min_bytes=consumer.min_bytes)
        request.rack_id, request.isolation_level = consumer.rack, consumer.isolation
        for one in request.topics[0].partitions:
            one.current_leader_epoch = consumer.epoch
        record = twin.fast.view.topic(TOPIC)
        if consumer.version >= 13 and record is not None:
            request.topics[0].topic_id = record.topic_id
        return body_of(request, consumer.version)

    async def _happens(self, what: str, index: int) -> None:
        match what:
            case "produce":
                async with self._leading(index).broker.connect() as client:
                    await client.produce(TOPIC, index, wire.batch([bytes(40)]))
            case "transaction" | "marker":
                await self._transact(index, ends=what == "marker")
            case "delete records":
                one = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(index, offset=-1)
                topic = DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[one])
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
                async with self._leading(index).broker.connect() as client:
                    await client.call(request, DeleteRecordsResponse, 2)
            case "delete topic":
                await self._leave_it_to_the_two()
                async with self.leader.broker.connect() as client:
                    await client.send(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5000), 5)
                    await client.receive_frame()
                await self.create()
            case "led elsewhere":
                self.leases.append(
                    await lead_elsewhere(self.metadata, TOPIC, index, self.leader.broker.objects.inner)
                )
            case "lost":
                logs = self._leading(index).broker.process.serving.logs
                partition = logs.partition(TOPIC, index)
                if partition is not None:
                    logs.apply(partition, Event.RESIGN)  # As when it is handed over.
                    self.handed_over.append((logs, partition))
            case "broker":
                await self._broker_comes_or_goes()

    async def _transact(self, index: int, *, ends: bool) -> None:
        """More records of a transaction, or its end if one is open."""
        logs = self._leading(index).broker.process.serving.logs
        partition = logs.partition(TOPIC, index)
        log = None if partition is None or not partition.is_led else logs.open_now(partition)
        if partition is None or log is None:
            return
        known = log.producers.newest_sequence(PRODUCER_ID)
        write = Writer(logs, partition, {PRODUCER_ID: known[1] + 1} if known else {})
        with suppress(RefusedError):
            if not ends:
                await write.append(PRODUCER_ID, [bytes(40)])
            elif PRODUCER_ID in log.producers.open_transactions:
                await write.abort(PRODUCER_ID)

    async def _broker_comes_or_goes(self) -> None:
        key, self.has_third_broker = keys.broker(7), not self.has_third_broker
        record = BrokerRecord(broker_id=7, host="elsewhere", port=9092, rack="c")
        change = Put(key, encode_broker_record(record)) if self.has_third_broker else Delete(key)
        await self.metadata.transact([], [change])

    async def _leave_it_to_the_two(self) -> None:
        """Nobody but the two brokers leads anything, or is to: the others only stand in the metadata store."""
        if self.has_third_broker:
            await self._broker_comes_or_goes()
        while self.handed_over:
            logs, partition = self.handed_over.pop()
            if partition.leadership.state is State.RESIGNING:
                logs.apply(partition, Event.DRAINED)  # It may be claimed again.
        while self.leases:
            await self.metadata.revoke_lease(self.leases.pop())

    def _leading(self, index: int) -> Twins:
        logs = self.reader.broker.process.serving.logs
        return self.reader if logs.partition(TOPIC, index) is not None else self.leader

    async def create(self) -> None:
        async with self.leader.broker.connect() as client:
            request = create_topics_request(TOPIC, PARTITIONS, None)
            # The name is free when the last object has gone.
            while (await client.call(request, CreateTopicsResponse, 7)).topics[0].error_code:
                continue
        await self._all_are_led()

    async def _all_are_led(self) -> None:
        """Both brokers know it."""
        for twin in (self.leader, self.reader):
            view = twin.fast.view
            await until(lambda: len(view.leaders(TOPIC)) == PARTITIONS, "all are led")  # noqa: B023


async def play(consumers: Sequence[Consumer], polls: Sequence[Poll]) -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    async with (
        in_process_broker(metadata=metadata, objects=objects, broker_id=1, rack="a") as leader,
        in_process_broker(metadata=metadata, objects=objects, broker_id=2, rack="b") as reader,
    ):
        history = History(Twins(leader), Twins(reader), metadata, consumers)
        await history.create()
        for poll in polls:
            await history.play(poll)
        found = 0
        for twin in (history.leader, history.reader):
            await until(twin.nobody_waits, "nobody waits any more")
            found += twin.answers.found
        event(f"answers that were known: {'many' if found > 5 else found}")


def are_answered(*asked: Recorded) -> bool:
    return all(one.frame is not None for one in asked)


@settings(max_examples=by_day(15, by_night=600), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(CONSUMERS, CONSUMERS), st.lists(POLLS, min_size=3, max_size=15))
def test_remembered_answers_equal_those_of_a_broker_without(
    consumers: tuple[Consumer, Consumer], polls: list[Poll]
) -> None:
    on_uvloop(play)(consumers, polls)
