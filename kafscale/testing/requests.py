"""A test's own requests: the handlers of a broker in its process, without a connection and without a client.

What a test orders to fail (`KafkaBroker.fail`) fails for clients, not here.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafka.partitioner import murmur2
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from kafscale.errors import KafscaleError
from kafscale.handlers.routes import ROUTES_BY_KEY
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.api_messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ListOffsetsRequest,
    Request,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import BatchHeader, read_header
from kafscale.protocol.record_builder import RecordBatchBuilder
from kafscale.protocol.records import Record as StoredRecord
from kafscale.protocol.records import decode_records
from kafscale.protocol.types import Buffer
from kafscale.serving.context import Broker, ClientSoftware, Held, RequestContext
from kafscale.serving.request_times import RequestTimes
from kafscale.testing.records import Record, RecordMetadata

PRODUCE_VERSION = 9
FETCH_VERSION = 11  # the highest that names topics
TIMEOUT_MS = 30_000

EARLIEST, LATEST = -2, -1

_FETCH_BYTES = 32 * 2**20
_RECORDS_LIMIT_BYTES = 2**31 - 1


class RequestError(KafscaleError):
    """The broker refused what a test asked for. `code`: Kafka's name of the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class _Reply:
    """See `kafscale.serving.context.Reply`: a frame that nothing is sent of."""

    connected_for_ms = 0

    def __init__(self) -> None:
        self.abandoned: Callable[[], None] | None = None
        self.times: RequestTimes | None = None
        self.frame: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        self.frame.set_result(b"".join(buffers))
        if held is not None:
            held.release()

    def drop(self) -> None:
        self.frame.set_result(b"")

    def end_connection(self) -> None:
        self.frame.set_exception(RequestError("NETWORK_EXCEPTION", "the broker does not answer this request"))


class Requests:
    """Requests to one broker, by its services."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._software = ClientSoftware(has_codecs=True)

    # --- topics

    def partition_count(self, topic: str) -> int:
        """The partitions of the topic. Raises `RequestError`."""
        record = self._broker.view.topic(topic)
        if record is None:
            known = sorted(one.name for one in self._broker.view.topics())
            shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "") if known else "none"
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, f"there is no topic {topic!r}; there are: {shown}"
            )
        return record.partition_count

    def check_partition(self, topic: str, partition: int) -> None:
        """Raises `RequestError` if the topic has no such partition."""
        count = self.partition_count(topic)
        if not 0 <= partition < count:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
                f"topic {topic!r} has no partition {partition}: it has {count}, from 0 to {count - 1}",
            )

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        return sorted(record.name for record in self._broker.view.topics())

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, object]) -> None:
        """Create a topic. Raises `RequestError`, which says what is wrong with it."""
        topic = CreateTopicsRequest.CreatableTopic
        config = topic.CreatableTopicConfig
        asked = topic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[],
            configs=[config(name=key, value=_config_text(value)) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=False)
        answer = await self._cold(ApiKey.CREATE_TOPICS, request, 7)
        (result,) = answer.topics
        _check(result.error_code, f"cannot create topic {name!r}", result.error_message)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises `RequestError`."""
        self.partition_count(name)
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(
            topics=[state(name=name, topic_id=None)], topic_names=[], timeout_ms=TIMEOUT_MS
        )
        (result,) = (await self._cold(ApiKey.DELETE_TOPICS, request, 6)).responses
        _check(result.error_code, f"cannot delete topic {name!r}", result.error_message)

    # --- records

    def partition_for(self, topic: str, key: bytes | None, default: int) -> int:
        """The partition of a record: by its key, as Kafka's producers choose it; without a key by `default`."""
        count = self.partition_count(topic)
        return (default if key is None else int(murmur2(key)) & 0x7FFFFFFF) % count

    async def produce(self, record: Record) -> RecordMetadata:
        """Store one record; its offset is not looked at. Raises `RequestError`."""
        topic, partition = record.topic, record.partition
        builder = RecordBatchBuilder()
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=partition, records=builder.build())
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[data(name=topic, partition_data=[part])],
        )
        frame = await self._hot(ApiKey.PRODUCE, request, PRODUCE_VERSION)
        answer = ProduceResponse.decode(frame, version=PRODUCE_VERSION, header=True)
        result = answer.responses[0].partition_responses[0]
        reasons = [one.batch_index_error_message for one in result.record_errors or ()]
        message = result.error_message or "; ".join(reason for reason in reasons if reason)
        _check(result.error_code, f"cannot store a record in {topic}-{partition}", message)
        append_time_ms = result.log_append_time_ms
        return RecordMetadata(
            topic,
            partition,
            result.base_offset,
            record.timestamp_ms if append_time_ms < 0 else append_time_ms,
        )

    async def offset(self, topic: str, partition: int, which: int) -> int:
        """The offset of the first record (`EARLIEST`), or after the last one (`LATEST`). Raises `RequestError`."""
        one_topic = ListOffsetsRequest.ListOffsetsTopic
        wanted = one_topic.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=which, max_num_offsets=1
        )
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[one_topic(name=topic, partitions=[wanted])]
        )
        (part,) = (await self._cold(ApiKey.LIST_OFFSETS, request, 7)).topics[0].partitions
        _check(part.error_code, f"cannot read the offsets of {topic}-{partition}")
        return int(part.offset)

    async def read(self, topic: str, partition: int, start: int, end: int) -> list[Record]:
        """The records of a partition from offset `start` to before `end`. Raises `RequestError`."""
        records: list[Record] = []
        while start < end:
            part = await self._fetch(topic, partition, start)
            reached = start
            for batch, header in _batches(memoryview(part.records or b"")):
                reached = header.last_offset + 1
                if not header.is_control:
                    found = decode_records(batch, _RECORDS_LIMIT_BYTES)
                    records += [_record(topic, partition, one) for one in found if start <= one.offset < end]
            if reached == start:
                raise RequestError(
                    ErrorCode.UNKNOWN_SERVER_ERROR.name,
                    f"{topic}-{partition} has nothing at offset {start} although it goes to {end}",
                )
            start = reached
        return records

    async def _fetch(self, topic: str, partition: int, offset: int) -> Any:
        one_topic = FetchRequest.FetchTopic
        wanted = one_topic.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=_FETCH_BYTES,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=TIMEOUT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[one_topic(topic=topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )
        frame = await self._hot(ApiKey.FETCH, request, FETCH_VERSION)
        answer = FetchResponse.decode(frame, version=FETCH_VERSION, header=True)
        part = answer.responses[0].partitions[0]
        _check(part.error_code, f"cannot read {topic}-{partition} at offset {offset}")
        return part

    # --- handlers

    async def _cold(self, api: ApiKey, message: Request, version: int) -> Any:
        handler = ROUTES_BY_KEY[api].message_handler
        assert handler is not None
        answer = handler(self._broker, self._context(version), message)
        return await answer if inspect.isawaitable(answer) else answer

    async def _hot(self, api: ApiKey, message: Any, version: int) -> bytes:
        """The frame of the answer, without its length."""
        handler = ROUTES_BY_KEY[api].body_handler
        assert handler is not None
        reply = _Reply()
        going_on = handler(
            self._broker, self._context(version), memoryview(message.encode(version=version)), reply
        )
        if going_on is not None:
            await going_on
        return (await reply.frame)[4:]

    def _context(self, version: int) -> RequestContext:
        return RequestContext(version, 1, "kafscale.testing", "127.0.0.1", self._software)


def _batches(data: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
    while data:
        header = read_header(data, 0)
        yield data[: header.size_bytes], header
        data = data[header.size_bytes :]


def _record(topic: str, partition: int, one: StoredRecord) -> Record:
    return Record(topic, partition, one.offset, one.timestamp_ms, one.key, one.value, one.headers)


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(code: int, what: str, reason: str | None = None) -> None:
    if code:
        raise RequestError(ErrorCode(code).name, f"{what}: {reason}" if reason else what)
