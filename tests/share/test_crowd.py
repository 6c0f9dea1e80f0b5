"""A queue with a hundred consumers, of which some crash, and records that end whoever reads them.

Each record is acknowledged by one member, or archived after its deliveries, and the counts add up.
"""

import asyncio
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field

import pytest

from kafscale.metadata.keys import SharePartitionId
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.state.operations import Change, alter
from tests.share.state.partitions import apply
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.nightly import by_day
from tests.support.share_member import ACCEPT, ShareMember

CONSUMERS = by_day(100, by_night=100)
PARTITIONS = 3
BATCHES = by_day(40, by_night=600)
BATCH_RECORDS = 25
CRASHES = 0.05
POISON = 0.01
MOST_DELIVERIES = 5

Place = tuple[int, int]
"""A record's partition and offset."""


def _places(index: int, part: tuple[int, int, int]) -> list[Place]:
    return [(index, offset) for offset in range(part[0], part[1] + 1)]


@dataclass
class Crowd:
    """`accepted`: by the members who were answered. `deliveries`: of each record, by any member."""

    broker: InProcessBroker
    topic_id: uuid.UUID
    random: random.Random
    poison: set[Place]
    accepted: Counter[Place] = field(default_factory=Counter)
    deliveries: Counter[Place] = field(default_factory=Counter)
    joined: int = 0

    async def consumer(self) -> None:
        """Consume until there is nothing; after each crash as another member."""
        while not await self._live():
            pass

    async def _live(self) -> bool:
        """False: it has crashed, with all that it had."""
        self.joined += 1
        name = f"m{self.joined}"
        async with self.broker.connect() as client:
            member = ShareMember(client, self.topic_id, member=name)
            await member.fetch(range(PARTITIONS), max_records=0)
            idle = 0
            while idle < 3:
                answers = await member.fetch(max_records=self.random.randrange(1, 60), max_wait_ms=100)
                assert isinstance(answers, dict), answers
                idle = 0 if any(one.acquired for one in answers.values()) else idle + 1
                taken = [(index, part) for index, one in answers.items() for part in one.acquired]
                self.deliveries.update(place for index, part in taken for place in _places(index, part))
                for index, part in taken:
                    assert part[2] <= MOST_DELIVERIES
                    if part[2] == MOST_DELIVERIES:
                        others = [one for at, one in taken if at == index and one != part]
                        assert (part[0], others) == (part[1], []), "not alone for the last time"
                    places = _places(index, part)
                    if self.poison.intersection(places) or self.random.random() < CRASHES:
                        return False
                    assert await member.say((part[0], part[1], ACCEPT), index=index) == {index: 0}
                    self.accepted.update(places)
            return True

    def led(self, index: int) -> LedSharePartition:
        partitions = self.broker.process.serving.sharing.service._partitions
        found = partitions.find(SharePartitionId("g", self.topic_id, index))
        assert found is not None
        return found


@pytest.mark.timeout(600)
async def test_each_record_is_acknowledged_or_archived() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with in_process_broker(flush_interval_ms=2) as broker:
        await broker.create_topic(partitions=PARTITIONS)
        record = broker.process.serving.view.topic("topic")
        assert record is not None
        places = {SharePartitionId("g", record.topic_id, index): 0 for index in range(PARTITIONS)}
        await apply(broker.metadata, alter(places, {}, Change(0)).operations)
        async with broker.connect() as producer:
            for _ in range(BATCHES // PARTITIONS):
                for index in range(PARTITIONS):
                    part = await producer.produce("topic", index, wire.batch([b"value"] * BATCH_RECORDS))
                    assert part.error_code == 0
        count = BATCHES // PARTITIONS * BATCH_RECORDS
        everything = [(index, offset) for index in range(PARTITIONS) for offset in range(count)]
        poison = {place for place in everything if chance.random() < POISON}
        crowd = Crowd(broker, record.topic_id, chance, poison)
        await asyncio.gather(*(crowd.consumer() for _ in range(CONSUMERS)))

        counts = crowd.led(0).machine.counts  # of the whole group
        assert counts.accepted == len(crowd.accepted)
        archived = set(everything) - crowd.accepted.keys()
        assert set(crowd.accepted.values()) == {1}, "a record was acknowledged twice"
        assert poison <= archived, "a record was acknowledged that ends whoever reads it"
        assert counts.archived == len(archived)
        assert all(crowd.deliveries[place] == MOST_DELIVERIES for place in archived)
        assert [crowd.led(index).machine.start_offset for index in range(PARTITIONS)] == [count] * PARTITIONS
        # A neighbour of a bad record is alone in the end. A crash by chance, or by what a member has of another
        # partition, can archive it; together they would be a quarter of all records.
        assert len(archived - poison) <= len(everything) * 0.1
