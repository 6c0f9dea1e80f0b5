"""A fetch between its request and its reply: what it waits for, and what it reads in the end."""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.log_reader import Read
from kafscale.metadata.model import NO_BROKER, BrokerState
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    encode_fetch_response,
)
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.decompression import REPLY_MAX_BYTES
from kafscale.serving.fetch_loads import FetchLoads, gather_all
from kafscale.serving.idle_answers import Asked
from kafscale.serving.partition_fetch import PartitionFetch, TopicFetch
from kafscale.serving.partition_lookup import check_leader_epoch
from kafscale.serving.reply_reads import ReplyReads
from kafscale.serving.stale_view import LEAST_WAIT_MS
from kafscale.serving.store_deadline import STORE_DEADLINE_SEC
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import PARTS_PER_TURN

logger = logging.getLogger(__name__)

_NO_SESSION = 0
_NO_OFFSET = -1
_READ_COMMITTED = 1

# While slow clients keep much memory, a reply is small and a copy: it keeps no segment from other use.
COPIED_MAX_BYTES = 64 * 1024
# A fetch of more partitions is answered in turns.
PARTITIONS_AT_ONCE = 4 * PARTS_PER_TURN
# A client that waits for much for long should know earlier that the store is away.
REFUSAL_MAX_WAIT_SEC = 1.0


class PendingFetch:
    """Waits for all partitions together on one deadline; listens to each of them while it does."""

    def __init__(
        self,
        broker: Broker,
        request: RequestContext,
        fetch: FetchRequest,
        topics: list[TopicFetch],
        reply: Reply,
        asked: Asked | None = None,
    ) -> None:
        self._broker = broker
        self._request = request
        self._fetch = fetch
        self._topics = topics
        self._reply = reply
        self._partitions = [partition for topic in topics for partition in topic.partitions]
        self._max_bytes = min(fetch.max_bytes, broker.settings.fetch_max_bytes)
        self._available_bytes = 0
        self.deadline_ms: int | None = None
        self._asked = asked
        self._changes = broker.idle_answers.changes
        self._waits = False
        self._waited_in_vain = False
        self._task: asyncio.Task[None] | None = None
        self._completed = False
        self._is_copied = False
        self._replied = False
        self._started_sec = 0.0

    def start(self) -> None:
        """Reply now, or begin to wait, or ask the metadata store about partitions first."""
        self._reply.abandoned = self._abandon
        self._started_sec = asyncio.get_running_loop().time()
        if any(fetch.to_follow is not None or fetch.is_above_end for fetch in self._partitions):
            self._task = asyncio.create_task(self._prepare(), name="prepare a fetch")
        else:
            self._begin()

    async def _prepare(self) -> None:
        try:
            deadline_sec = self._started_sec + STORE_DEADLINE_SEC
            unclear = [
                fetch for fetch in self._partitions if fetch.to_follow is not None or fetch.is_above_end
            ]
            await for_each(unclear, lambda fetch: self._prepare_one(fetch, deadline_sec))
            for fetch in self._partitions:
                # What was lost meanwhile tells nobody any more.
                self._check_still_served(fetch)
            self._begin()
        except Exception:
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

    async def _prepare_one(self, fetch: PartitionFetch, deadline_sec: float) -> None:
        try:
            async with asyncio.timeout_at(deadline_sec):
                await self._look_up(fetch)
        except KafkaError as refusal:
            fetch.error_code = refusal.code
        except (StoreError, CorruptDataError, TimeoutError) as problem:
            logger.warning("could not look up a partition", extra={"problem": str(problem)})
            fetch.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def _look_up(self, fetch: PartitionFetch) -> None:
        logs = self._broker.logs
        if fetch.to_follow is not None:
            fetch.partition = await logs.follow(fetch.to_follow, fetch.wanted.partition)
            if fetch.partition is None:
                fetch.error_code = fetch.unknown
            else:
                check_leader_epoch(fetch.partition, fetch.wanted.current_leader_epoch)
        if fetch.is_above_end and fetch.partition is not None:
            fetch.error_code = await logs.check_beyond_end(fetch.partition, fetch.wanted.fetch_offset)

    def _begin(self) -> None:
        min_bytes = self._fetch.min_bytes
        for fetch in self._partitions:
            if fetch.error_code:
                continue
            fetch.check_offset()
            self._choose_replica(fetch)
            if self._available_bytes < min_bytes:
                self._available_bytes += fetch.available_bytes(min_bytes)
        refused = any(
            fetch.error_code or fetch.preferred_read_replica != NO_BROKER for fetch in self._partitions
        )
        wait_ms = self._fetch.max_wait_ms
        if refused or self._available_bytes >= min_bytes or wait_ms <= 0 or not self._partitions:
            if refused or not self._partitions or not self._is_in_vain_here():
                self._complete()
                return
            wait_ms = max(wait_ms, LEAST_WAIT_MS)
        for fetch in self._partitions:
            assert fetch.partition is not None
            fetch.partition.listen(self)
        self._waits = True
        self._broker.deadlines.add(self, wait_ms)

    def _is_in_vain_here(self) -> bool:
        """Whether there is nothing to read, and no telling from here whether there is elsewhere."""
        return self._broker.stale_view.sends_away() and not self._readable()

    def _send_away(self) -> bool:
        """Refuse what has waited in vain, so that its client looks for the leader; False where it was answered.

        A client may ask this broker alone who leads, as the Java client does while it has no other connection.
        It asks another one once this connection has ended; that is done to each connection once in an outage.
        """
        if self._broker.stale_view.began_before(self._reply.connected_for_ms):
            self._reply.end_connection()
            return True
        for fetch in self._partitions:
            if fetch.preferred_read_replica == NO_BROKER:
                fetch.error_code = fetch.error_code or ErrorCode.NOT_LEADER_OR_FOLLOWER
        return False

    def _choose_replica(self, fetch: PartitionFetch) -> None:
        """Send a consumer of another zone to a broker in its own, if there is one: only the leader does."""
        rack, partition = self._fetch.rack_id, fetch.partition
        if not rack or partition is None or fetch.error_code:
            return
        topic, index = partition.id.topic, partition.id.index
        if not partition.is_led:
            self._send_on(fetch, topic, index)
        elif rack != self._broker.settings.rack:
            fetch.preferred_read_replica = self._broker.read_replicas.one(topic, index, rack)

    def _send_on(self, fetch: PartitionFetch, topic: str, index: int) -> None:
        """Send a consumer that was sent here back to the leader, if this broker stops.

        Some do not go by themselves: franz-go comes again and again for half an hour.
        """
        view, broker_id = self._broker.view, self._broker.settings.broker_id
        others = view.brokers_to_read_from()
        if others and view.broker_state(broker_id) is BrokerState.STOPPING:
            leader = view.leader(topic, index)
            fetch.preferred_read_replica = others[0].broker_id if leader is None else leader.broker_id

    def take_over(self, started_sec: float) -> None:
        """Reply now, at the end of a wait that another began: the partitions were found, and had nothing new."""
        self._started_sec = started_sec
        self._reply.abandoned = self._abandon
        self._complete(has_waited=True)

    # --- what a partition tells

    def grown(self, size_bytes: int) -> None:
        """More was published in one of the partitions."""
        self._available_bytes += size_bytes
        if self._available_bytes >= self._fetch.min_bytes:
            self._complete()

    def closed(self) -> None:
        """One of the partitions is not served here any more: the client should know now."""
        self._complete()

    def expired(self) -> None:
        """The client's wait is over."""
        self._waited_in_vain = True
        self._complete()

    # --- the end

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            self._broker.deadlines.remove(self)
            for fetch in self._partitions:
                if fetch.partition is not None:
                    fetch.partition.forget(self)

    def _abandon(self) -> None:
        self._completed = True
        self._stop_waiting()
        if self._task is not None:
            self._task.cancel()

    def _complete(self, *, has_waited: bool = False) -> None:
        if self._completed:
            return
        self._completed = True
        has_waited = has_waited or self._waits
        self._stop_waiting()
        for fetch in self._partitions:
            self._check_still_served(fetch)
        if has_waited and self._is_in_vain_here() and self._send_away():
            return
        if self._broker.logs.reader.is_short_of_memory:
            self._is_copied = True
            self._max_bytes = min(self._max_bytes, COPIED_MAX_BYTES)
        if not self._reads_as_stored():
            self._max_bytes = min(self._max_bytes, REPLY_MAX_BYTES)
        try:
            if len(self._partitions) <= PARTITIONS_AT_ONCE and self._all_in_memory():
                self._send(())
            else:
                self._task = asyncio.create_task(self._load_and_send(), name="fetch from the store")
        except Exception:
            # Not the matter of whoever tells that there is more to read: others are told by the same call.
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

    def _check_still_served(self, fetch: PartitionFetch) -> None:
        partition = fetch.partition
        if partition is None or fetch.error_code:
            return
        topic, index = partition.id.topic, partition.id.index
        if self._broker.logs.readable(topic, index) is not partition:
            # Deleted, or led elsewhere from now on: its consumers are to go there.
            gone = self._broker.view.topic(topic) is None
            fetch.error_code = fetch.unknown if gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The log start offset may have moved past what the client waited with.
        fetch.check_offset()
        if not partition.is_led:
            self._choose_replica(fetch)

    def _readable(self) -> list[tuple[PartitionFetch, Partition]]:
        return [
            (fetch, fetch.partition)
            for fetch in self._partitions
            if fetch.partition is not None
            and not fetch.error_code
            and fetch.preferred_read_replica == NO_BROKER
            and fetch.wanted.fetch_offset < fetch.partition.high_watermark
        ]

    def _all_in_memory(self) -> bool:
        has = self._broker.logs.reader.has
        for fetch, partition in self._readable():
            if partition.references is None or not has(
                partition, fetch.wanted.fetch_offset, min(fetch.wanted.partition_max_bytes, self._max_bytes)
            ):
                return False
        return True

    async def _load_and_send(self) -> None:
        try:
            await self._load_what_is_missing()
        except Exception:
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

    async def _load_what_is_missing(self) -> None:
        planned: list[tuple[PartitionFetch, Partition, int]] = []
        planned_bytes = 0
        for fetch, partition in self._readable():
            max_bytes = min(fetch.wanted.partition_max_bytes, self._max_bytes - planned_bytes)
            if planned and max_bytes <= 0:
                break
            planned.append((fetch, partition, max_bytes))
            planned_bytes += fetch.available_bytes(max_bytes)
        loads = FetchLoads(self._broker)
        try:
            await gather_all(loads.load(*plan) for plan in planned)
            if planned and all(fetch.load_error_code for fetch, _, _ in planned):
                await self._wait_before_refusing()
        except BaseException:
            for segment in loads.loaded:
                segment.release()
            raise
        with closing(self._answering(loads.loaded)) as answering:
            for _ in answering:
                await asyncio.sleep(0)

    async def _wait_before_refusing(self) -> None:
        """A fetch that gets nothing but errors takes as long as one that gets nothing.

        Java consumers ask again at once after such an error, thousands of times a second.
        """
        waited_sec = asyncio.get_running_loop().time() - self._started_sec
        await asyncio.sleep(min(self._fetch.max_wait_ms / 1000, REFUSAL_MAX_WAIT_SEC) - waited_sec)

    def _send(self, loaded: Sequence[CachedSegment]) -> None:
        for _ in self._answering(loaded):
            pass

    def _answering(self, loaded: Sequence[CachedSegment]) -> Generator[None, None, None]:
        """Read and send; others may run at each yield."""
        reads = ReplyReads(() if self._is_copied else loaded)
        copied = loaded if self._is_copied else ()
        by_partition: dict[int, list[CachedSegment]] = {}
        for segment in loaded:
            by_partition.setdefault(segment.partition_number, []).append(segment)
        remaining, nothing_yet, error_code = self._max_bytes, True, ErrorCode.NONE
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
        if reads.has_any and not self._reads_as_stored():
            self._task = asyncio.create_task(
                self._decompress_and_reply(topics, reads, error_code), name="decompress a fetch"
            )
            self._task.add_done_callback(lambda _: None if self._replied else reads.release())
        else:
            self._reply_with(topics, reads, error_code)

    def _reads_as_stored(self) -> bool:
        """Whether the client reads batches in whatever codec they are stored."""
        return self._request.software.has_codecs or self._broker.decompression.is_for_none

    async def _decompress_and_reply(
        self, topics: Sequence[FetchedTopic], reads: ReplyReads, error_code: ErrorCode
    ) -> None:
        try:
            limits = [fetch.wanted.partition_max_bytes for fetch in self._partitions]
            of_all = list(reads)
            await self._broker.decompression.apply(list(zip(of_all, limits, strict=True)), self._max_bytes)
            replaced = iter(of_all)
            self._reply_with(
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

    def _reply_with(self, topics: Sequence[FetchedTopic], reads: ReplyReads, error_code: ErrorCode) -> None:
        for fetch, read in zip(self._partitions, reads, strict=True):
            self._count(fetch, read)
        buffers = encode_fetch_response(
            self._request.correlation_id,
            self._request.api_version,
            ErrorCode.NONE,
            _NO_SESSION,
            topics,
            read_committed=self._fetch.isolation_level == _READ_COMMITTED,
        )
        if self._waited_in_vain and self._asked is not None:
            self._broker.idle_answers.keep(self._asked, self._changes, self._fetch, self._partitions, buffers)
        self._replied = True
        self._reply.send(buffers, reads, error_code)

    def _count(self, fetch: PartitionFetch, read: Read) -> None:
        if fetch.partition is not None and read.size_bytes:
            counters = self._broker.metrics.topic(fetch.partition.id.topic)
            counters.bytes_out += read.size_bytes
            counters.records_out += read.record_count

    def _read(
        self,
        fetch: PartitionFetch,
        remaining: int,
        at_least_one: bool,
        loaded: Mapping[int, Sequence[CachedSegment]],
    ) -> Read:
        # The log start offset may have moved since the plan: what follows in its place would be a silent gap.
        fetch.check_offset()
        partition = fetch.partition
        if partition is None or fetch.error_code or fetch.preferred_read_replica != NO_BROKER:
            return Read()
        if partition.references is None:
            fetch.error_code = fetch.load_error_code
            return Read()
        if fetch.wanted.fetch_offset >= partition.high_watermark or (remaining <= 0 and not at_least_one):
            return Read()
        try:
            read = self._broker.logs.reader.read(
                partition,
                fetch.wanted.fetch_offset,
                min(fetch.wanted.partition_max_bytes, remaining),
                at_least_one,
                loaded.get(partition.number, ()),
            )
        except CorruptDataError as problem:
            logger.error("a segment is damaged and cannot be served", extra={"problem": str(problem)})
            fetch.error_code = ErrorCode.CORRUPT_MESSAGE
            return Read()
        if read.is_missing:
            # What lies before a segment that could not be loaded is sent; the error is for who has come to it.
            fetch.error_code = fetch.load_error_code
        return read


def _with(answer: FetchedPartition, read: Read) -> FetchedPartition:
    return answer._replace(records=read.views, records_size_bytes=read.size_bytes)


def _answer(fetch: PartitionFetch, read: Read) -> FetchedPartition:
    index = fetch.wanted.partition
    if fetch.partition is None or fetch.error_code:
        return FetchedPartition(index, fetch.error_code, _NO_OFFSET, _NO_OFFSET, _NO_OFFSET)
    record = fetch.partition.record
    return FetchedPartition(
        index,
        ErrorCode.NONE,
        record.log_end_offset,
        record.log_end_offset,
        record.log_start_offset,
        read.views,
        read.size_bytes,
        preferred_read_replica=fetch.preferred_read_replica,
    )
