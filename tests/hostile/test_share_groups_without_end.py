"""Ever new share groups, topics that grow beneath them, acknowledgements that leave holes: all has a bound."""

import asyncio
import uuid
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreatePartitionsResponse

from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.protocol import api_messages as m
from kafscale.protocol.error_codes import ErrorCode
from kafscale.share.run_budget import IN_FLIGHT_WHEN_SPENT
from kafscale.share.state.operations import Change, alter, delete
from tests.share.state.partitions import apply
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.share_member import ACCEPT, ShareMember
from tests.support.waiting import PATIENCE_SEC

TOPIC, PARTITIONS = "many", 200
KIB = 1 << 10
LIMIT_BYTES = 1 << 20
ALLOWED_BYTES = LIMIT_BYTES * 3 // 4
HEARTBEAT_VERSION = 1
CREATE_PARTITIONS_VERSION = 3


async def heartbeat(client: Client, group: str, names: list[str] | None, epoch: int = 0) -> Any:
    request = m.ShareGroupHeartbeatRequest(
        group_id=group, member_id="a", member_epoch=epoch, rack_id=None, subscribed_topic_names=names
    )
    return await client.call(request, m.ShareGroupHeartbeatResponse, HEARTBEAT_VERSION)


async def stored_bytes(broker: InProcessBroker) -> int:
    """Keys and values of all that groups have."""
    prefixes = (keys.GROUPS, keys.GROUP_MEMBERS, keys.SHARE_STARTS, keys.SHARE_STATES)
    found = [await broker.metadata.range(prefix) for prefix in prefixes]
    return sum(len(item.key) + len(item.value) for snapshot in found for item in snapshot.items)


def counted_bytes(broker: InProcessBroker) -> int:
    return broker.process.serving.groups.coordinator.shares._shards.totals.stored.all_bytes


async def test_ever_new_groups_of_many_partitions_are_refused() -> None:
    async with (
        in_process_broker(groups_stored_max_bytes=LIMIT_BYTES) as broker,
        broker.connect() as client,
    ):
        await broker.create_topic(TOPIC, PARTITIONS)
        first = await heartbeat(client, "first", [TOPIC])
        assert first.error_code == 0
        answers = [await heartbeat(client, f"filler-{number}", [TOPIC]) for number in range(30)]
        codes = [one.error_code for one in answers]
        taken = codes.index(ErrorCode.GROUP_MAX_SIZE_REACHED)
        assert taken > 2
        assert set(codes[:taken]) == {0}
        assert set(codes[taken:]) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
        assert "KAFSCALE_GROUPS_STORED_MAX_BYTES" in answers[-1].error_message
        assert await stored_bytes(broker) < counted_bytes(broker) <= ALLOWED_BYTES
        assert len((await broker.metadata.range(keys.GROUPS)).items) == taken + 1, (
            "of a refused one nothing stays"
        )
        # Those that are there go on, also when they come back.
        assert (await heartbeat(client, "first", None, first.member_epoch)).error_code == 0
        assert (await heartbeat(client, "first", None, -1)).error_code == 0
        again = await heartbeat(client, "first", [TOPIC])
        assert again.error_code == 0
        assert len(again.assignment.topic_partitions[0].partitions) == PARTITIONS


async def test_topics_that_grow_beneath_groups_give_them_no_more() -> None:
    async with (
        in_process_broker(groups_stored_max_bytes=LIMIT_BYTES // 2) as broker,
        broker.connect() as client,
    ):
        await broker.create_topic(TOPIC, 1)
        groups = [f"group-{number}" for number in range(8)]
        epochs = {group: (await heartbeat(client, group, [TOPIC])).member_epoch for group in groups}
        assert min(epochs.values()) > 0
        grown = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=400, assignments=None)],
            timeout_ms=10_000,
            validate_only=False,
        )
        reply = await client.call(grown, CreatePartitionsResponse, CREATE_PARTITIONS_VERSION)
        assert reply.results[0].error_code == 0
        has = dict.fromkeys(groups, 1)

        async def heartbeats() -> None:
            for group in groups:
                answer = await heartbeat(client, group, None, epochs[group])
                assert answer.error_code == 0
                epochs[group] = answer.member_epoch
                if answer.assignment is not None:
                    has[group] = len(answer.assignment.topic_partitions[0].partitions)

        async with asyncio.timeout(PATIENCE_SEC):
            while max(has.values()) < 400 or not broker.metrics.groups.share_partitions_refused:
                await heartbeats()
        for _ in range(3):
            await heartbeats()
        assert min(has.values()) == 1, "it goes on with what it has"
        assert sum(has.values()) == len((await broker.metadata.range(keys.SHARE_STARTS)).items)
        assert await stored_bytes(broker) < counted_bytes(broker) <= LIMIT_BYTES * 3 // 8
        assert broker.metrics.groups.share_partitions_refused >= 399


async def test_a_group_has_a_limit_of_its_own() -> None:
    async with (
        in_process_broker(group_offsets_max_bytes=64 * KIB) as broker,
        broker.connect() as client,
    ):
        await broker.create_topic(TOPIC, PARTITIONS)
        await broker.create_topic("few", 3)
        refused = await heartbeat(client, "g", [TOPIC])
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "KAFSCALE_GROUP_OFFSETS_MAX_BYTES" in refused.error_message
        assert (await heartbeat(client, "g", ["few"])).error_code == 0


async def test_long_group_ids_are_counted_as_they_are_stored() -> None:
    """A character that is percent-encoded takes three bytes in each key."""
    async with (
        in_process_broker(groups_stored_max_bytes=LIMIT_BYTES) as broker,
        broker.connect() as client,
    ):
        await broker.create_topic(TOPIC, PARTITIONS)
        codes = {
            (await heartbeat(client, f"{'/' * 2_000}{number}", [TOPIC])).error_code for number in range(3)
        }
        assert codes == {ErrorCode.GROUP_MAX_SIZE_REACHED}
        assert await stored_bytes(broker) == 0


async def test_holes_in_acknowledgements_have_a_bound() -> None:
    """Every second record is finished, in each partition that there is: runs end at the broker's limit."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, 8)
        record = broker.process.serving.view.topic(TOPIC)
        assert record is not None
        for index in range(8):
            for _ in range(20):
                part = await client.produce(TOPIC, index, wire.batch([b"x"] * 100))
                assert part.error_code == 0
        budget = broker.process.serving.sharing.service._partitions.budget
        budget.limit = 2_500
        groups = [f"g{number}" for number in range(3)]
        for group in groups:
            places = {SharePartitionId(group, record.topic_id, index): 0 for index in range(8)}
            await apply(broker.metadata, alter(places, {}, Change(0)).operations)
            await make_holes(client, record.topic_id, group)
        most_of_one = 8 * IN_FLIGHT_WHEN_SPENT
        assert budget.limit <= budget.used <= budget.limit + 2_000 + len(groups) * most_of_one
        # All of a group go on, with fewer records at a time.
        last = ShareMember(client, record.topic_id, group=groups[-1], member="b")
        assert await last.acquired([0])
        used = budget.used
        gone = [SharePartitionId(groups[0], record.topic_id, index) for index in range(8)]
        await apply(broker.metadata, delete(gone))
        await until(lambda: budget.used <= used - 2_000, "the runs of a deleted group are gone")


async def make_holes(client: Client, topic_id: uuid.UUID, group: str) -> None:
    """Acquire what can be had of each partition, and accept every second record of it."""
    for index in range(8):
        member = ShareMember(client, topic_id, group=group, member=f"{group}-{index}")
        answers = await member.fetch([index], max_records=2_000, batch_size=2_000, max_bytes=1 << 24)
        assert isinstance(answers, dict), answers
        for first, last, _ in answers[index].acquired:
            said = tuple((offset, offset, ACCEPT) for offset in range(first, last + 1, 2))
            assert await member.say(*said, index=index) == {index: 0}
