"""A whole broker and its lease: it goes on under another one, and two brokers do not share an id."""

import asyncio

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from kafscale.broker.process import EXIT_STOPPED
from kafscale.errors import StartupError, StoreRefusedError
from kafscale.metadata import keys
from kafscale.metadata.store import NO_LEASE, Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop

AN_HOUR_MS = 3_600_000


@on_uvloop
async def test_a_broker_whose_lease_ends_goes_on_under_another() -> None:
    async with in_process_broker(lease_ttl_sec=1, flush_interval_ms=AN_HOUR_MS) as broker:
        topic = await broker.create_topic(partitions=2)
        registration = broker.process.basics.registration
        async with broker.connect() as client, broker.connect() as consumer:
            await consumer.send_fetch(topic, {0: 0}, max_wait_ms=60_000)
            await until(lambda: broker.partition(topic).has_listeners, "the fetch waits")
            await client.send_produce(topic, {1: wire.batch([b"accepted"])})
            log = broker.process.serving.logs.open_now(broker.partition(topic, 1))
            assert log is not None
            await until(lambda: log.waiting, "it has come")
            first = registration.lease
            await broker.metadata.revoke_lease(first)
            # Nobody else leads yet: what was accepted is published as the broker lets go.
            assert (await client.receive_produce())[1][1].base_offset == 0
            assert (await consumer.receive_fetch())[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await until(lambda: registration.lease != first, "it is registered again")
            await until(lambda: broker.process.serving.logs.partition_count == 2, "it leads again")
            assert broker.partition(topic, 1).record.leader_epoch == 1
            assert wire.records_in((await consumer.fetch(topic, {1: 0}))[1].records) == [(0, b"accepted")]
            coordinator = broker.process.serving.view.coordinator
            await until(
                lambda: all(coordinator(shard) is not None for shard in range(keys.GROUP_SHARD_COUNT)),
                "groups are coordinated again",
            )
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            reply = await client.call(request, MetadataResponse, 5)
            assert [one.node_id for one in reply.brokers] == [0]
            assert [part.leader_id for part in reply.topics[0].partitions] == [0, 0]
        assert broker.metrics.leases_ended == 1
        assert await broker.stop() == EXIT_STOPPED
        assert not (await broker.metadata.range(keys.BROKERS)).items


@on_uvloop
async def test_two_brokers_do_not_share_an_id() -> None:
    async with in_process_broker(lease_ttl_sec=1) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with pytest.raises(StartupError, match=r"broker id 0 is in use.*KAFSCALE_BROKER_ID"):
            async with in_process_broker(metadata=broker.metadata, objects=broker.objects, lease_ttl_sec=1):
                pass
        assert (await client.produce(topic, 0, wire.batch([b"x"]))).base_offset == 0
        assert broker.metrics.leases_ended == 0


@on_uvloop
async def test_a_broker_waits_for_an_earlier_run_of_itself_to_time_out() -> None:
    async with in_process_broker(lease_ttl_sec=1) as broker:
        topic = await broker.create_topic()
        # As kill -9 leaves it: registered, and nobody renews the lease.
        found = await broker.metadata.get(keys.broker(0))
        assert found is not None
        leader = await broker.metadata.get(keys.leader(topic, 0))
        assert leader is not None
    dead = await broker.metadata.grant_lease(1)
    await broker.metadata.transact(
        [], [Put(found.key, found.value, dead), Put(leader.key, leader.value, dead)]
    )
    began = asyncio.get_running_loop().time()
    async with in_process_broker(metadata=broker.metadata, objects=broker.objects) as again:
        assert 0.9 < asyncio.get_running_loop().time() - began < 5
        assert again.partition(topic).record.leader_epoch == 1


@on_uvloop
async def test_a_store_that_refuses_the_broker_ends_its_start() -> None:
    """It does not wait for what will not change: one that is away comes back, missing rights do not."""
    objects = ControlledStore()
    objects.fail("get", "*", StoreRefusedError("AccessDenied: may not read _kafscale/default/cluster"))
    with pytest.raises(StartupError, match=r"refuses what the broker needs.*AccessDenied"):
        async with in_process_broker(objects=objects):
            pytest.fail("it started")


@on_uvloop
async def test_lease_ended_while_the_bucket_is_away_names_itself() -> None:
    """Resigning took seconds, and Metadata named no broker meanwhile."""
    async with in_process_broker(lease_ttl_sec=1, flush_interval_ms=0) as broker:
        topic = await broker.create_topic()
        registration = broker.process.basics.registration
        async with broker.connect() as client, broker.connect() as asking:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            with broker.objects.hold("put_if_absent", "*.entry") as uploading:
                await client.send_produce(topic, {0: wire.batch([b"accepted"])})
                await uploading.reached()
                held, first = broker.partition(topic), registration.lease
                await broker.metadata.revoke_lease(first)
                named = set[tuple[int, ...]]()
                while registration.lease in (first, NO_LEASE):
                    reply = await asking.call(request, MetadataResponse, 5)
                    named.add((reply.controller_id, *(one.node_id for one in reply.brokers)))
                assert held.log is not None and held.log.in_flight_count, (
                    "it still resigns, and is registered"
                )
            assert named == {(0, 0)}
            assert (await client.receive_produce())[1][0].base_offset == 0
            logs = broker.process.serving.logs
            await until(lambda: logs.partition(topic, 0) not in (None, held), "it leads again")
            assert broker.partition(topic).record.leader_epoch == 1
