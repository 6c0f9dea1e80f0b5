"""A topic whose record cannot be read is not taken for deleted: members of groups keep its partitions."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafscale.groups.modern.assignment import Assignment, partitions_of
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.tasks.thread_turns import ThreadTurns
from tests.groups.consumer.member import ConsumerMember
from tests.groups.consumer.mixed_group import TOPIC as CLASSIC_TOPIC
from tests.groups.consumer.mixed_group import (
    ClassicClient,
    ConsumerClient,
    group_type,
    next_broker,
    one_broker,
)
from tests.groups.coordination import GROUP, Brokers, Coordinating, refused, scenario
from tests.groups.share.member import SharingMember

SMALL, SMALL_ID = "tasks", uuid.UUID(int=5)
OTHER, OTHER_ID = "returns", uuid.UUID(int=6)
EVERY = {SMALL_ID: frozenset(range(4))}
LINE = "a topic cannot be read: groups keep its partitions as they are"

Client = ConsumerMember | SharingMember
KINDS = pytest.mark.parametrize("kind", [ConsumerMember, SharingMember])


async def damage(brokers: Brokers, topic: str) -> None:
    await MemoryStore.transact(brokers.store, [], [Put(keys.topic(topic), b"damaged")])


async def started(brokers: Brokers) -> Coordinating:
    await brokers.make_topic(SMALL, SMALL_ID, 4)
    await brokers.make_topic(OTHER, OTHER_ID, 2)
    broker = await brokers.start()
    await broker.tell_topics()
    return broker


def has(member: Client) -> Assignment:
    return member.owned if isinstance(member, ConsumerMember) else member.has


async def settled(*members: Client) -> None:
    """Each has what the target gives it: it gives up what it is to, and the others hear of that."""
    for member in members * 3:
        await member.heartbeat()


async def run_at_once(turns: ThreadTurns, work: Callable[[], Any]) -> Any:
    """In virtual time there are no threads."""
    return work()


@KINDS
@scenario()
async def test_a_topic_is_shared_as_it_was_known(
    brokers: Brokers, kind: type[Client], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await started(brokers)
    members = [kind(broker.coordinator, topics=(SMALL,)) for _ in range(3)]
    await settled(members[0])
    await damage(brokers, SMALL)
    await broker.tell_topics()
    for count in (2, 3):
        await settled(*members[:count])
        parts = [frozenset(partitions_of(has(one))) for one in members[:count]]
        assert frozenset.union(*parts) == frozenset(partitions_of(EVERY))
        assert all(parts)
    assert sum(record.message == LINE for record in caplog.records) == 1


@KINDS
@scenario()
async def test_members_keep_a_topic_that_is_not_known(brokers: Brokers, kind: type[Client]) -> None:
    broker = await started(brokers)
    reader, other = (kind(broker.coordinator, topics=(SMALL, OTHER)) for _ in range(2))
    await settled(reader, other)
    before = {one.member_id: has(one)[SMALL_ID] for one in (reader, other)}
    await damage(brokers, SMALL)
    broker = await brokers.start()  # It has never read the record.
    newcomer = kind(broker.coordinator, topics=(SMALL, OTHER))
    reader.coordinator = other.coordinator = broker.coordinator
    await settled(reader, other, newcomer)
    assert {one.member_id: has(one)[SMALL_ID] for one in (reader, other)} == before
    assert SMALL_ID not in has(newcomer)
    other.topics = (OTHER,)
    await other.heartbeat(**({"full": True} if isinstance(other, SharingMember) else {}))
    await settled(reader, other, newcomer)
    assert SMALL_ID not in has(other), "it does not read the topic any more"
    assert has(reader)[SMALL_ID] == before[reader.member_id]
    # The record is repaired.
    await brokers.make_topic(SMALL, SMALL_ID, 4)
    await broker.tell_topics()
    await newcomer.leave()
    await settled(reader, other)
    assert has(reader)[SMALL_ID] == EVERY[SMALL_ID]


@scenario()
async def test_a_regular_expression_describes_a_damaged_topic(brokers: Brokers) -> None:
    broker = await started(brokers)
    reader = ConsumerMember(broker.coordinator, topics=(), regex="task.*")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadTurns, "run", run_at_once)
        await settled(reader)
        await damage(brokers, SMALL)
        reader.coordinator = (await brokers.start()).coordinator
        await settled(reader)
    assert reader.owned == EVERY


@scenario()
async def test_a_group_stays_classic_while_a_topic_cannot_be_read(brokers: Brokers) -> None:
    old = ClassicClient(await one_broker(brokers))
    await old.lead_alone()
    await damage(brokers, CLASSIC_TOPIC)
    broker = old.broker = await next_broker(brokers)
    new = ConsumerClient(broker)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await new.heartbeat()
    assert group_type(broker) == ("classic", "Stable")
    assert old.heartbeat() is ErrorCode.NONE
    assert broker.group(GROUP).members.keys() == {old.member_id}
