"""A fetch whose last answer was empty: waits like any other, and is decoded only if something happens."""

import asyncio
import time

from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.context import Broker, Reply, RequestContext
from kafscale.serving.fetch_times import FetchTimes
from kafscale.serving.idle_answers import IdleAnswer
from kafscale.serving.named_once import decode_asked_once
from kafscale.serving.partition_fetch import PartitionFetch, TopicFetch
from kafscale.serving.pending_fetch import PendingFetch


class IdleFetch:
    """Waits for all partitions together on one deadline, in place of the `PendingFetch` that it can become."""

    __slots__ = (
        "_answer",
        "_available_bytes",
        "_began_waiting_sec",
        "_broker",
        "_ended",
        "_reply",
        "_request",
        "_started_sec",
        "deadline_ms",
    )

    def __init__(self, broker: Broker, request: RequestContext, answer: IdleAnswer, reply: Reply) -> None:
        self.deadline_ms: int | None = None
        self._broker = broker
        self._request = request
        self._answer = answer
        self._reply = reply
        self._available_bytes = 0
        self._ended = False

    def start(self) -> None:
        """Begin to wait: the answer is current, so there is nothing to send and nothing to refuse."""
        self._started_sec = asyncio.get_running_loop().time()
        self._began_waiting_sec = time.perf_counter()
        self._reply.abandoned = self._stop_waiting
        for partition in self._answer.partitions:
            partition.listen(self)
        self._broker.deadlines.add(self, self._answer.max_wait_ms)

    def expired(self) -> None:
        """The wait is over, and nothing was published, or not enough."""
        if self._ended:
            return
        broker = self._broker
        if broker.idle_answers.is_current(self._answer) and not broker.stale_view.sends_away():
            self._stop_waiting()
            times = FetchTimes(broker.metrics.fetch_stages, self._request)
            times.wait_sec = time.perf_counter() - self._began_waiting_sec
            self._reply.times = times
            self._reply.send((self._answer.frame(self._request.correlation_id),))
        else:
            self._decode_and_reply()

    # --- notifications of partitions

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        """More was published in one of the partitions."""
        if self._ended:
            return
        self._available_bytes += stable_bytes if self._answer.reads_committed else size_bytes
        if self._available_bytes >= self._answer.min_bytes:
            self._decode_and_reply()

    def closed(self) -> None:
        """One of the partitions is not served here any more."""
        if not self._ended:
            self._decode_and_reply()

    # --- the end

    def _stop_waiting(self) -> None:
        self._ended = True
        self._broker.deadlines.remove(self)
        for partition in self._answer.partitions:
            partition.forget(self)

    def _decode_and_reply(self) -> None:
        """Answer as the `PendingFetch` would that would have waited in place of this."""
        self._stop_waiting()
        self._broker.idle_answers.forget(self._answer)
        version, body = self._answer.asked
        fetch = decode_asked_once(memoryview(body), version)
        partitions = iter(self._answer.partitions)
        topics = [
            TopicFetch(
                topic.name,
                topic.topic_id,
                [
                    PartitionFetch(wanted, next(partitions), _unknown(topic.name))
                    for wanted in topic.partitions
                ],
            )
            for topic in fetch.topics
        ]
        pending = PendingFetch(self._broker, self._request, fetch, topics, self._reply)
        pending.take_over(self._started_sec, time.perf_counter() - self._began_waiting_sec)


def _unknown(name: str | None) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
