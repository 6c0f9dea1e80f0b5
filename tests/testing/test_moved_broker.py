"""A broker whose clock a test moves: what depends on time has happened when `advance` returns."""

import asyncio
from typing import Any

from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.testing.clock import LEASE_TTL_SEC
from tests.support import wire
from tests.support.in_process_broker import Client, in_process_broker
from tests.testing.movable import movable, on_movable_loop

A_DAY_SEC = 24 * 3600
SESSION_TIMEOUT_SEC = 10
GROUP = "group"


async def join(client: Client) -> tuple[str, int]:
    """Become the only member; returns the member id and the generation."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_TIMEOUT_SEC * 1000,
        rebalance_timeout_ms=SESSION_TIMEOUT_SEC * 1000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = await client.call(request, JoinGroupResponse, 3)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]
    )
    assert (await client.call(sync, SyncGroupResponse, 1)).error_code == 0
    return joined.member_id, joined.generation_id


async def heartbeat(client: Client, member_id: str, generation: int) -> int:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return int((await client.call(request, HeartbeatResponse, 1)).error_code)


def moved_broker(**settings: Any) -> Any:
    return in_process_broker(
        clocks=movable().clocks,
        **{"lease_ttl_sec": LEASE_TTL_SEC, "group_initial_rebalance_delay_ms": 0, **settings},
    )


@on_movable_loop
async def test_member_that_heartbeats_between_steps_stays() -> None:
    async with moved_broker() as broker, broker.connect() as client:
        member = await join(client)
        for _ in range(5):
            await movable().advance_async(SESSION_TIMEOUT_SEC - 1)
            assert await heartbeat(client, *member) == ErrorCode.NONE


@on_movable_loop
async def test_silent_member_is_removed_by_one_step() -> None:
    async with moved_broker() as broker, broker.connect() as client:
        member = await join(client)
        await movable().advance_async(SESSION_TIMEOUT_SEC + 1)
        group = broker.process.serving.groups.coordinator.describe(GROUP)
        assert group is not None
        assert not group.members
        assert await heartbeat(client, *member) == ErrorCode.UNKNOWN_MEMBER_ID


@on_movable_loop
async def test_committed_offsets_expire() -> None:
    async with moved_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="topic", partitions=[partition])
        commit = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        )
        reply = await client.call(commit, OffsetCommitResponse, 5)
        assert reply.topics[0].partitions[0].error_code == 0
        coordinator = broker.process.serving.groups.coordinator
        await movable().advance_async(6 * A_DAY_SEC)
        assert (await coordinator.fetch_offsets(GROUP, require_stable=False)).committed
        await movable().advance_async(2 * A_DAY_SEC)
        assert not (await coordinator.fetch_offsets(GROUP, require_stable=False)).committed


@on_movable_loop
async def test_state_of_idle_producers_expires() -> None:
    async with moved_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        partition, checkpointer = broker.partition("topic"), broker.process.serving.log_parts.checkpointer
        part = await client.produce(
            "topic", 0, wire.batch([b"x"], producer_id=7, producer_epoch=0, sequence=0)
        )
        assert part.error_code == 0
        known = []
        for _ in range(2):
            await checkpointer.write(partition, partition.log, partition.references)
            known.append([producer.producer_id for producer in partition.log.producers.published()])
            await movable().advance_async(A_DAY_SEC + 1)
        assert known == [[7], []]


@on_movable_loop
async def test_broker_keeps_its_lease_in_a_long_walk() -> None:
    metadata = MemoryStore()
    async with moved_broker(metadata=metadata) as broker, broker.connect() as client:
        await broker.create_topic()
        lease = broker.process.basics.registration.lease
        await movable().advance_async(3 * A_DAY_SEC)
        assert broker.process.basics.registration.lease == lease
        assert broker.process.basics.registration.unrenewed_ms() < LEASE_TTL_SEC * 1000
        await client.closed_by_peer()  # It was idle.
        async with broker.connect() as other:
            assert (await other.produce("topic", 0, wire.batch([b"x"]))).error_code == 0


@on_movable_loop
async def test_lease_of_the_store_in_memory_ends() -> None:
    metadata = MemoryStore()
    kept, left = [await metadata.grant_lease(10) for _ in range(2)]
    await metadata.transact([], [Put("kept", b"", kept), Put("left", b"", left)])

    async def renew() -> None:
        while True:
            await asyncio.sleep(5)
            await metadata.renew_lease(kept)

    renewing = asyncio.create_task(renew())
    await asyncio.sleep(0)
    await movable().advance_async(60)
    assert await metadata.get("kept") is not None
    assert await metadata.get("left") is None
    renewing.cancel()


@on_movable_loop
async def test_waiting_fetch_ends_when_its_time_is_over() -> None:
    async with moved_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        fetching = asyncio.create_task(client.fetch("topic", {0: 0}, max_wait_ms=30_000))
        await asyncio.sleep(0)
        await movable().advance_async(10)
        assert not fetching.done()
        await movable().advance_async(21)
        assert (await fetching)[0].error_code == 0
