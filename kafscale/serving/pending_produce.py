"""A produce request between its append and its reply."""

import logging
import time
from collections.abc import Sequence

from kafscale.cluster.view import ClusterView
from kafscale.log.partition import Partition
from kafscale.log.writing.flush_times import FlushTimes
from kafscale.ops.request_stages import ProduceStages
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.produce import (
    PartitionProduceResponse,
    encode_produce_response,
)
from kafscale.protocol.quoting import quoted
from kafscale.serving.context import Reply, RequestContext
from kafscale.serving.new_leaders import NewLeaders
from kafscale.serving.produce_purgatory import ProducePurgatory
from kafscale.serving.produce_times import ProduceTimes
from kafscale.serving.sequence_error_check import BY_SEQUENCE, SequenceErrorCheck

logger = logging.getLogger(__name__)

NO_OFFSET = -1
NO_TIMESTAMP = -1
# What the objects for one partition of a waiting request take, and those for a topic beside its name.
_PARTITION_HELD_BYTES = 256
_TOPIC_HELD_BYTES = 256
# A client id is kept for a log line, which cuts it after 100 characters; a client may send 32 KiB.
_CLIENT_ID_CHARACTERS = 100
_CUT_CLIENT_ID_CHARACTERS = 70


class PartitionAppend:
    """The outcome of one partition of the request; an `AppendWaiter`.

    `led`: the partition appended to, while a sequence error would still have to be checked. `flush`: the times of
    the flush that publishes the batch, None if there is none.
    """

    __slots__ = ("_request", "flush", "led", "log_append_time_ms", "partition", "result")

    def __init__(self, request: "PendingProduce", partition: int) -> None:
        self._request = request
        self.partition = partition
        self.led: Partition | None = None
        self.flush: FlushTimes | None = None
        self.log_append_time_ms = NO_TIMESTAMP
        self.result: PartitionProduceResponse | None = None

    def published(self, base_offset: int, log_start_offset: int) -> None:
        """The records are in the object store and published."""
        if self.result is None:
            self.result = PartitionProduceResponse(
                self.partition, ErrorCode.NONE, base_offset, self.log_append_time_ms, log_start_offset, None
            )
            self._request.one_done(self.flush)

    def refused(self, error_code: int, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        """The records will not be published, or it is not known yet whether they will be (a timeout)."""
        if self.led is not None and error_code in BY_SEQUENCE:
            led, self.led = self.led, None
            self._request.sequence_error_check.after_leader_check(
                led, lambda leads: self._refused_by_sequence(leads, error_code, message)
            )
        elif self.result is None:
            self.result = PartitionProduceResponse(
                self.partition, error_code, NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, message, record_errors
            )
            self._request.one_done(self.flush)

    def _refused_by_sequence(self, leads: bool, error_code: int, message: str) -> None:
        if leads:
            self.refused(error_code, message)
        else:
            self.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition any more")


class PendingProduce:
    """Collects the outcomes of a request's partitions and replies when it has them all."""

    __slots__ = (
        "_appended_sec",
        "_client_id",
        "_correlation_id",
        "_listener",
        "_purgatory",
        "_remaining",
        "_reply",
        "_request_bytes",
        "_stages",
        "_topics",
        "_version",
        "_view",
        "deadline_ms",
        "held_bytes",
        "sequence_error_check",
    )

    def __init__(
        self,
        request: RequestContext,
        reply: Reply,
        deadline_ms: int,
        view: ClusterView,
        purgatory: ProducePurgatory,
        sequence_error_check: SequenceErrorCheck,
        stages: ProduceStages,
    ) -> None:
        # Not the request itself: thousands wait, and each object more is one more for the garbage collector.
        self._version = request.api_version
        self._correlation_id = request.correlation_id
        self._client_id = _kept(request.client_id)
        self._listener = request.listener
        self._view = view
        self._request_bytes = request.size_bytes
        self._reply = reply
        self._stages = stages
        self._appended_sec = 0.0
        self._purgatory = purgatory
        self._topics: list[tuple[str, list[PartitionAppend]]] = []
        # One more than there are partitions until `all_appended`: no reply goes out before.
        self._remaining = 1
        self.deadline_ms = deadline_ms
        self.held_bytes = 0
        self.sequence_error_check = sequence_error_check

    def topic(self, name: str, count: int) -> list[PartitionAppend]:
        """The place for a topic's partitions, of which there will be `count`."""
        partitions: list[PartitionAppend] = []
        self._topics.append((name, partitions))
        self._remaining += count
        self.held_bytes += _TOPIC_HELD_BYTES + len(name) + count * _PARTITION_HELD_BYTES
        return partitions

    def all_appended(self) -> None:
        """Every partition has been appended or refused: reply, or wait for the missing outcomes."""
        self._appended_sec = time.perf_counter()
        self._remaining -= 1
        if self._remaining:
            self._purgatory.add(self)
        else:
            self._send(None)

    def one_done(self, flush: FlushTimes | None) -> None:
        """One more partition has its result; `flush`: the times of its flush, if there was one."""
        self._remaining -= 1
        if not self._remaining:
            self._purgatory.remove(self)
            self._send(flush)

    def expire(self) -> None:
        """The client's wait is over: outcomes that are not known by now are answered as unknown.

        The records may still be published, once and in order (architecture.md, "Publish").
        """
        for _, partitions in self._topics:
            for partition in partitions:
                partition.refused(
                    ErrorCode.REQUEST_TIMED_OUT, "the records were not published within the request's timeout"
                )

    def _send(self, last_flush: FlushTimes | None) -> None:
        try:
            self._encode_and_send(last_flush)
        except Exception:
            # Not raised to the caller, who brings the outcome: other requests wait for it, too.
            logger.exception("could not answer a produce request")
            self._reply.end_connection()

    def _encode_and_send(self, last_flush: FlushTimes | None) -> None:
        error_code = 0
        topics = []
        for name, partitions in self._topics:
            results = []
            for partition in partitions:
                assert partition.result is not None
                error_code = error_code or partition.result.error_code
                results.append(partition.result)
            topics.append((name, results))
        leaders = NewLeaders(self._view, self._listener) if error_code else None
        if leaders:
            topics = [
                (name, [_with_leader(leaders, name, one) for one in results]) for name, results in topics
            ]
        frame = encode_produce_response(
            self._correlation_id,
            self._version,
            topics,
            node_endpoints=leaders.endpoints if leaders else (),
        )
        # The partitions refer to this object: without the cycle it is freed with its last user, not by the collector.
        self._topics = []
        self._reply.times = ProduceTimes(
            self._stages,
            self._client_id,
            self._correlation_id,
            self._request_bytes,
            self._appended_sec,
            last_flush,
        )
        self._reply.send((frame,), error_code=error_code)


def _with_leader(
    leaders: NewLeaders, topic: str, result: PartitionProduceResponse
) -> PartitionProduceResponse:
    leader = leaders.of(topic, result.partition, result.error_code)
    return result if leader is None else result._replace(current_leader=leader)


def _kept(client_id: str | None) -> str | None:
    if client_id is None or len(client_id) <= _CLIENT_ID_CHARACTERS:
        return client_id
    return quoted(client_id, _CUT_CLIENT_ID_CHARACTERS)


class Unanswered:
    """The waiter of a request with acks=0, which has no reply."""

    __slots__ = ()

    def published(self, base_offset: int, log_start_offset: int) -> None:
        """Ignored: there is no reply."""

    def refused(self, error_code: int, message: str) -> None:
        """Ignored: there is no reply."""
