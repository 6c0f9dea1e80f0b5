"""TxnOffsetCommit: who may commit in a transaction, and what is pending until its end."""

import asyncio
from uuid import UUID

import pytest

from kafscale.groups.pending import reserved_bytes
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    TOPIC,
    Brokers,
    Member,
    joined,
    refused,
    scenario,
    stable,
)
from tests.groups.transactions import PRODUCER_ID, end, until_gone


def places(offsets: dict[int, int]) -> dict[tuple[str, int], int]:
    return {(TOPIC, index): offset for index, offset in offsets.items()}


@scenario()
async def test_offsets_are_pending_and_not_visible(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert await broker.commit(GROUP, 5, partitions=2) is ErrorCode.NONE
    assert await broker.commit_in_transaction(GROUP, {1: 9, 2: 9}, adds=True) is ErrorCode.NONE
    assert broker.transactions.asked == [("copier-7", PRODUCER_ID, 0, GROUP, True)]
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({1: 9, 2: 9})
    assert await broker.fetch(GROUP) == places({0: 5, 1: 5})
    assert await broker.unstable(GROUP) == {1, 2}


@scenario()
async def test_every_broker_knows_what_is_pending(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 9})
    other = await brokers.beside()
    assert await other.unstable(GROUP) == {0}
    found = await other.coordinator.fetch_offsets(GROUP, require_stable=False)
    assert found.unstable == frozenset()


@scenario()
async def test_pending_offsets_of_a_deleted_topic_are_not_pending(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 9})
    await brokers.delete_topic(TOPIC)
    assert await broker.unstable(GROUP) == set()


@scenario()
async def test_further_offsets_of_a_transaction_are_added(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1, 1: 1})
    assert await broker.commit_in_transaction(GROUP, {1: 2, 2: 2}) is ErrorCode.NONE
    assert len(broker.transactions.asked) == 1, "it is open in the group: nothing is to be asked"
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1, 1: 2, 2: 2})


@scenario()
async def test_next_coordinator_goes_on_with_what_is_pending(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1})
    broker = await brokers.start()
    assert await broker.commit_in_transaction(GROUP, {1: 2}) is ErrorCode.NONE
    assert broker.transactions.asked == []
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1, 1: 2})


# Verification


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
)
@scenario()
async def test_a_transaction_that_is_not_open(brokers: Brokers, code: ErrorCode) -> None:
    broker = await brokers.start()
    broker.transactions.refusal = KafkaError(code, "no")
    with refused(code):
        await broker.commit_in_transaction(GROUP, {0: 9})
    assert await brokers.store.keys_of_transactions() == []
    assert broker.coordinator.describe(GROUP) is None


@scenario()
async def test_an_older_epoch_is_fenced_and_a_newer_one_verified(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1}, producer_epoch=3)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        await broker.commit_in_transaction(GROUP, {0: 2}, producer_epoch=2)
    broker.transactions.refusal = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "not complete")
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await broker.commit_in_transaction(GROUP, {0: 2}, producer_epoch=4)
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1})


@pytest.mark.parametrize("commit", [True, False])
@scenario()
async def test_marker_during_verification_refuses_the_commit(brokers: Brokers, commit: bool) -> None:
    """The answer may be from before the decision: the offsets would be pending for ever."""
    broker = await brokers.start()
    broker.marker_watch.start()
    broker.transactions.hold = asyncio.Event()
    committing = asyncio.create_task(broker.commit_in_transaction(GROUP, {0: 9}))
    await broker.transactions.reached.wait()
    await end(brokers.store, GROUP, commit=commit)
    await until_gone(brokers.store, keys.GROUP_MARKERS)
    broker.transactions.hold.set()
    with refused(ErrorCode.INVALID_TXN_STATE):
        await committing
    assert await brokers.store.keys_of_transactions() == []
    assert await broker.fetch(GROUP) == {}


@scenario()
async def test_marker_of_the_last_transaction_refuses_nothing(brokers: Brokers) -> None:
    """With KIP-890 the addition waits for the transaction before, whose marker comes meanwhile."""
    broker = await brokers.start()
    broker.marker_watch.start()
    broker.transactions.hold = asyncio.Event()
    committing = asyncio.create_task(broker.commit_in_transaction(GROUP, {0: 9}, adds=True))
    await broker.transactions.reached.wait()
    await end(brokers.store, GROUP, commit=True)
    await until_gone(brokers.store, keys.GROUP_MARKERS)
    broker.transactions.hold.set()
    assert await committing is ErrorCode.NONE
    assert len(broker.transactions.asked) == 2
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 9})


@scenario()
async def test_marker_of_another_producer_refuses_nothing(brokers: Brokers) -> None:
    broker = await brokers.start()
    broker.marker_watch.start()
    broker.transactions.hold = asyncio.Event()
    committing = asyncio.create_task(broker.commit_in_transaction(GROUP, {0: 9}))
    await broker.transactions.reached.wait()
    await end(brokers.store, GROUP, commit=True, producer_id=PRODUCER_ID + 1)
    await until_gone(brokers.store, keys.GROUP_MARKERS)
    broker.transactions.hold.set()
    assert await committing is ErrorCode.NONE


@scenario()
async def test_shard_lost_during_verification_refuses_the_commit(brokers: Brokers) -> None:
    broker = await brokers.start()
    broker.transactions.hold = asyncio.Event()
    committing = asyncio.create_task(broker.commit_in_transaction(GROUP, {0: 9}))
    await broker.transactions.reached.wait()
    await broker.shards.resign([keys.shard_of(GROUP)])
    broker.lease = await brokers.store.grant_lease(10**9)
    await broker.shards.claim([keys.shard_of(GROUP)])
    broker.transactions.hold.set()
    with refused(ErrorCode.NOT_COORDINATOR):
        await committing
    assert await brokers.store.keys_of_transactions() == []


# The member


@scenario()
async def test_only_members_of_the_generation_commit(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    me = (member.member_id, None, member.generation)
    assert await broker.commit_in_transaction(GROUP, {0: 1}, member=me) is ErrorCode.NONE
    for who, code in (
        ((member.member_id, None, member.generation - 1), ErrorCode.ILLEGAL_GENERATION),
        ((member.member_id, None, -1), ErrorCode.ILLEGAL_GENERATION),
        (("other", None, member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None, member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member.member_id, "static", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await broker.commit_in_transaction(GROUP, {0: 2}, member=who) is code
    # Before version 3 the request does not say who commits.
    assert await broker.commit_in_transaction(GROUP, {1: 3}) is ErrorCode.NONE
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1, 1: 3})


@scenario()
async def test_fenced_static_member_does_not_commit(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP, instance_id="static")
    await stable(member)
    code = await broker.commit_in_transaction(GROUP, {0: 1}, member=("old", "static", member.generation))
    assert code is ErrorCode.FENCED_INSTANCE_ID


@scenario()
async def test_members_commit_between_join_and_sync(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await joined(member)
    assert broker.is_in(GROUP, GroupState.COMPLETING_REBALANCE)
    assert await member.commit(1) is ErrorCode.REBALANCE_IN_PROGRESS
    me = (member.member_id, None, member.generation)
    assert await broker.commit_in_transaction(GROUP, {0: 1}, member=me) is ErrorCode.NONE


@scenario()
async def test_a_group_that_does_not_exist(brokers: Brokers) -> None:
    broker = await brokers.start()
    code = await broker.commit_in_transaction(GROUP, {0: 1}, member=("m", None, 1))
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert broker.coordinator.describe(GROUP) is None
    assert await broker.commit_in_transaction(GROUP, {0: 1}) is ErrorCode.NONE
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert await brokers.store.record(GROUP) is not None
    with refused(ErrorCode.INVALID_GROUP_ID):
        await broker.commit_in_transaction("", {0: 1})


# Limits


@scenario(group_offsets_max_bytes=4096)
async def test_pending_offsets_count_as_the_groups(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert await broker.commit_in_transaction(GROUP, {0: 1}, metadata="x" * 100) is ErrorCode.NONE
    running = broker.shards.existing(GROUP)
    pending = broker.shards.shard(GROUP).pending.of((GROUP, PRODUCER_ID))
    assert running.stored.offset_bytes == reserved_bytes(GROUP, pending) > 0
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit_in_transaction(GROUP, {1: 1}, metadata="x" * 4000)
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit(GROUP, 1, metadata="x" * 3700)
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1})
    before = running.stored.offset_bytes
    restarted = await brokers.start()
    assert restarted.shards.existing(GROUP).stored.offset_bytes == before


@scenario()
async def test_more_offsets_than_one_value_takes_are_refused(brokers: Brokers) -> None:
    broker = await brokers.start()
    offsets = dict.fromkeys(range(300), 1)
    assert await broker.commit_in_transaction(GROUP, {0: 1}) is ErrorCode.NONE
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit_in_transaction(GROUP, offsets, metadata="x" * 4096)
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1})


# The store


@scenario(offsets_commit_timeout_ms=1000)
async def test_a_commit_that_is_not_stored_is_not_pending(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1})
    with brokers.store.hold("transact", keys.group_offset(NEIGHBOUR, TOPIC, 0)) as hold:
        first = asyncio.create_task(broker.commit(NEIGHBOUR, 1))
        await hold.until_reached()
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await broker.commit_in_transaction(GROUP, {1: 2})
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await first
    await broker.shards.shard(GROUP).flush()
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1})
    await broker.commit_in_transaction(GROUP, {2: 3})
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({0: 1, 2: 3})


@scenario()
async def test_unreadable_pending_offsets_refuse_commits_and_fetches(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1})
    await broker.commit(NEIGHBOUR, 1)
    key = keys.pending_offsets(GROUP, PRODUCER_ID)
    await MemoryStore.transact(brokers.store, [], [Put(key, b"\0\1broken")])
    broker = await brokers.start()
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await broker.commit_in_transaction(GROUP, {0: 1})
    with refused(ErrorCode.UNKNOWN_SERVER_ERROR):
        await broker.unstable(GROUP)
    assert await broker.fetch(GROUP) == {}
    assert await broker.commit_in_transaction(GROUP, {0: 1}, producer_id=8) is ErrorCode.NONE
    assert await broker.unstable(NEIGHBOUR) == set()
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.keys_of_transactions() == []


# What else happens to a group


@scenario()
async def test_deleting_a_group_drops_what_is_pending(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_in_transaction(GROUP, {0: 1})
    await broker.commit_in_transaction(NEIGHBOUR, {0: 1})
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.keys_of_transactions() == [keys.pending_offsets(NEIGHBOUR, PRODUCER_ID)]
    assert broker.shards.totals.stored.offset_bytes == broker.shards.existing(NEIGHBOUR).stored.offset_bytes
    await broker.commit_in_transaction(GROUP, {0: 2})
    assert [asked[3] for asked in broker.transactions.asked] == [GROUP, NEIGHBOUR, GROUP]


@scenario()
async def test_deleting_offsets_drops_those_that_are_pending(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    await broker.commit_in_transaction(GROUP, {1: 5, 2: 5, 3: 5})
    await broker.commit_in_transaction(GROUP, {1: 6}, producer_id=8)
    await broker.coordinator.delete_offsets(GROUP, [(TOPIC, 1), (TOPIC, 2)])
    assert await brokers.store.offsets(GROUP) == places({0: 1})
    assert await brokers.store.pending(GROUP, PRODUCER_ID) == places({3: 5})
    assert await brokers.store.pending(GROUP, 8) is None
    assert await broker.unstable(GROUP) == {3}


@scenario(offsets_retention_minutes=1)
async def test_offsets_and_groups_with_pending_ones_do_not_expire(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    await broker.commit_in_transaction(GROUP, {0: 5})
    await broker.commit_in_transaction(NEIGHBOUR, {0: 5})
    await asyncio.sleep(61)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == places({0: 1})
    assert {group.group_id for group in broker.coordinator.groups()} == {GROUP, NEIGHBOUR}
    broker.marker_watch.start()
    for group_id in (GROUP, NEIGHBOUR):
        await end(brokers.store, group_id, commit=False)
    await until_gone(brokers.store, keys.GROUP_MARKERS)
    await broker.expiry.check()
    assert await brokers.store.group_keys() == []
    assert list(broker.coordinator.groups()) == []


@scenario()
async def test_commit_ids_are_of_the_topic_that_is_stored(brokers: Brokers) -> None:
    """The broker's view does not show yet that the topic was created again."""
    broker = await brokers.start()
    await brokers.make_topic(TOPIC, UUID(int=100))
    await broker.commit_in_transaction(GROUP, {0: 5})
    assert await broker.unstable(GROUP) == {0}
