"""The reply to a fetch: reads what is in memory, decompresses it for clients without the codec, and sends it."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.read import Read
from kafscale.metadata.model import NO_BROKER
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    encode_fetch_response,
)
from kafscale.protocol.types import Buffer
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.decompression import REPLY_MAX_BYTES
from kafscale.serving.fetch_times import FetchTimes
from kafscale.serving.partition_fetch import NO_OFFSET, PartitionFetch, TopicFetch
from kafscale.serving.reply_reads import ReplyReads
from kafscale.tasks.in_turns import PARTS_PER_TURN

logger = logging.getLogger(__name__)

_NO_SESSION: Final = 0

COPIED_MAX_BYTES: Final = 64 * 1024
"""While slow clients keep much memory, a reply is small and a copy: it keeps no segment's memory from other use."""

_BySegment = Mapping[int, Sequence[CachedSegment]]
"""Loaded segments by their partition's number."""


class FetchReply:
    """Made when the fetch's wait is over. `max_bytes`: of all partitions together, but for the first batch.

    `on_encoded` is called with the reply's buffers before they are sent.
    """

    def __init__(
        self,
        broker: Broker,
        request: RequestContext,
        fetch: FetchRequest,
        topics: Sequence[TopicFetch],
        reply: Reply,
        times: FetchTimes,
        on_encoded: Callable[[Sequence[Buffer]], None],
    ) -> None:
        self._broker = broker
        self._request = request
        self._fetch = fetch
        self._topics = topics
        self._partitions = [partition for topic in topics for partition in topic.partitions]
        self._reply = reply
        self._times = times
        self._on_encoded = on_encoded
        self._replied = False
        self._reads_as_stored = request.software.has_codecs or broker.decompression.is_for_none
        self.max_bytes = min(fetch.max_bytes, broker.settings.fetch_max_bytes)
        self._is_copied = broker.logs.reader.is_short_of_memory
        if self._is_copied:
            self.max_bytes = min(self.max_bytes, COPIED_MAX_BYTES)
        if not self._reads_as_stored:
            self.max_bytes = min(self.max_bytes, REPLY_MAX_BYTES)

    def send(self) -> None:
        """Read and send at once: everything is in memory."""
        for _ in self._answering(()):
            pass

    async def send_in_turns(self, loaded: Sequence[CachedSegment]) -> None:
        """Read and send; other tasks run in between. Takes over the hold on each of `loaded`."""
        with closing(self._answering(loaded)) as answering:
            for _ in answering:
                await asyncio.sleep(0)

    def _answering(self, loaded: Sequence[CachedSegment]) -> Generator[None, None, None]:
        """Read and send; other tasks may run at each yield."""
        reads = ReplyReads(() if self._is_copied else loaded)
        copied = loaded if self._is_copied else ()
        by_partition: dict[int, list[CachedSegment]] = {}
        for segment in loaded:
            by_partition.setdefault(segment.partition_number, []).append(segment)
        remaining, nothing_yet, error_code = self.max_bytes, True, ErrorCode.NONE
        topics = []
        try:
            for topic in self._topics:
                answers: list[FetchedPartition] = []
                for fetch in topic.partitions:
                    read = self._read(fetch, remaining, nothing_yet, by_partition)
                    if self._is_copied:
                        read.detach()
                    reads.add(read)
                    remaining -= read.size_bytes
                    nothing_yet = nothing_yet and not read.size_bytes
                    error_code = error_code or fetch.error_code
                    answers.append(_answer(fetch, read))
                    if len(answers) % PARTS_PER_TURN == 0:
                        yield
                topics.append(FetchedTopic(topic.name, topic.topic_id, answers))
                if len(topics) % PARTS_PER_TURN == 0:
                    yield
        except BaseException:
            reads.release()
            raise
        finally:
            for segment in copied:
                segment.release()
        if reads.has_any and not self._reads_as_stored:
            task = asyncio.create_task(
                self._decompress_and_send(topics, reads, error_code), name="decompress a fetch"
            )
            task.add_done_callback(lambda _: None if self._replied else reads.release())
            self._reply.abandoned = lambda: _cancel(task)
        else:
            self._encode_and_send(topics, reads, error_code)

    def _read(self, fetch: PartitionFetch, remaining: int, at_least_one: bool, loaded: _BySegment) -> Read:
        # The log start offset may have moved since the plan: a read of what follows would be a silent gap.
        fetch.check_offset()
        partition = fetch.partition
        if partition is None or fetch.error_code or fetch.preferred_read_replica != NO_BROKER:
            return Read()
        if partition.references is None:
            fetch.error_code = fetch.load_error_code
            return Read()
        end_offset = fetch.end_offset
        if fetch.wanted.fetch_offset >= end_offset or (remaining <= 0 and not at_least_one):
            return Read()
        try:
            read = self._broker.logs.reader.read(
                partition,
                fetch.wanted.fetch_offset,
                min(fetch.wanted.partition_max_bytes, remaining),
                at_least_one,
                loaded.get(partition.number, ()),
                end_offset if fetch.reads_committed else None,
            )
        except CorruptDataError as problem:
            logger.error("a segment is damaged and cannot be served", extra={"problem": str(problem)})
            fetch.error_code = ErrorCode.CORRUPT_MESSAGE
            return Read()
        if read.is_missing:
            # Batches before a segment that could not be loaded are sent; a fetch at that segment gets the error.
            fetch.error_code = fetch.load_error_code
        return read

    async def _decompress_and_send(
        self, topics: Sequence[FetchedTopic], reads: ReplyReads, error_code: ErrorCode
    ) -> None:
        try:
            limits = [fetch.wanted.partition_max_bytes for fetch in self._partitions]
            of_all = list(reads)
            with self._times.decompressing():
                await self._broker.decompression.apply(list(zip(of_all, limits, strict=True)), self.max_bytes)
            replaced = iter(of_all)
            self._encode_and_send(
                [
                    topic._replace(partitions=[_with(answer, next(replaced)) for answer in topic.partitions])
                    for topic in topics
                ],
                reads,
                error_code,
            )
        except Exception:
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

    def _encode_and_send(
        self, topics: Sequence[FetchedTopic], reads: ReplyReads, error_code: ErrorCode
    ) -> None:
        buffers = encode_fetch_response(
            self._request.correlation_id,
            self._request.api_version,
            ErrorCode.NONE,
            _NO_SESSION,
            topics,
            read_committed=self._fetch.reads_committed,
        )
        self._replied = True
        self._reply.times = self._times
        throttle = self._request.throttle
        if throttle is not None and throttle.withholds(sum(map(len, buffers))):
            reads.release()
            self._reply.send(self._nothing())
            return
        for fetch, read in zip(self._partitions, reads, strict=True):
            self._count(fetch, read)
        self._on_encoded(buffers)
        self._reply.send(buffers, reads, error_code)

    def _nothing(self) -> Sequence[Buffer]:
        """The answer to a client that has exceeded its quota, as in Kafka: of no topic."""
        request = self._request
        return encode_fetch_response(
            request.correlation_id, request.api_version, ErrorCode.NONE, _NO_SESSION, []
        )

    def _count(self, fetch: PartitionFetch, read: Read) -> None:
        if fetch.partition is not None and read.size_bytes:
            counters = self._broker.metrics.topic(fetch.partition.id.topic)
            counters.bytes_out += read.size_bytes
            counters.records_out += read.record_count


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _with(answer: FetchedPartition, read: Read) -> FetchedPartition:
    return answer._replace(records=read.views, records_size_bytes=read.size_bytes)


def _answer(fetch: PartitionFetch, read: Read) -> FetchedPartition:
    index = fetch.wanted.partition
    if fetch.partition is None or fetch.error_code:
        return FetchedPartition(index, fetch.error_code, NO_OFFSET, NO_OFFSET, NO_OFFSET)
    record = fetch.partition.record
    stable_offset = record.last_stable_offset if record.transactions.open else record.log_end_offset
    return FetchedPartition(
        index,
        ErrorCode.NONE,
        record.log_end_offset,
        stable_offset,
        record.log_start_offset,
        read.views,
        read.size_bytes,
        preferred_read_replica=fetch.preferred_read_replica,
        aborted=_aborted(fetch, read) if fetch.reads_committed and read.size_bytes else (),
    )


def _aborted(fetch: PartitionFetch, read: Read) -> Sequence[tuple[int, int]]:
    """The aborted transactions with records or a marker among those read."""
    partition = fetch.partition
    assert partition is not None
    assert partition.aborted is not None, "they are loaded with the references"
    between = partition.aborted.between(fetch.wanted.fetch_offset, min(read.next_offset, fetch.end_offset))
    return [(one.producer_id, one.first_offset) for one in between]
