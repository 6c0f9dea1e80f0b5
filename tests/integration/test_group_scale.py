"""Many members, many groups, many partitions: one rebalance, no cost for what is idle, few transactions.

What is measured is printed (`pytest -s`). The first two tests run on Apache Kafka too (KAFSCALE_TEST_PEER=kafka).
"""

import asyncio
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.conftest import StartBroker
from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.group_apis import commit, committed, list_groups
from tests.support.group_crowd import CrowdMember, crowd, shares
from tests.support.group_member_librdkafka import generation_of
from tests.support.group_peer import Peer, group_peer
from tests.support.group_wire import NONE, raw_group
from tests.support.metrics_page import scrape
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

MEMBERS = 100
CONSUMERS = 20
IDLE_GROUPS = 1000
LIVE_GROUPS = 200
MEASURED_SECONDS = 3.0


def cpu_seconds(broker: KafscaleBroker) -> float:
    """Processor time that the broker has used, also in threads that have ended since, to the nanosecond (Linux)."""
    clock_id = (~broker.pid << 3) | 2  # as clock_getcpuclockid(3) makes it: CPUCLOCK_SCHED of a process
    return time.clock_gettime(clock_id)


async def cpu_share(broker: KafscaleBroker, seconds: float = MEASURED_SECONDS) -> float:
    """The part of a processor that the broker takes, while the event loop's tasks go on."""
    began, used = time.monotonic(), cpu_seconds(broker)
    await asyncio.sleep(seconds)  # the time that is measured
    return (cpu_seconds(broker) - used) / (time.monotonic() - began)


def calls(broker: KafscaleBroker) -> dict[str, float]:
    """How often the metadata store was called, by operation. Leases are renewed whatever groups do."""
    counts = scrape(broker).by_label("kafscale_metadata_store_duration_seconds_count", "operation")
    return {operation: count for (operation,), count in counts.items() if operation != "renew_lease"}


def check_one_generation(members: list[CrowdMember], generation: int) -> None:
    """All are of this generation, have one leader who heard of all, and have what it gave them."""
    assert {member.generation for member in members} == {generation}
    assert len({member.leader for member in members}) == 1
    (leader,) = (member for member in members if member.id == member.leader)
    assert Counter(leader.members) == Counter(member.id for member in members)
    assert shares(members) == {member.id: member.id.encode() for member in members}


def rebalances(broker: Peer) -> float | None:
    """How many were completed; None where the broker does not tell us."""
    if not isinstance(broker, KafscaleBroker):
        return None
    return scrape(broker).value("kafscale_group_rebalance_duration_seconds_count", type="classic")


async def test_hundred_members_join_at_once_and_one_more_in_next(tmp_path: Path) -> None:
    with (
        group_peer(tmp_path, group_initial_rebalance_delay_ms=1500) as broker,
        raw_group(broker) as group,
    ):
        async with crowd(broker, [group.name] * (MEMBERS + 1)) as everybody:
            members, newcomer = everybody[:MEMBERS], everybody[MEMBERS]
            began = time.monotonic()
            await asyncio.gather(*(member.enter() for member in members))
            print(f"{MEMBERS} members joined within {time.monotonic() - began:.2f} s")
            check_one_generation(members, 1)
            assert rebalances(broker) in (1, None)
            assert len(group.describe().members) == MEMBERS

            began = time.monotonic()
            await asyncio.gather(newcomer.enter(), *(member.enter_again(0.1) for member in members))
            print(f"one more was a member within {time.monotonic() - began:.2f} s")
            check_one_generation(everybody, 2)
            assert rebalances(broker) in (2, None)
            assert [await member.heartbeat() for member in everybody] == [NONE] * (MEMBERS + 1)


def note_count(seen: list[int], _: Consumer, partitions: list[TopicPartition]) -> None:
    seen.append(len(partitions))


def test_twenty_real_consumers_join_in_one_rebalance(tmp_path: Path) -> None:
    topic = unique_name()
    assigned: list[list[int]] = [[] for _ in range(CONSUMERS)]  # partitions of each call, per consumer
    with group_peer(tmp_path, group_initial_rebalance_delay_ms=1500) as broker, raw_group(broker) as group:
        create_topic(broker, topic, 2 * CONSUMERS)
        consumers = [
            Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group.name})
            for _ in range(CONSUMERS)
        ]
        try:
            for consumer, seen in zip(consumers, assigned, strict=True):
                consumer.subscribe([topic], on_assign=partial(note_count, seen))

            def all_have_partitions() -> bool:
                for consumer in consumers:
                    message = consumer.poll(0.005)
                    assert message is None, "a record, or an error, where there are no records"
                return all(assigned)

            wait_until(all_have_partitions, "every consumer has its partitions")
            assert assigned == [[2]] * CONSUMERS
            assert {generation_of(consumer) for consumer in consumers} == {1}
            assert rebalances(broker) in (1, None)
        finally:
            for consumer in consumers:
                consumer.close()


async def test_a_thousand_idle_groups_cost_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    create_topic(broker, "t")
    without = await cpu_share(broker)
    names = [f"idle-{number}" for number in range(IDLE_GROUPS)]
    with wire.connect(broker) as connection:
        began = time.monotonic()
        for name in names:
            assert commit(connection, name, {("t", 0): 7}) == {("t", 0): NONE}
        print(f"{IDLE_GROUPS} groups committed within {time.monotonic() - began:.2f} s")
        assert set(list_groups(connection)) == set(names)
    with_groups = await cpu_share(broker)
    print(f"a processor's share: {without:.3%} without groups, {with_groups:.3%} with {IDLE_GROUPS} of them")
    assert with_groups - without < 0.02


@pytest.mark.nightly
async def test_two_hundred_groups_with_heartbeats_cost_little(start_broker: StartBroker) -> None:
    """Heartbeats every three seconds, as clients send them unless told otherwise."""
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    without = await cpu_share(broker)
    names = [f"live-{number}" for number in range(LIVE_GROUPS)]
    async with crowd(broker, names) as members:
        await asyncio.gather(*(member.enter() for member in members))
        assert {member.generation for member in members} == {1}
        before = calls(broker)
        hearts = [asyncio.create_task(member.beat(3.0)) for member in members]
        with_groups = await cpu_share(broker, 2 * MEASURED_SECONDS)
        for heart in hearts:
            heart.cancel()
        outcomes = await asyncio.gather(*hearts, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in outcomes), outcomes
        assert calls(broker) == before, "heartbeats wrote to the store, or read from it"
    print(
        f"a processor's share: {without:.3%} without groups, {with_groups:.3%} with {LIVE_GROUPS} live ones"
    )
    assert with_groups - without < 0.1


def test_heartbeats_write_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    with raw_group(broker) as group:
        members = group.stable(2)
        before = calls(broker)
        for _ in range(250):
            assert {member.heartbeat() for member in members} == {NONE}
        assert calls(broker) == before


def test_commit_of_500_partitions_takes_few_transactions(start_broker: StartBroker) -> None:
    broker = start_broker()
    create_topic(broker, "wide", 500)
    offsets = {("wide", partition): 1000 + partition for partition in range(500)}
    with raw_group(broker) as group:
        (member,) = group.stable(1)
        before = calls(broker)
        began = time.monotonic()
        assert set(member.commit(offsets).values()) == {NONE}
        took, after = time.monotonic() - began, calls(broker)
        transactions = after["transact"] - before["transact"]
        print(f"500 partitions: {transactions:.0f} transactions, {took * 1000:.0f} ms")
        assert transactions <= 5
        assert {place: one.offset for place, one in committed(group.wire, group.name).items()} == offsets
    broker.kill9()
    broker.start()
    with raw_group(broker) as other:
        found = committed(other.wire, group.name)
    assert {place: one.offset for place, one in found.items()} == offsets
