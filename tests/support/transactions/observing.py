"""Transactions as a broker shows them, asked in raw requests."""

from typing import Any, NamedTuple

from kafka.protocol.admin.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.support.transactions.client import Partition
from tests.support.waiting import wait_until
from tests.support.wire import LATEST, Wire, connect

FIND_COORDINATOR_VERSION = 3
OFFSET_FETCH_VERSION = 7
LIST_OFFSETS_VERSION = 7
GROUP, TRANSACTION = 0, 1
UNSTABLE_OFFSET_COMMIT = 88
_NO_COORDINATOR_YET = (14, 15, 16)


class TransactionState(NamedTuple):
    """A transactional id's state. `state`: Kafka's name of it."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: list[Partition]


def last_stable_offset(broker: Any, topic: str, partition: int = 0) -> int:
    """The end of what a read_committed consumer reads."""
    return _end(broker, topic, partition, isolation_level=1)


def high_watermark(broker: Any, topic: str, partition: int = 0) -> int:
    """The end of what a read_uncommitted consumer reads."""
    return _end(broker, topic, partition, isolation_level=0)


def _end(broker: Any, topic: str, partition: int, isolation_level: int) -> int:
    rows = ListOffsetsRequest.ListOffsetsTopic
    row = rows.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[rows(name=topic, partitions=[row])]
    )
    with connect(broker) as wire:
        one = wire.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION).topics[0].partitions[0]
    assert one.error_code == 0, f"ListOffsets of {topic}: error {one.error_code}"
    return int(one.offset)


def transaction_state(broker: Any, transactional_id: str) -> TransactionState:
    """The answer of DescribeTransactions."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with connect(broker) as wire:
        _find(wire, transactional_id, TRANSACTION)
        one = wire.call(request, DescribeTransactionsResponse, 0).transaction_states[0]
    assert one.error_code == 0, f"DescribeTransactions of {transactional_id}: error {one.error_code}"
    return TransactionState(
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        sorted((topic.topic, index) for topic in one.topics for index in topic.partitions),
    )


def stable_offset(broker: Any, group: str, topic: str, partition: int = 0) -> int | None:
    """The committed offset, -1 if there is none; None while a transaction with offsets of the partition is open."""
    return _committed(broker, group, topic, partition, require_stable=True)


def committed_offset(broker: Any, group: str, topic: str, partition: int = 0) -> int:
    """The committed offset, -1 if there is none, whatever is pending."""
    found = _committed(broker, group, topic, partition, require_stable=False)
    assert found is not None
    return found


def _committed(broker: Any, group: str, topic: str, partition: int, *, require_stable: bool) -> int | None:
    rows = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        group_id=group,
        topics=[rows(name=topic, partition_indexes=[partition])],
        require_stable=require_stable,
    )
    with connect(broker) as wire:
        _find(wire, group, GROUP)

        def ask() -> Any:
            reply = wire.call(request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
            return None if reply.error_code in _NO_COORDINATOR_YET else reply

        reply = wait_until(ask, f"the offsets of {group}")
    assert reply.error_code == 0, f"OffsetFetch of {group}: error {reply.error_code}"
    one = reply.topics[0].partitions[0]
    if one.error_code == UNSTABLE_OFFSET_COMMIT:
        return None
    assert one.error_code == 0, f"OffsetFetch of {group}: error {one.error_code}"
    return int(one.committed_offset)


def _find(wire: Wire, key: str, kind: int) -> None:
    """Ask for the coordinator: that makes this broker it."""
    request = FindCoordinatorRequest(key=key, key_type=kind)

    def found() -> bool:
        reply = wire.call(request, FindCoordinatorResponse, FIND_COORDINATOR_VERSION)
        return bool(reply.error_code == 0)

    wait_until(found, f"the coordinator of {key}")
