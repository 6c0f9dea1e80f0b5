"""The time of a Produce by stage."""

from bisect import bisect_left
from collections.abc import Sequence

from kafscale.log.writing.flush_times import FlushTimes
from kafscale.ops.histogram import DURATION_BOUNDS_SEC
from kafscale.ops.request_stages import ProduceStages
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.quoting import quoted
from kafscale.serving.request_times import ReplyTimes, milliseconds


class ProduceTimes:
    """The stages of one Produce; a `RequestTimes`. `flush`: of the partition whose outcome came last.

    It is None if nothing was to be stored: the request was refused, or is a retry.
    """

    __slots__ = (
        "_appended_sec",
        "_client_id",
        "_correlation_id",
        "_flush",
        "_request_bytes",
        "_stages",
    )

    def __init__(
        self,
        stages: ProduceStages,
        client_id: str | None,
        correlation_id: int,
        request_bytes: int,
        appended_sec: float,
        flush: FlushTimes | None,
    ) -> None:
        self._stages = stages
        self._client_id = client_id
        self._correlation_id = correlation_id
        self._request_bytes = request_bytes
        self._appended_sec = appended_sec
        self._flush = flush

    def finish(self, replies: Sequence[ReplyTimes], left_sec: float, slow_sec: float) -> Sequence[ReplyTimes]:
        """See `RequestTimes`. All that a flush answers on a connection leaves together: counted in one go."""
        stages = self._stages
        queue_counts, append_counts, wait_counts = (
            stages.queue.counts,
            stages.append.counts,
            stages.flush_wait.counts,
        )
        queue_sec = append_sec = wait_sec = 0.0
        slow: list[ReplyTimes] = []
        flush: FlushTimes | None = None
        of_flush = 0
        for reply in replies:
            times = reply.times
            if not isinstance(times, ProduceTimes):
                continue
            started_sec, ready_sec, appended_sec = reply.started_sec, reply.ready_sec, times._appended_sec
            one_sec = started_sec - reply.received_sec
            queue_counts[bisect_left(DURATION_BOUNDS_SEC, one_sec)] += 1
            queue_sec += one_sec
            one_sec = appended_sec - started_sec
            append_counts[bisect_left(DURATION_BOUNDS_SEC, one_sec)] += 1
            append_sec += one_sec
            if times._flush is not flush:
                self._count_flush(flush, of_flush, left_sec)
                flush, of_flush = times._flush, 0
            if flush is None or not appended_sec <= flush.sealed_sec <= flush.published_sec <= ready_sec:
                times._count_alone(reply, left_sec)
            else:
                one_sec = flush.sealed_sec - appended_sec
                wait_counts[bisect_left(DURATION_BOUNDS_SEC, one_sec)] += 1
                wait_sec += one_sec
                of_flush += 1
            if ready_sec - reply.received_sec > slow_sec:
                slow.append(reply)
        self._count_flush(flush, of_flush, left_sec)
        stages.queue.total += queue_sec
        stages.append.total += append_sec
        stages.flush_wait.total += wait_sec
        return slow

    def _count_flush(self, flush: FlushTimes | None, requests: int, left_sec: float) -> None:
        if flush is not None and requests:
            stages = self._stages
            stages.upload.observe_many(flush.uploaded_sec - flush.sealed_sec, requests)
            stages.commit.observe_many(flush.published_sec - flush.uploaded_sec, requests)
            stages.reply.observe_many(left_sec - flush.published_sec, requests)

    def _count_alone(self, reply: ReplyTimes, left_sec: float) -> None:
        """Count the steps that came after the append: it was not published, or was sealed in part before that."""
        flush_wait_sec, upload_sec, commit_sec, reply_sec = self._after_append(reply, left_sec)
        stages = self._stages
        if flush_wait_sec:
            stages.flush_wait.observe(flush_wait_sec)
        if upload_sec:
            stages.upload.observe(upload_sec)
        if commit_sec:
            stages.commit.observe(commit_sec)
        stages.reply.observe(reply_sec)

    def _after_append(self, reply: ReplyTimes, left_sec: float) -> tuple[float, float, float, float]:
        """Seconds of the stages after `append`; a step that was not reached by the reply ends with it."""
        flush = self._flush or FlushTimes()
        times = [self._appended_sec]
        for step_sec in (flush.sealed_sec, flush.uploaded_sec, flush.published_sec):
            reached_sec = min(step_sec or reply.ready_sec, reply.ready_sec)
            times.append(max(times[-1], reached_sec))
        appended, sealed, uploaded, published = times
        return sealed - appended, uploaded - sealed, published - uploaded, left_sec - published

    def describe(self, reply: ReplyTimes, left_sec: float) -> dict[str, object]:
        """See `RequestTimes`."""
        flush_wait_sec, upload_sec, commit_sec, reply_sec = self._after_append(reply, left_sec)
        return {
            "api": ApiKey.PRODUCE.name,
            "client_id": quoted(self._client_id or ""),
            "correlation_id": self._correlation_id,
            "total_ms": milliseconds(left_sec - reply.received_sec),
            "queue_ms": milliseconds(reply.started_sec - reply.received_sec),
            "append_ms": milliseconds(self._appended_sec - reply.started_sec),
            "flush_wait_ms": milliseconds(flush_wait_sec),
            "upload_ms": milliseconds(upload_sec),
            "commit_ms": milliseconds(commit_sec),
            "reply_ms": milliseconds(reply_sec),
            "request_bytes": self._request_bytes,
            "puts": 0 if self._flush is None else self._flush.puts,
        }
