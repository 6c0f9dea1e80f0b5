"""Partitions followed behind their records: nothing is missing, and their leaders know of all that is read."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from kafscale.cluster.topic_configs import effective
from kafscale.errors import StoreUnavailableError
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.journal_record import JournalRecord, encode_journal_record
from kafscale.formats.partition_record import PartitionRecord
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.journal import followed_journal
from kafscale.log.partition import NOT_LED, Partition, PartitionId
from kafscale.log.partition_factory import append_rules
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.store import Changes, MetadataStore, Put, Snapshot
from kafscale.settings.broker import Settings
from kafscale.testing.store_wrappers import WrappedMetadataStore
from tests.log.journal.journal_stores import JOURNAL, NAMESPACE, Stores, three_entries
from tests.support.virtual_time import run_virtually

TOPIC = "events"
A_WHILE_SEC = 0.1
EMPTY_JOURNAL = JournalRecord(broker_id=2, progress=-1)

Scenario = Callable[[Stores, FollowedPartitions], Awaitable[None]]


def make(topic: str, index: int, record: PartitionRecord, revision: int) -> Partition:
    config = effective({}, Settings())
    return Partition(PartitionId(topic, index), 0, record, revision, config, append_rules(config), NOT_LED)


def played(
    scenario: Scenario,
    partitions: int = 3,
    is_current: Callable[[Partition], bool] = lambda _: True,
    metadata: Callable[[MetadataStore], MetadataStore] = lambda store: store,
) -> None:
    """Play it in virtual time, beside a journal of three entries with a record of each partition."""

    async def play() -> None:
        stores = await three_entries(partitions)
        reader = stores.objects, NAMESPACE, StoreRetries(random.Random(0))
        followed = FollowedPartitions(metadata(stores.metadata), make, is_current, reader)
        try:
            await scenario(stores, followed)
        finally:
            await followed.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await stores.metadata.close()

    run_virtually(play())


async def follow(followed: FollowedPartitions, index: int) -> Partition:
    partition = await followed.follow(TOPIC, index)
    assert partition is not None
    return partition


def looks(stores: Stores) -> int:
    """How often the place behind the newest entry was looked at."""
    return stores.objects.calls["get_range", entry_key(NAMESPACE, JOURNAL, stores.sequence + 1)]


# --- the first read


def test_the_first_read_has_what_the_record_does_not_show() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        assert (await follow(followed, 0)).high_watermark == 3

    played(scenario)


def test_the_first_read_waits_until_the_leader_has_reported() -> None:
    """Its consumer may ask the leader next, which must know of the record."""

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await stores.flush({0: 3}, is_reported=False)
        await stores.flush({0: 4}, is_reported=False)
        reading = asyncio.create_task(follow(followed, 0))
        await asyncio.sleep(A_WHILE_SEC)
        assert not reading.done()
        await stores.report(4)
        assert (await reading).high_watermark == 5

    played(scenario)


def test_a_leader_that_reports_nothing_delays_no_read_for_long() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await stores.flush({0: 3}, is_reported=False)
        async with asyncio.timeout(5):
            partition = await follow(followed, 0)
        assert partition.high_watermark == 3
        await stores.report(3)
        await asyncio.sleep(A_WHILE_SEC)
        assert partition.high_watermark == 4

    played(scenario)


def test_a_topic_deleted_during_the_first_read_is_not_followed() -> None:
    """Where there is nothing to drop yet; another topic may have the name (simulation, seed 3581819908)."""
    is_there = True

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        nonlocal is_there
        await stores.flush({0: 3}, is_reported=False)
        reading = asyncio.create_task(followed.follow(TOPIC, 0))
        await asyncio.sleep(A_WHILE_SEC)
        assert not reading.done()
        is_there = False
        followed.drop_topic(TOPIC)
        await stores.report(3)
        assert await reading is None
        assert followed.get(TOPIC, 0) is None
        assert len(followed) == followed.changes == 0

    played(scenario, is_current=lambda _: is_there)


def test_a_leader_that_reports_nothing_delays_one_read() -> None:
    """A wait in vain is not repeated by each partition that is followed next."""

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await stores.flush({0: 3, 1: 3, 2: 3}, is_reported=False)
        await follow(followed, 0)
        # A leader that only the metadata store does not reach goes on to write.
        await stores.flush({0: 4, 1: 4, 2: 4}, is_reported=False)
        async with asyncio.timeout(A_WHILE_SEC):
            assert (await follow(followed, 1)).high_watermark == 3
        await stores.report(3)
        reading = asyncio.create_task(follow(followed, 2))
        await asyncio.sleep(A_WHILE_SEC)
        assert not reading.done(), "it reports again"
        await stores.report(4)
        assert (await reading).high_watermark == 5

    played(scenario)


def test_an_object_store_that_is_away_delays_no_read_for_long() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        with stores.objects.hold("get_range"):
            async with asyncio.timeout(5):
                partition = await follow(followed, 0)
            assert partition.high_watermark == 0
        await asyncio.sleep(A_WHILE_SEC)
        assert partition.high_watermark == 3

    played(scenario)


def test_a_partition_farther_behind_needs_no_news_of_its_leader() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await stores.record(0, 1, 2)
        assert (await follow(followed, 0)).high_watermark == 3
        assert (await follow(followed, 1)).high_watermark == 3

    played(scenario)


def test_a_new_record_of_the_past_needs_no_news_of_its_leader() -> None:
    """A partition moves to a journal that is followed already, from a later entry on."""

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await stores.record(1, 2, 3)
        await follow(followed, 1)
        await stores.metadata.transact([], [Put(keys.journal("2-b"), encode_journal_record(EMPTY_JOURNAL))])
        await stores.record(0, -1, 0, journal_id="2-b")
        partition = await follow(followed, 0)
        assert partition.high_watermark == 0
        await stores.record(0, 0, 1)
        await asyncio.sleep(A_WHILE_SEC)
        assert partition.high_watermark == 3

    played(scenario)


def test_partitions_that_are_followed_at_once_share_looks() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        found = await asyncio.gather(*(follow(followed, index) for index in range(40)))
        assert {partition.high_watermark for partition in found} == {3}
        assert stores.heads_read() - looks(stores) == 3
        assert looks(stores) <= 3

    played(scenario, partitions=40)


class Reader:
    """Notes how far all partitions are when it hears of news."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = partitions
        self.seen: list[list[int]] = []

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        self.seen.append([partition.high_watermark for partition in self._partitions])

    def closed(self) -> None:
        """The broker ends."""


def test_who_waits_for_many_partitions_hears_of_a_whole_entry() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partitions = [await follow(followed, index) for index in range(3)]
        reader = Reader(partitions)
        for partition in partitions:
            partition.listen(reader)
        await stores.flush({0: 3, 1: 3, 2: 3})
        await asyncio.sleep(A_WHILE_SEC)
        assert reader.seen == [[4, 4, 4]] * 3

    played(scenario)


# --- partitions that come late


@pytest.fixture
def few_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_journal, "REMEMBERED_SLICES", 4)


@pytest.mark.usefixtures("few_remembered")
def test_late_partitions_share_what_is_read_again() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        early = await follow(followed, 0)
        before = stores.heads_read() - looks(stores)
        late = await asyncio.gather(*(follow(followed, index) for index in range(1, 40)))
        assert {partition.high_watermark for partition in late} == {3}
        assert stores.heads_read() - looks(stores) - before <= 2 * 3
        await stores.flush(dict.fromkeys(range(40), 3))
        await asyncio.sleep(A_WHILE_SEC)
        assert {partition.high_watermark for partition in (early, *late)} == {4}

    played(scenario, partitions=40)


@pytest.mark.usefixtures("few_remembered")
def test_late_partition_that_is_dropped_is_brought_up_no_further() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await follow(followed, 0)
        with stores.objects.hold("get_range") as hold:
            reading = asyncio.create_task(followed.follow(TOPIC, 1))
            await hold.reached()
            await asyncio.sleep(5)  # it is followed before all of it is known
            partition = await reading
            assert partition is not None
            followed.drop(TOPIC, 1)
        await asyncio.sleep(1)
        assert partition.high_watermark == 0
        assert (await follow(followed, 1)).high_watermark == 3

    played(scenario)


@pytest.mark.usefixtures("few_remembered")
def test_damaged_entry_delays_only_those_that_miss_it() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        early = await follow(followed, 0)
        key = entry_key(NAMESPACE, JOURNAL, 1)
        whole = await stores.objects.get(key)
        await stores.objects.delete([key])
        await stores.objects.put_if_absent(key, [b"x" * len(whole)])
        late = await follow(followed, 1)
        assert late.high_watermark == 0
        await stores.flush({0: 3, 1: 3})
        await asyncio.sleep(A_WHILE_SEC)
        assert (early.high_watermark, late.high_watermark) == (4, 0)
        await stores.objects.delete([key])
        await stores.objects.put_if_absent(key, [whole])
        await asyncio.sleep(5)
        assert late.high_watermark == 4

    played(scenario)


@pytest.mark.usefixtures("few_remembered")
@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_followed_gets_everything(seed: int) -> None:
    """Partitions come and go while their leader writes, reports, stores records and collects entries."""
    chance = random.Random(seed)

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        ends = dict.fromkeys(range(6), 3)
        slices = dict.fromkeys(range(3), tuple(ends))
        positions = dict.fromkeys(ends, -1)
        begun = []
        for _ in range(200):
            index = chance.randrange(6)
            match chance.choice(("flush", "flush", "report", "record", "collect", "follow", "drop", "pass")):
                case "flush":
                    written = chance.sample(range(6), chance.randint(1, 6))
                    await stores.flush({one: ends[one] for one in written}, is_reported=False)
                    slices[stores.sequence] = tuple(written)
                    for one in written:
                        ends[one] += 1
                case "report":
                    await stores.report(stores.sequence)
                case "record":
                    await stores.report(stores.sequence)
                    await stores.record(index, stores.sequence, ends[index])
                    positions[index] = stores.sequence
                case "collect":
                    done = [at for at, names in slices.items() if all(positions[one] >= at for one in names)]
                    await stores.collect(*done)
                case "follow":
                    begun.append(asyncio.create_task(followed.follow(TOPIC, index)))
                case "drop":
                    followed.drop(TOPIC, index)
                case _:
                    await asyncio.sleep(chance.choice((0, 0.01, 0.3)))
        await stores.report(stores.sequence)
        await asyncio.gather(*begun)
        await asyncio.sleep(2)
        for index in range(6):
            partition = await follow(followed, index)
            assert partition.high_watermark == ends[index], partition.id
            offsets = [one.base_offset for one in partition.record.segments]
            assert offsets == list(range(ends[index] - len(offsets), ends[index])), partition.id

    played(scenario, partitions=6)


class SlowToEnd(WrappedMetadataStore):
    """Its watches take a while to end."""

    async def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        async with aclosing(self._inner.watch_key(key)) as events:
            try:
                async for event in events:
                    yield event
            finally:
                await asyncio.sleep(A_WHILE_SEC)


def test_partition_that_comes_while_a_watch_ends_is_followed() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await follow(followed, 0)
        await asyncio.sleep(A_WHILE_SEC)
        followed.drop(TOPIC, 0)
        await stores.flush({0: 3, 1: 3})  # nobody reads the journal any more, which is found with this
        await asyncio.sleep(A_WHILE_SEC / 2)
        partition = await follow(followed, 1)
        assert partition.high_watermark == 4
        await asyncio.sleep(2 * A_WHILE_SEC)
        await stores.flush({1: 4})
        await asyncio.sleep(A_WHILE_SEC)
        assert partition.high_watermark == 5

    played(scenario, metadata=SlowToEnd)


# --- catching up


def test_catching_up_has_what_came_before_it_was_asked_for() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partition = await follow(followed, 0)
        for offset in range(3, 50):
            await stores.flush({0: offset}, is_reported=False)
        asked = [asyncio.create_task(followed.catch_up(partition)) for _ in range(3)]
        await asyncio.sleep(A_WHILE_SEC)
        assert not any(one.done() for one in asked)
        assert partition.high_watermark == 3
        await stores.report(stores.sequence)
        assert await asyncio.gather(*asked) == [True] * 3
        assert partition.high_watermark == 50

    played(scenario)


def test_a_look_in_progress_is_not_enough() -> None:
    """The entry may be stored after the other's look at its place."""

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partition = await follow(followed, 0)
        with stores.objects.hold("get_range") as hold:
            first = asyncio.create_task(followed.catch_up(partition))
            await hold.reached()
            second = asyncio.create_task(followed.catch_up(partition))
            await asyncio.sleep(A_WHILE_SEC)
            before = looks(stores)
        assert await first
        assert await second
        assert looks(stores) == before + 1

    played(scenario)


def test_an_ended_journal_is_waited_for_no_longer() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partition = await follow(followed, 0)
        await stores.flush({0: 3}, is_reported=False)
        asked = asyncio.create_task(followed.catch_up(partition))
        await asyncio.sleep(A_WHILE_SEC)
        assert not asked.done()
        ended = replace(EMPTY_JOURNAL, broker_id=1, progress=2, ended_at=4)
        await stores.metadata.transact([], [Put(keys.journal(JOURNAL), encode_journal_record(ended))])
        assert await asked
        assert partition.high_watermark == 4
        before = looks(stores)
        assert await followed.catch_up(partition)
        assert looks(stores) == before, "its end is known"

    played(scenario)


def test_slices_behind_a_collected_entry_follow_the_record() -> None:
    """The watch of the record is late, and the entry between is gone: the record is read, and what follows it."""

    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partition = await follow(followed, 0)
        followed._followed[TOPIC, 0].task.cancel()
        await stores.flush({0: 3}, is_reported=False)
        await stores.flush({0: 4}, is_reported=False)
        await stores.record(0, 3, 4)
        await stores.collect(3)
        await stores.report(4)
        await asyncio.sleep(A_WHILE_SEC)
        assert partition.high_watermark == 5
        assert await followed.catch_up(partition)

    played(scenario)


def test_catching_up_has_what_only_the_record_shows() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partition = await follow(followed, 0)
        followed._followed[TOPIC, 0].task.cancel()
        await stores.flush({0: 3}, is_reported=False)
        await stores.record(0, 3, 4)
        await stores.collect(3)
        await stores.report(3)
        assert await followed.catch_up(partition)
        assert partition.high_watermark == 4

    played(scenario)


def test_partition_without_its_journal_is_not_known_complete() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        await stores.record(0, -1, 0, journal_id="9-unknown")
        partition = await follow(followed, 0)
        with pytest.raises(StoreUnavailableError, match="9-unknown"):
            await followed.catch_up(partition)

    played(scenario)


def test_a_partition_that_is_dropped_is_not_known_to_be_complete() -> None:
    async def scenario(stores: Stores, followed: FollowedPartitions) -> None:
        partition = await follow(followed, 0)
        assert await followed.catch_up(partition)
        followed.drop(TOPIC, 0)
        assert not await followed.catch_up(partition)

    played(scenario)
