"""The end of a transaction in a group: pending offsets become visible, or are dropped, and then the marker goes."""

import asyncio
from typing import Any

import pytest

from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Delete, MetadataStore, Put, Snapshot
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import GROUP, NEIGHBOUR, TOPIC, Brokers, Coordinating, scenario
from tests.groups.test_transactional_commits import places
from tests.groups.transactions import PRODUCER_ID, end, until_gone
from tests.support.faults import CRASHES, Fault, Fuse, FusedMetadataStore
from tests.support.owners import end_leases


async def settled(brokers: Brokers) -> None:
    """No marker is left."""
    await until_gone(brokers.store, keys.GROUP_MARKERS)


async def watching(brokers: Brokers) -> Coordinating:
    broker = await brokers.start()
    broker.marker_watch.start()
    return broker


@scenario()
async def test_commit_makes_the_offsets_visible(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit(GROUP, 1, partitions=2)
    await broker.commit_in_transaction(GROUP, {1: 5, 2: 6})
    brokers.store.written.clear()
    await end(brokers.store, GROUP, commit=True)
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 1, 1: 5, 2: 6})
    assert await broker.unstable(GROUP) == set()
    assert await brokers.store.keys_of_transactions() == []
    ((*puts, pending, last),) = brokers.store.written
    assert {one.key for one in puts} == {keys.group_offset(GROUP, TOPIC, index) for index in (1, 2)}
    assert pending == Delete(keys.pending_offsets(GROUP, PRODUCER_ID))
    assert last == Delete(keys.group_marker(GROUP, PRODUCER_ID))


@scenario()
async def test_abort_drops_the_offsets(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit(GROUP, 1, partitions=2)
    await broker.commit_in_transaction(GROUP, {1: 5, 2: 6})
    await end(brokers.store, GROUP, commit=False, epoch=1)
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 1, 1: 1})
    assert await broker.unstable(GROUP) == set()
    assert await brokers.store.keys_of_transactions() == []


@pytest.mark.parametrize("commit", [True, False])
@scenario()
async def test_marker_without_offsets_is_deleted_at_once(brokers: Brokers, commit: bool) -> None:
    broker = await watching(brokers)
    await broker.commit(NEIGHBOUR, 1)
    await end(brokers.store, GROUP, commit=commit)
    await end(brokers.store, NEIGHBOUR, commit=commit)
    await settled(brokers)
    assert broker.coordinator.describe(GROUP) is None
    assert await broker.fetch(NEIGHBOUR) == places({0: 1})


@scenario()
async def test_what_is_counted_is_what_is_stored(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {1: 5, 2: 6})
    await broker.commit_in_transaction(NEIGHBOUR, {1: 5, 2: 6})
    await end(brokers.store, GROUP, commit=True)
    await end(brokers.store, NEIGHBOUR, commit=False)
    await settled(brokers)
    await broker.shards.markers_settled()
    counted = [broker.shards.existing(one).stored.offset_bytes for one in (GROUP, NEIGHBOUR)]
    other = await watching(brokers)
    await other.commit(GROUP, 5, partitions=3)
    await other.coordinator.delete_offsets(GROUP, [(TOPIC, 0)])
    assert counted == [other.shards.existing(GROUP).stored.offset_bytes, 0]


@scenario()
async def test_transactions_of_one_producer_follow_each_other(brokers: Brokers) -> None:
    broker = await watching(brokers)
    for offset in range(1, 20):
        assert await broker.commit_in_transaction(GROUP, {0: offset}) is ErrorCode.NONE
        await end(brokers.store, GROUP, commit=offset % 3 > 0)
        await settled(brokers)
        assert await broker.fetch(GROUP) == places({0: offset if offset % 3 else offset - 1})
    assert len(broker.transactions.asked) == 19


# Two commits for one partition


@pytest.mark.parametrize("first_ends_first", [True, False])
@scenario()
async def test_later_of_two_transactions_offsets_stays(brokers: Brokers, first_ends_first: bool) -> None:
    """As in Kafka: the one that was committed later, whichever transaction ends first."""
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1, 1: 1}, producer_id=8)
    await broker.commit_in_transaction(GROUP, {0: 2, 2: 2}, producer_id=9)
    if not first_ends_first:
        broker = await watching(brokers)
    for producer_id in (8, 9) if first_ends_first else (9, 8):
        await end(brokers.store, GROUP, commit=True, producer_id=producer_id)
        await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 2, 1: 1, 2: 2})


@scenario()
async def test_an_aborted_transaction_overtakes_nothing(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1}, producer_id=8)
    await broker.commit_in_transaction(GROUP, {0: 2}, producer_id=9)
    await end(brokers.store, GROUP, commit=False, producer_id=9)
    await settled(brokers)
    assert await broker.unstable(GROUP) == {0}
    await end(brokers.store, GROUP, commit=True, producer_id=8)
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 1})


@pytest.mark.parametrize("commit", [True, False])
@scenario()
async def test_later_plain_commit_stays(brokers: Brokers, commit: bool) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 5, 1: 5})
    assert await broker.commit(GROUP, 3) is ErrorCode.NONE
    assert await broker.unstable(GROUP) == {0, 1}
    broker = await watching(brokers)
    await end(brokers.store, GROUP, commit=commit)
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 3, 1: 5} if commit else {0: 3})


# Crashes: every write is the last one of a coordinator, and the next one finishes


class SmallSteps(FusedMetadataStore):
    """Three operations in a transaction, beside that on the shard's record."""

    @property
    def max_operations(self) -> int:
        return 4


async def _dying(brokers: Brokers, fuse: Fuse) -> Coordinating:
    await end_leases(brokers.store, keys.COORDINATORS)
    broker = await brokers.beside(SmallSteps(brokers.store, fuse))
    await broker.shards.claim([keys.shard_of(GROUP)])
    return broker


@pytest.mark.parametrize("fault", CRASHES)
@pytest.mark.parametrize("commit", [True, False])
@scenario()
async def test_successor_finishes_what_was_begun(brokers: Brokers, commit: bool, fault: Fault) -> None:
    """However many writes the first one made: the offsets are there all or none, and the marker goes."""
    before, after = places(dict.fromkeys(range(7), 1)), places(dict.fromkeys(range(7), 5))
    for at in range(1, 4 if commit else 2):
        fuse = Fuse(0, fault)
        dying = await _dying(brokers, fuse)
        await dying.commit(GROUP, 1, partitions=7)
        assert await dying.commit_in_transaction(GROUP, dict.fromkeys(range(7), 5)) is ErrorCode.NONE
        fuse.blow_in(at)
        await end(brokers.store, GROUP, commit=commit)
        dying.marker_watch.start()
        async with asyncio.timeout(60):
            await fuse.blown.wait()
        reader = await brokers.beside()
        if not await reader.unstable(GROUP):
            assert await reader.fetch(GROUP) == (after if commit else before)
        await dying.marker_watch.close()
        await dying.shards.close()
        successor = await watching(brokers)
        await settled(brokers)
        assert await brokers.store.keys_of_transactions() == []
        assert await successor.unstable(GROUP) == set()
        assert await successor.fetch(GROUP) == (after if commit else before)
        await successor.marker_watch.close()
        await successor.shards.close()


@scenario()
async def test_replaced_coordinator_applies_nothing(brokers: Brokers) -> None:
    """It has not heard of its successor, and what was pending is of an earlier transaction than it thinks."""
    old = await watching(brokers)
    await old.commit_in_transaction(GROUP, {0: 1})
    new = await watching(brokers)
    await new.commit_in_transaction(GROUP, {0: 2})
    await end(brokers.store, GROUP, commit=True)
    await settled(brokers)
    await asyncio.sleep(1)
    assert await new.fetch(GROUP) == places({0: 2})
    assert old.lost in ([], [keys.shard_of(GROUP)])


# A marker that is heard of late, or twice


class LateWatch(FusedMetadataStore):
    """Its watchers hear nothing until `hear` is set."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner, Fuse(0, Fault.UNAVAILABLE))
        self.hear = asyncio.Event()

    async def watch(self, prefix: str) -> Any:
        async for event in super().watch(prefix):
            await self.hear.wait()
            yield event


@scenario()
async def test_marker_heard_of_after_the_load_is_applied_once(brokers: Brokers) -> None:
    """The load applies it; the watch tells of it when the next transaction of the producer is open."""
    store = LateWatch(brokers.store)
    first = await brokers.start()
    await first.commit_in_transaction(GROUP, {0: 1})
    broker = await brokers.beside(store)
    broker.marker_watch.start()
    await asyncio.sleep(1)
    await end(brokers.store, GROUP, commit=True)
    await brokers.store.revoke_lease(first.lease)
    await broker.shards.claim([keys.shard_of(GROUP)])
    await settled(brokers)
    assert await broker.commit_in_transaction(GROUP, {0: 2}) is ErrorCode.NONE
    store.hear.set()
    await asyncio.sleep(1)
    assert await broker.fetch(GROUP) == places({0: 1})
    assert await broker.unstable(GROUP) == {0}


@pytest.mark.parametrize("hears_during_load", [True, False])
@scenario()
async def test_marker_applied_by_the_coordinator_before(brokers: Brokers, hears_during_load: bool) -> None:
    """The next one hears of it when the next transaction of the producer is open."""
    store = LateWatch(brokers.store)
    broker = await brokers.beside(store)
    broker.marker_watch.start()
    first = await watching(brokers)
    await first.commit_in_transaction(GROUP, {0: 1})
    await asyncio.sleep(1)
    await end(brokers.store, GROUP, commit=True)
    await settled(brokers)
    await first.commit_in_transaction(GROUP, {0: 2})
    await brokers.store.revoke_lease(first.lease)
    with brokers.store.hold("range", keys.GROUP_MARKERS) as hold:
        claim = asyncio.create_task(broker.shards.claim([keys.shard_of(GROUP)]))
        await hold.until_reached()
        if hears_during_load:
            store.hear.set()
            await asyncio.sleep(1)
    await claim
    store.hear.set()
    await asyncio.sleep(1)
    assert await broker.fetch(GROUP) == places({0: 1})
    assert await broker.unstable(GROUP) == {0}
    await end(brokers.store, GROUP, commit=True)
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 2})


class SlowAnswers(FusedMetadataStore):
    """The groups' markers that it read arrive once `answer` is set."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner, Fuse(0, Fault.UNAVAILABLE))
        self.has_read, self.answer = asyncio.Event(), asyncio.Event()

    async def range(self, prefix: str) -> Snapshot:
        found = await super().range(prefix)
        if prefix.startswith(keys.GROUP_MARKERS):
            self.has_read.set()
            await self.answer.wait()
        return found


@scenario()
async def test_marker_put_while_a_shard_is_loaded(brokers: Brokers) -> None:
    """After its markers were read, and heard of before the shard is there."""
    store = SlowAnswers(brokers.store)
    first = await brokers.start()
    await first.commit_in_transaction(GROUP, {0: 1})
    broker = await brokers.beside(store)
    broker.marker_watch.start()
    await brokers.store.revoke_lease(first.lease)
    claim = asyncio.create_task(broker.shards.claim([keys.shard_of(GROUP)]))
    await store.has_read.wait()
    await end(brokers.store, GROUP, commit=True)
    await asyncio.sleep(1)
    store.answer.set()
    await claim
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 1})


@scenario()
async def test_marker_that_was_put_twice_is_applied_once(brokers: Brokers) -> None:
    """The second is deleted with the first, and heard of when the next transaction is open."""
    broker = await watching(brokers)
    key, shard = keys.group_marker(GROUP, PRODUCER_ID), keys.shard_of(GROUP)
    await broker.commit_in_transaction(GROUP, {0: 1})
    with brokers.store.hold("transact", keys.PENDING_OFFSETS) as hold:
        await end(brokers.store, GROUP, commit=True)
        await hold.until_reached()
        await broker.marker_watch.close()
        await end(brokers.store, GROUP, commit=True)
        again = await brokers.store.get(key)
        assert again is not None
    await until_gone(brokers.store, keys.GROUP_MARKERS)
    await broker.shards.markers_settled()
    await broker.commit_in_transaction(GROUP, {0: 2})
    await broker.shards.markers_put(shard, [again], again.mod_revision)
    await broker.shards.markers_settled()
    assert await broker.fetch(GROUP) == places({0: 1})
    assert await broker.unstable(GROUP) == {0}
    broker.marker_watch.start()
    await end(brokers.store, GROUP, commit=True)
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 2})


@scenario()
async def test_marker_put_again_while_it_is_applied(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1})
    with brokers.store.hold("transact", keys.PENDING_OFFSETS) as hold:
        await end(brokers.store, GROUP, commit=True)
        await hold.until_reached()
        await end(brokers.store, GROUP, commit=True)
        await asyncio.sleep(1)
    await settled(brokers)
    await broker.shards.markers_settled()
    assert await broker.fetch(GROUP) == places({0: 1})


@scenario()
async def test_marker_of_an_older_epoch_ends_nothing(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1}, producer_epoch=4)
    await end(brokers.store, GROUP, commit=True, epoch=3)
    await settled(brokers)
    assert await broker.unstable(GROUP) == {0}
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1})


# A store that is away, a group that goes, bytes that cannot be read


@scenario(offsets_commit_timeout_ms=1000)
async def test_marker_outlasts_an_outage_of_the_store(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1})
    brokers.store.is_away = True
    await end(brokers.store, GROUP, commit=True)
    await asyncio.sleep(30)
    brokers.store.is_away = False
    brokers.store.lost_answers = 1
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 1})


@scenario()
async def test_marker_waits_for_the_deletion_of_its_group(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1})
    with brokers.store.hold("range", keys.group_offsets(GROUP)) as hold:
        deletion = asyncio.create_task(broker.coordinator.delete(GROUP))
        await hold.until_reached()
        await end(brokers.store, GROUP, commit=True)
        await asyncio.sleep(1)
        assert await brokers.store.record(GROUP) is not None
    assert await deletion is ErrorCode.NONE
    await settled(brokers)
    assert await brokers.store.group_keys() == []
    assert await brokers.store.keys_of_transactions() == []


@scenario(offsets_commit_timeout_ms=1000)
async def test_marker_applies_once_a_deletion_has_failed(brokers: Brokers) -> None:
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1})
    with brokers.store.hold("transact", keys.GROUPS) as hold:
        deletion = asyncio.create_task(broker.coordinator.delete(GROUP))
        await hold.until_reached()
        await end(brokers.store, GROUP, commit=True)
        brokers.store.is_away = True
        hold.release()
        await asyncio.gather(deletion, return_exceptions=True)
        brokers.store.is_away = False
    await settled(brokers)
    assert await brokers.store.keys_of_transactions() == []
    assert broker.is_in(GROUP, GroupState.EMPTY)
    # Whichever of the two took effect: offsets are not left without their group.
    assert (await brokers.store.record(GROUP) is not None) or await brokers.store.offsets(GROUP) == {}


@scenario()
async def test_markers_of_an_unreadable_group_are_applied(brokers: Brokers) -> None:
    """The producer's next transaction does not wait for the repair of the group."""
    broker = await watching(brokers)
    await broker.commit_in_transaction(GROUP, {0: 1})
    await MemoryStore.transact(brokers.store, [], [Put(keys.group(GROUP), b"?")])
    await end(brokers.store, GROUP, commit=True)
    await watching(brokers)
    await settled(brokers)
    assert await brokers.store.offsets(GROUP) == places({0: 1})
    assert await brokers.store.keys_of_transactions() == []


@scenario()
async def test_unreadable_marker_or_offsets_stay(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1})
    await broker.commit_in_transaction(GROUP, {0: 1}, producer_id=8)
    await broker.commit_in_transaction(GROUP, {0: 1}, producer_id=9)
    pending = [keys.pending_offsets(GROUP, producer_id) for producer_id in (7, 8, 9)]
    marks = [keys.group_marker(GROUP, producer_id) for producer_id in (7, 8, 9)]
    await MemoryStore.transact(
        brokers.store, [], [Put(pending[0], b"?"), Put(pending[1], b"?"), Put(marks[2], b"?")]
    )
    await end(brokers.store, GROUP, commit=True)
    await end(brokers.store, GROUP, commit=False, producer_id=8)
    foreign = keys.GROUP_MARKERS + "foreign"
    await MemoryStore.transact(brokers.store, [], [Put(foreign, b"?")])
    broker = await watching(brokers)
    await asyncio.sleep(1)
    assert await brokers.store.keys_of_transactions() == sorted(
        [pending[0], pending[2], foreign, marks[0], marks[2]], key=lambda key: (key.startswith("group"), key)
    )
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE


@scenario()
async def test_a_broken_watch_begins_again(brokers: Brokers) -> None:
    broker = await brokers.start()
    broker.marker_watch.start()
    await broker.commit_in_transaction(GROUP, {0: 1})
    await broker.marker_watch.close()
    await end(brokers.store, GROUP, commit=True)
    broker.marker_watch.start()
    await settled(brokers)
    assert await broker.fetch(GROUP) == places({0: 1})


# OffsetFetch meanwhile


@pytest.mark.parametrize("held", [keys.GROUP_OFFSETS, keys.PENDING_OFFSETS])
@scenario()
async def test_fetch_during_a_commit_shows_no_older_offset(brokers: Brokers, held: str) -> None:
    """It is seen pending, or as it is afterwards, at whatever moment the transaction ends."""
    broker = await watching(brokers)
    await broker.commit(GROUP, 1)
    await broker.commit_in_transaction(GROUP, {0: 2})
    other = await brokers.beside()
    with brokers.store.hold("range", held) as hold:
        fetching = asyncio.create_task(other.coordinator.fetch_offsets(GROUP, require_stable=True))
        await hold.until_reached()
        await end(brokers.store, GROUP, commit=True)
        await settled(brokers)
    found = await fetching
    assert found.unstable == {(TOPIC, 0)} or found.committed[TOPIC, 0].offset == 2
