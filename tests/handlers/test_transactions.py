"""The APIs of transactions at a running broker: both protocols from the first producer id to the next transaction."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from kafscale.formats.features import TRANSACTION_VERSION
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Delete, Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

ID = "copier-7"
TIMEOUT_MS = 60_000
NONE = ErrorCode.NONE

Producer = tuple[int, int]


async def init(
    client: Client,
    transactional_id: str = ID,
    *,
    current: Producer = (-1, -1),
    timeout_ms: int = TIMEOUT_MS,
    version: int = 5,
) -> tuple[int, Producer]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=current[0],
        producer_epoch=current[1],
    )
    reply = await client.call(request, InitProducerIdResponse, version)
    return reply.error_code, (reply.producer_id, reply.producer_epoch)


async def begun(client: Client, transactional_id: str = ID) -> Producer:
    code, producer = await init(client, transactional_id)
    assert code == NONE
    return producer


async def add(
    client: Client,
    producer: Producer,
    topics: Sequence[tuple[str, Sequence[int]]],
    *,
    version: int = 3,
    transactional_id: str = ID,
) -> dict[tuple[str, int], int]:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[topic(name=name, partitions=list(indexes)) for name, indexes in topics],
    )
    reply = await client.call(request, AddPartitionsToTxnResponse, version)
    return {
        (one.name, part.partition_index): part.partition_error_code
        for one in reply.results_by_topic_v3_and_below
        for part in one.results_by_partition
    }


async def add_group(client: Client, producer: Producer, group_id: str, version: int = 4) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
    )
    code: int = (await client.call(request, AddOffsetsToTxnResponse, version)).error_code
    return code


async def end(
    client: Client, producer: Producer, *, commit: bool = True, version: int = 5, transactional_id: str = ID
) -> tuple[int, Producer]:
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )
    reply = await client.call(request, EndTxnResponse, version)
    return reply.error_code, (reply.producer_id, reply.producer_epoch)


async def describe(client: Client, *transactional_ids: str) -> list[Any]:
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    reply = await client.call(request, DescribeTransactionsResponse, 0)
    return list(reply.transaction_states)


async def listed(client: Client, version: int = 1, **filters: Any) -> Any:
    values: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    request = ListTransactionsRequest(**{**values, **filters})
    return await client.call(request, ListTransactionsResponse, version)


async def until_state(client: Client, state: str) -> Any:
    """Wait until the transaction is in this state; returns its description."""
    async with asyncio.timeout(60):
        while True:
            (described,) = await describe(client, ID)
            if described.transaction_state == state:
                return described
            await asyncio.sleep(0.005)


async def produce(client: Client, topic: str, producer: Producer, version: int, sequence: int = 0) -> int:
    records = wire.batch(
        [b"v"],
        producer_id=producer[0],
        producer_epoch=producer[1],
        sequence=sequence,
        is_transactional=True,
    )
    request = wire.produce_request(topic, {0: records})
    request.transactional_id = ID
    await client.send(request, version)
    _, parts = await client.receive_produce(version=version)
    code: int = parts[0].error_code
    return code


@on_uvloop
@pytest.mark.parametrize("commit", [True, False])
async def test_transactions_of_tv1_keep_the_epoch(commit: bool) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        producer = await begun(client)
        for number in range(3):
            assert await add(client, producer, [(topic, [1, 0])]) == {(topic, 0): NONE, (topic, 1): NONE}
            assert await produce(client, topic, producer, 11, sequence=number) == NONE
            assert await end(client, producer, commit=commit, version=4) == (NONE, (-1, -1))
            await until_state(client, "CompleteCommit" if commit else "CompleteAbort")
            assert await end(client, producer, commit=commit, version=4) == (NONE, (-1, -1))
        assert await broker.metadata.range(keys.PARTITION_MARKERS) is not None
        assert not (await broker.metadata.range(keys.PARTITION_MARKERS)).items


@on_uvloop
async def test_transactions_of_tv2_bump_the_epoch() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        first = producer = await begun(client)
        for number in range(3):
            # The leader adds the partition, and waits a moment for the transaction before.
            async with asyncio.timeout(60):
                while (code := await produce(client, topic, producer, 12)) != NONE:
                    assert code == ErrorCode.CONCURRENT_TRANSACTIONS
            code, producer = await end(client, producer, commit=number % 2 == 0)
            assert (code, producer) == (NONE, (first[0], first[1] + number + 1))
        await until_state(client, "CompleteCommit")
        assert await end(client, (first[0], first[1] + 2)) == (NONE, producer)
        assert await end(client, first) == (ErrorCode.PRODUCER_FENCED, (-1, -1))


@on_uvloop
async def test_an_abort_without_a_transaction_is_legal_in_tv2_only() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        producer = await begun(client)
        assert (await end(client, producer, commit=False, version=4))[0] == ErrorCode.INVALID_TXN_STATE
        assert await end(client, producer, commit=False) == (NONE, (producer[0], producer[1] + 1))


@on_uvloop
async def test_a_new_client_fences_the_old_one() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        old = await begun(client)
        await add(client, old, [(topic, [0])])
        assert await produce(client, topic, old, 11) == NONE
        assert (await init(client))[0] == ErrorCode.CONCURRENT_TRANSACTIONS
        await until_state(client, "CompleteAbort")
        new = await begun(client)
        assert new == (old[0], old[1] + 2)
        assert (await add(client, old, [(topic, [0])]))[topic, 0] == ErrorCode.PRODUCER_FENCED
        assert (await add(client, old, [(topic, [0])], version=1))[
            topic, 0
        ] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await add_group(client, old, "g") == ErrorCode.PRODUCER_FENCED
        assert await add_group(client, old, "g", version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await end(client, old))[0] == ErrorCode.PRODUCER_FENCED
        assert (await end(client, old, version=1))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await init(client, current=old))[0] == ErrorCode.PRODUCER_FENCED
        assert (await init(client, current=old, version=3))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await init(client, current=new) == (NONE, (new[0], new[1] + 1))


@on_uvloop
async def test_init_producer_id_in_every_version() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        given = [await init(client, version=version) for version in range(6)]
        assert given == [(NONE, (given[0][1][0], epoch)) for epoch in range(6)]
        assert (await init(client, current=(7, -1)))[0] == ErrorCode.INVALID_REQUEST
        assert (await init(client, current=(-1, 7)))[0] == ErrorCode.INVALID_REQUEST
        assert (await init(client, ""))[0] == ErrorCode.INVALID_REQUEST
        assert (await init(client, timeout_ms=0))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await init(client, timeout_ms=900_001))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@on_uvloop
async def test_one_partition_that_is_not_there_keeps_all_out() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        producer = await begun(client)
        attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
        for version in range(4):
            # Each is answered once, however often it is named.
            assert await add(
                client, producer, [(topic, [1, 2, 1]), ("none", [0]), (topic, [0])], version=version
            ) == {
                (topic, 0): attempted,
                (topic, 1): attempted,
                (topic, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
        (described,) = await describe(client, ID)
        assert described.transaction_state == "Empty"
        assert await add(client, producer, []) == {}


@on_uvloop
@pytest.mark.parametrize("producer", [(77, 0), (-1, -1)])
async def test_a_producer_that_is_not_known_is_refused(producer: Producer) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for _ in range(2):
            assert await add(client, producer, [(topic, [0])]) == {(topic, 0): unknown}
            assert await add_group(client, producer, "g") == unknown
            assert (await end(client, producer))[0] == unknown
            await begun(client)  # Once without, once with the transactional id.


@on_uvloop
async def test_a_group_without_offsets_is_in_its_transaction() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        producer = await begun(client)
        for version in range(5):
            assert await add_group(client, producer, f"g-{version}", version) == NONE
        (described,) = await describe(client, ID)
        assert (described.transaction_state, described.topics) == ("Ongoing", [])
        assert described.transaction_start_time_ms > 0


@on_uvloop
async def test_descriptions_and_lists_show_what_is_asked_for() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=3)
        idle = await begun(client, "idle")
        producer = await begun(client)
        await add(client, producer, [(topic, [2, 0])])
        described, missing, empty = await describe(client, ID, "nowhere", ID, "")
        assert (described.error_code, described.transaction_state) == (NONE, "Ongoing")
        assert (described.producer_id, described.producer_epoch) == producer
        assert described.transaction_timeout_ms == TIMEOUT_MS
        assert [(one.topic, list(one.partitions)) for one in described.topics] == [(topic, [0, 2])]
        assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

        async def names(version: int = 1, **filters: Any) -> list[tuple[str, str]]:
            reply = await listed(client, version, **filters)
            assert reply.error_code == NONE
            return sorted((one.transactional_id, one.transaction_state) for one in reply.transaction_states)

        both = [(ID, "Ongoing"), ("idle", "Empty")]
        assert await names(0) == await names(1) == both
        assert await names(state_filters=["Ongoing", "Dead"]) == [(ID, "Ongoing")]
        assert await names(producer_id_filters=[idle[0]]) == [("idle", "Empty")]
        assert await names(duration_filter=3_600_000) == [("idle", "Empty")]
        assert await names(state_filters=["Nonsense"]) == []
        assert (await listed(client, state_filters=["Nonsense"])).unknown_state_filters == ["Nonsense"]


@on_uvloop
async def test_the_coordinator_of_a_transactional_id_is_found() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        for version in range(1, 5):
            request = FindCoordinatorRequest(key=ID, key_type=1, coordinator_keys=[ID])
            reply = await client.call(request, FindCoordinatorResponse, version)
            found = reply.coordinators[0] if version >= 4 else reply
            assert (found.error_code, found.node_id) == (NONE, 0)
            assert found.port > 0


def _without_level(broker: InProcessBroker) -> Callable[[], bool]:
    return lambda: broker.process.serving.view.feature_level(TRANSACTION_VERSION) == 0


@on_uvloop
async def test_a_cluster_of_an_older_release_has_no_transactions() -> None:
    metadata = MemoryStore()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        await metadata.transact([], [Delete(keys.feature(TRANSACTION_VERSION))])
        await until(_without_level(broker), "the level is not finalized")
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await init(client))[0] == denied
        assert (await end(client, (1, 1)))[0] == denied
        assert await add_group(client, (1, 1), "g") == denied
        assert [one.error_code for one in await describe(client, ID)] == [denied]
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        reply = await client.call(request, FindCoordinatorResponse, 4)
        assert reply.coordinators[0].error_code == denied
        assert "--feature transaction.version=2" in reply.coordinators[0].error_message


@on_uvloop
async def test_a_record_that_cannot_be_read_is_refused_alone() -> None:
    metadata = MemoryStore()
    async with in_process_broker(metadata=metadata) as broker, broker.connect() as client:
        await metadata.transact([], [Put(keys.transaction(ID), b"\x00\x09")])
        assert (await init(client))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await begun(client, "another")


async def write_markers(
    client: Client, producer: Producer, topic: str, *indexes: int, commit: bool = False
) -> list[tuple[int, int]]:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer[0],
                producer_epoch=producer[1],
                transaction_result=commit,
                topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
                coordinator_epoch=0,
            )
        ]
    )
    reply = await client.call(request, WriteTxnMarkersResponse, 1)
    return [
        (part.partition_index, part.error_code)
        for one in reply.markers
        for found in one.topics
        for part in found.partitions
    ]


@on_uvloop
async def test_an_operator_ends_a_transaction_in_a_partition() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        producer = await begun(client)
        await add(client, producer, [(topic, [0])])
        assert await produce(client, topic, producer, 11) == NONE
        assert broker.partition(topic).last_stable_offset == 0
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Each is answered once, however often it is named.
        assert await write_markers(client, producer, topic, 0, 7, 0) == [(0, NONE), (7, unknown)]
        assert broker.partition(topic).last_stable_offset == 2
        assert await write_markers(client, producer, topic, 0) == [(0, NONE)]
        assert broker.partition(topic).last_stable_offset == 2
        assert await write_markers(client, producer, "nowhere", 0) == [(0, unknown)]


@on_uvloop
async def test_an_operator_with_an_old_epoch_is_refused() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        producer = await begun(client)
        producer = await begun(client)
        await add(client, producer, [(topic, [0])])
        assert await produce(client, topic, producer, 11) == NONE
        old = (producer[0], producer[1] - 1)
        assert await write_markers(client, old, topic, 0) == [(0, ErrorCode.INVALID_PRODUCER_EPOCH)]
        assert broker.partition(topic).last_stable_offset == 0
