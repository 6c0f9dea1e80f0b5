"""Requests of transactional clients, and what they read of the replies, with kafka-python's codecs."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, OffsetFetchRequest
from kafka.protocol.producer import ProduceRequest, TxnOffsetCommitRequest

from kafscale.protocol.control_records import ABORT, parse_control_record
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import decode_records

FETCH_VERSION = 13
OFFSET_FETCH_VERSION = 7


def encoded(request: Any, version: int) -> bytes:
    """The request's frame without its length."""
    request.API_VERSION = version
    request.with_header(correlation_id=0, client_id="sim")
    frame: bytes = request.encode(framed=False, header=True)
    return frame


def decoded(response: Any, frame: bytes, version: int) -> Any:
    """The response in a frame, which comes with its length."""
    return response.decode(frame[4:], version=version, header=True)


def produce_request(transactional_id: str, topic: str, index: int, batch: bytes, timeout_ms: int) -> Any:
    """Produce with one transactional batch."""
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=index, records=batch)])],
    )


def offsets_request(
    transactional_id: str, group: str, producer: tuple[int, int], topic: str, index: int, offset: int
) -> Any:
    """TxnOffsetCommit of one partition, without a member."""
    of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = of_topic.TxnOffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[of_topic(name=topic, partitions=[partition])],
    )


def position_request(group: str, topic: str, index: int) -> Any:
    """OffsetFetch of one partition, with `require_stable`."""
    of_topic = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        group_id=group, topics=[of_topic(name=topic, partition_indexes=[index])], require_stable=True
    )


def fetch_request(topic_id: uuid.UUID, index: int, offset: int, *, committed: bool, max_bytes: int) -> Any:
    """Fetch of one partition."""
    of_topic = FetchRequest.FetchTopic
    partition = of_topic.FetchPartition(
        partition=index,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[of_topic(topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )


class Fetched(NamedTuple):
    """A fetched partition. `next_offset`: after the last batch, or the offset that was asked for."""

    error_code: int
    records: list[tuple[int, bytes]]
    next_offset: int
    last_stable_offset: int


def fetched(response: Any, offset: int) -> Fetched:
    """The records as a client returns them: without markers and aborted ones, as the Java client does."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    body = memoryview(partition.records or b"")
    aborted = sorted(
        ((one.first_offset, one.producer_id) for one in partition.aborted_transactions or ()), reverse=True
    )
    records = list(_records(body, aborted, offset))
    ends = [header.last_offset + 1 for _, header in walk(body, 0, len(body), "fetched")]
    return Fetched(partition.error_code, records, max([offset, *ends]), partition.last_stable_offset)


def _records(
    body: memoryview, aborted: Sequence[tuple[int, int]], offset: int
) -> Iterator[tuple[int, bytes]]:
    waiting = list(aborted)
    ended: set[int] = set()
    for position, header in walk(body, 0, len(body), "fetched"):
        while waiting and waiting[-1][0] <= header.last_offset:
            ended.add(waiting.pop()[1])
        batch = body[position : position + header.size_bytes]
        if header.is_control:
            if is_abort(batch):
                ended.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ended):
            for record in decode_records(batch, 1 << 20):
                if record.offset >= offset:
                    yield record.offset, record.value or b""


def is_abort(batch: memoryview) -> bool:
    """True if the control batch aborts its producer's transaction."""
    (record,) = decode_records(batch, 1 << 20)
    return parse_control_record(record.key, record.value).type_id == ABORT
