"""A fetch between its request and its reply: waits for `min_bytes`, then loads what the reply needs."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from kafscale.log.partition import Partition
from kafscale.metadata.model import NO_BROKER, BrokerState
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.fetch import FetchRequest
from kafscale.protocol.types import Buffer
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.fetch_loads import FetchLoads
from kafscale.serving.fetch_lookup import look_up, needs_store, refuse_another_topic
from kafscale.serving.fetch_reply import FetchReply
from kafscale.serving.fetch_times import FetchTimes
from kafscale.serving.idle_answers import Asked
from kafscale.serving.partition_fetch import PartitionFetch, TopicFetch
from kafscale.serving.stale_view import LEAST_WAIT_MS
from kafscale.serving.store_deadline import STORE_DEADLINE_SEC
from kafscale.tasks.in_turns import PARTS_PER_TURN

logger = logging.getLogger(__name__)

PARTITIONS_AT_ONCE: Final = 4 * PARTS_PER_TURN
"""A fetch of more partitions is answered in turns."""

REFUSAL_MAX_WAIT_SEC: Final = 1.0
"""A refusal that waits for `min_bytes` waits no longer: its client should learn soon that the store is away."""


class PendingFetch:
    """Waits for all partitions together on one deadline, and listens to each of them meanwhile."""

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
        self._fetch = fetch if request.throttle is None else request.throttle.limited(fetch)
        self._topics = topics
        self._reply = reply
        self._partitions = [partition for topic in topics for partition in topic.partitions]
        self._reads_committed = fetch.reads_committed
        if self._reads_committed:
            for partition in self._partitions:
                partition.reads_committed = True
        self._times = FetchTimes(broker.metrics.fetch_stages, request)
        self._available_bytes = 0
        self.deadline_ms: int | None = None
        self._asked = asked
        self._changes = broker.idle_answers.changes
        self._waits = False
        self._waited_in_vain = False
        self._task: asyncio.Task[None] | None = None
        self._completed = False
        self._started_sec = 0.0

    def start(self) -> None:
        """Reply now, or begin to wait, or look partitions up in the metadata store first."""
        self._reply.abandoned = self._abandon
        if self._completed:
            return  # The client has left while its request was decoded.
        self._started_sec = asyncio.get_running_loop().time()
        if any(map(needs_store, self._partitions)):
            self._task = asyncio.create_task(self._prepare(), name="prepare a fetch")
        else:
            self._begin()

    async def _prepare(self) -> None:
        try:
            await look_up(self._broker.logs, self._partitions, self._started_sec + STORE_DEADLINE_SEC)
            for topic in self._topics:
                refuse_another_topic(self._broker.view, topic)
            for fetch in self._partitions:
                # A partition that was lost meanwhile does not notify its listeners any more.
                self._check_still_served(fetch)
            self._begin()
        except Exception:
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

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
        self._times.begin_wait()
        self._broker.deadlines.add(self, wait_ms)

    def _is_in_vain_here(self) -> bool:
        """True if there is nothing to read here, while a stale view hides what there may be elsewhere."""
        stale_view = self._broker.stale_view
        if not stale_view.sends_away() or self._readable():
            return False
        return stale_view.sends_away_from(one.partition for one in self._partitions if one.partition)

    def _send_away(self) -> bool:
        """Refuse a fetch that waited in vain, so that its client looks for the leader; True if its connection ends.

        A client may ask this broker alone who leads, as the Java client does while it has no other connection.
        It asks another broker once this connection has ended, which happens once in an outage to each connection.
        """
        if self._broker.stale_view.began_before(self._reply.connected_for_ms):
            self._reply.end_connection()
            return True
        for fetch in self._partitions:
            if fetch.preferred_read_replica == NO_BROKER:
                fetch.error_code = fetch.error_code or ErrorCode.NOT_LEADER_OR_FOLLOWER
        return False

    def _choose_replica(self, fetch: PartitionFetch) -> None:
        """The leader sends a consumer of another zone to a broker in its own zone, if there is one."""
        rack, partition = self._fetch.rack_id, fetch.partition
        if not rack or partition is None or fetch.error_code:
            return
        topic, index = partition.id.topic, partition.id.index
        if not partition.is_led:
            self._send_on(fetch, topic, index)
        elif rack != self._broker.settings.rack:
            fetch.preferred_read_replica = self._broker.read_replicas.one(topic, index, rack)

    def _send_on(self, fetch: PartitionFetch, topic: str, index: int) -> None:
        """Send a consumer that was sent here back to the leader while this broker stops.

        Not every client goes by itself: franz-go returns for half an hour.
        """
        view, broker_id = self._broker.view, self._broker.settings.broker_id
        others = view.brokers_to_read_from()
        if others and view.broker_state(broker_id) is BrokerState.STOPPING:
            leader = view.leader(topic, index)
            fetch.preferred_read_replica = others[0].broker_id if leader is None else leader.broker_id

    def take_over(self, started_sec: float, wait_sec: float) -> None:
        """Reply now, at the end of a wait that an `IdleFetch` began; its partitions were found, and had nothing new.

        `wait_sec`: how long it waited.
        """
        self._started_sec = started_sec
        self._times.wait_sec = wait_sec
        self._reply.abandoned = self._abandon
        self._complete(has_waited=True)

    # --- notifications of partitions and deadlines

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        """More was published in one of the partitions."""
        self._available_bytes += stable_bytes if self._reads_committed else size_bytes
        if self._available_bytes < self._fetch.min_bytes:
            return
        if self._reads_committed and not self._readable():
            self._available_bytes = 0  # It asks for offsets above the last stable one, which came no further.
            return
        self._complete()

    def closed(self) -> None:
        """One of the partitions is not served here any more: the client should learn it now."""
        self._complete()

    def expired(self) -> None:
        """The client's wait is over."""
        self._waited_in_vain = True
        self._complete()

    # --- the end

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            self._times.end_wait()
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
        answer = FetchReply(
            self._broker,
            self._request,
            self._fetch,
            self._topics,
            self._reply,
            self._times,
            self._keep_if_idle,
        )
        try:
            if len(self._partitions) <= PARTITIONS_AT_ONCE and self._all_in_memory(answer.max_bytes):
                answer.send()
            else:
                self._task = asyncio.create_task(self._load_and_send(answer), name="fetch from the store")
        except Exception:
            # Not raised to the caller: the same call notifies other fetches, too.
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

    def _keep_if_idle(self, buffers: Sequence[Buffer]) -> None:
        if self._waited_in_vain and self._asked is not None:
            self._broker.idle_answers.keep(self._asked, self._changes, self._fetch, self._partitions, buffers)

    def _check_still_served(self, fetch: PartitionFetch) -> None:
        partition = fetch.partition
        if partition is None or fetch.error_code:
            return
        topic, index = partition.id.topic, partition.id.index
        if self._broker.logs.readable(topic, index) is not partition:
            # Deleted, or led by another broker now: its consumers should go there.
            gone = self._broker.view.topic(topic) is None
            fetch.error_code = fetch.unknown if gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The log start offset may have moved past the offset of the request.
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
            and fetch.wanted.fetch_offset < fetch.end_offset
        ]

    def _all_in_memory(self, max_bytes: int) -> bool:
        has = self._broker.logs.reader.has
        for fetch, partition in self._readable():
            if partition.references is None or not has(
                partition,
                fetch.wanted.fetch_offset,
                min(fetch.wanted.partition_max_bytes, max_bytes),
                fetch.end_offset if fetch.reads_committed else None,
            ):
                return False
        return True

    async def _load_and_send(self, answer: FetchReply) -> None:
        try:
            await self._load_what_is_missing(answer)
        except Exception:
            logger.exception("could not answer a fetch", extra={"client": self._request.client_host})
            self._reply.end_connection()

    async def _load_what_is_missing(self, answer: FetchReply) -> None:
        planned: list[tuple[PartitionFetch, Partition, int]] = []
        planned_bytes = 0
        for fetch, partition in self._readable():
            max_bytes = min(fetch.wanted.partition_max_bytes, answer.max_bytes - planned_bytes)
            if planned and max_bytes <= 0:
                break
            planned.append((fetch, partition, max_bytes))
            planned_bytes += fetch.available_bytes(max_bytes)
        loads = FetchLoads(self._broker)
        try:
            if planned:
                with self._times.loading() as notes:
                    await loads.load_all(planned, notes)
            if planned and all(fetch.load_error_code for fetch, _, _ in planned):
                await self._wait_before_refusing()
        except BaseException:
            for segment in loads.loaded:
                segment.release()
            raise
        await answer.send_in_turns(loads.loaded)

    async def _wait_before_refusing(self) -> None:
        """A fetch that gets nothing but errors takes as long as one that gets nothing.

        Java consumers ask again at once after such an error, thousands of times a second.
        """
        waited_sec = asyncio.get_running_loop().time() - self._started_sec
        self._times.begin_wait()
        await asyncio.sleep(min(self._fetch.max_wait_ms / 1000, REFUSAL_MAX_WAIT_SEC) - waited_sec)
        self._times.end_wait()
