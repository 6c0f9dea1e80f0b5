"""Cuts and committed reads of logs that a broker writes, beside producers that commit and abort."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    TransactionTopic,
    encode_transaction_record,
)
from kafscale.lake.atomic_cut import AtomicCut
from kafscale.lake.atomic_scan import seen_in, unmarked_of
from kafscale.lake.planned_reads import plan_reads
from kafscale.lake.ranges import Ranges, difference, union
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.reader.piece_reader import read_piece
from kafscale.reader.records import records_of
from kafscale.reader.shared_splits import parts_of
from kafscale.reader.stored_batches import StoredBatches
from kafscale.reader.topic_state import TopicLog, TopicStates
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker
from tests.support.nightly import by_day
from tests.support.on_uvloop import on_uvloop

NAMESPACE = "default"
Place = tuple[str, int]
Offsets = set[tuple[str, int, int]]


@dataclass(slots=True)
class Ended:
    is_commit: bool
    offsets: Offsets = field(default_factory=set)


class Producer:
    """A transactional producer and its coordinator."""

    def __init__(
        self, broker: InProcessBroker, client: Client, number: int, places: list[Place], seed: int
    ) -> None:
        self.ended: list[Ended] = []
        self._broker = broker
        self._client = client
        self._name = f"id-{number}"
        self._places = places
        self._dice = random.Random(seed)
        self._sequences = dict.fromkeys(places, 0)
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        self._record = TransactionRecord(
            producer_id=100 + number,
            producer_epoch=0,
            timeout_ms=60_000,
            state=TransactionState.ONGOING,
            started_ms=1,
            updated_ms=1,
            topics=tuple(
                TransactionTopic(topic, broker.partition(topic).topic_id, tuple(indexes))
                for topic, indexes in topics.items()
            ),
        )

    async def run(self, transactions: int) -> None:
        for _ in range(transactions):
            await self._put(self._record)
            done = Ended(is_commit=self._dice.random() < 0.7)
            for _ in range(self._dice.randint(1, 4)):
                await self._send(done, self._dice.choice(self._places))
            self.ended.append(done)
            await self._end(done.is_commit)

    async def _send(self, done: Ended, place: Place) -> None:
        topic, index = place
        count = self._dice.randint(1, 3)
        batch = wire.batch(
            [b"value"] * count,
            producer_id=self._record.producer_id,
            producer_epoch=0,
            sequence=self._sequences[place],
            is_transactional=True,
        )
        self._sequences[place] += count
        request = wire.produce_request(topic, {index: batch})
        request.transactional_id = self._name
        await self._client.send(request, 11)
        _, parts = await self._client.receive_produce(version=11)
        assert parts[index].error_code == 0, parts[index]
        first = parts[index].base_offset
        done.offsets |= {(topic, index, offset) for offset in range(first, first + count)}

    async def _put(self, record: TransactionRecord) -> None:
        put = Put(keys.transaction(self._name), encode_transaction_record(record))
        await self._broker.metadata.transact([], [put])

    async def _end(self, is_commit: bool) -> None:
        """Decide, and wait until the leader has written all markers."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        puts = [
            Put(keys.transaction(self._name), encode_transaction_record(replace(self._record, state=state)))
        ]
        for one in self._record.topics:
            marker = MarkerRecord(
                transactional_id=self._name,
                commit=is_commit,
                producer_epoch=0,
                coordinator_epoch=0,
                transaction_version=1,
                decided_ms=1,
                topic_id=one.topic_id,
            )
            for index in one.partitions:
                key = keys.partition_marker(one.name, index, self._record.producer_id)
                puts.append(Put(key, encode_marker_record(marker)))
        await self._broker.metadata.transact([], puts)
        for put in puts[1:]:
            while await self._broker.metadata.get(put.key) is not None:  # noqa: ASYNC110 - the broker deletes it
                await asyncio.sleep(0.002)


class Lake:
    """An exporter of cuts. `snapshots`: the places of all records after each of them."""

    def __init__(self, broker: InProcessBroker, topics: dict[str, int]) -> None:
        self.snapshots: list[Offsets] = [set()]
        self._broker = broker
        self._topics = topics
        self._states = TopicStates(broker.metadata, broker.objects, NAMESPACE)
        self._exported: dict[Place, Ranges] = {}

    async def cut(self) -> None:
        found = await self._broker.metadata.range(keys.PARTITION_MARKERS)
        logs = [await self._states.topic(topic) for topic in self._topics]
        cut = AtomicCut(found.revision, unmarked_of(found.items, logs))
        for log in logs:
            for one in log.partitions:
                await self._add(cut, log, one.partition, one.end_offset, one.log_end_offset)
        for log in logs:
            for one in log.partitions:
                place = log.topic, one.partition
                seen = []
                for part in await self._read(log, one.partition, self._left(place, one.end_offset)):
                    seen += list(seen_in(part))
                cut.add_body(place, seen)
        left_out = cut.left_out()
        rows = set(self.snapshots[-1])
        for log in logs:
            for one in log.partitions:
                place = log.topic, one.partition
                wanted = difference(self._left(place, one.end_offset), left_out.get(place, ()))
                for part in await self._read(log, one.partition, wanted):
                    new = {(*place, placed.record.offset) for placed in records_of(part)}
                    assert not new & rows, "a record comes twice"
                    rows |= new
                self._exported[place] = union(self._exported.get(place, ()), wanted)
        self.snapshots.append(rows)

    def _left(self, place: Place, end: int) -> Ranges:
        return difference(((0, end),), self._exported.get(place, ()))

    async def _add(self, cut: AtomicCut, log: TopicLog, partition: int, first: int, following: int) -> None:
        parts = await self._read(log, partition, ((first, following),) if first < following else ())
        cut.add_tail((log.topic, partition), [one for part in parts for one in seen_in(part)])

    async def _read(self, log: TopicLog, partition: int, ranges: Ranges) -> list[StoredBatches]:
        wanted: Mapping[int, Ranges] = {partition: ranges}
        splits = await plan_reads(
            self._states, self._broker.objects, NAMESPACE, log.topic, log.topic_id, wanted
        )
        return [
            batches
            for split in splits
            for part in parts_of(split)
            for piece in part.pieces
            async for batches in read_piece(
                self._broker.objects, NAMESPACE, part, piece, aborted=part.aborted
            )
        ]


def ended_by(producers: list[Producer]) -> Iterator[Ended]:
    for one in producers:
        yield from one.ended


@on_uvloop
async def test_cuts_beside_producers_have_whole_transactions() -> None:
    async with in_process_broker() as broker:
        first = await broker.create_topic("first", partitions=2)
        second = await broker.create_topic("second")
        places = [(first, 0), (first, 1), (second, 0)]
        clients = []
        producers = []
        for number in range(4):
            client = broker.connect()
            clients.append(client)
            own = places if number else places[:1]
            producers.append(Producer(broker, await client.__aenter__(), number, own, seed=number))
        lake = Lake(broker, {first: 2, second: 1})
        running = asyncio.gather(*(one.run(by_day(12, by_night=200)) for one in producers))
        while not running.done():
            await lake.cut()
        await running
        await broker.seal(first)
        await lake.cut()
        for client in clients:
            await client.__aexit__(None, None, None)
        committed = {place for one in ended_by(producers) if one.is_commit for place in one.offsets}
        assert lake.snapshots[-1] == committed
        assert len(lake.snapshots) > 3
        for rows in lake.snapshots:
            for one in ended_by(producers):
                there = one.offsets & rows
                assert there in (set(), one.offsets if one.is_commit else set()), one
