"""Where the time of a Produce went."""

from kafscale.log.writing.flush_times import FlushTimes
from kafscale.ops.request_stages import ProduceStages
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.quoting import quoted
from kafscale.serving.context import RequestContext
from kafscale.serving.request_times import ReplyTimes, milliseconds


class ProduceTimes:
    """The stages of one Produce; a `RequestTimes`. `flush`: of the partition whose outcome came last.

    It is None if nothing was to be stored: the request was refused, or is a retry.
    """

    __slots__ = ("_appended_sec", "_flush", "_request", "_stages")

    def __init__(
        self,
        stages: ProduceStages,
        request: RequestContext,
        appended_sec: float,
        flush: FlushTimes | None,
    ) -> None:
        self._stages = stages
        self._request = request
        self._appended_sec = appended_sec
        self._flush = flush

    def finish(self, reply: ReplyTimes, left_sec: float) -> float:
        """See `RequestTimes`."""
        stages = self._stages
        received_sec, started_sec, appended_sec = reply.received_sec, reply.started_sec, self._appended_sec
        stages.queue.observe(started_sec - received_sec)
        stages.append.observe(appended_sec - started_sec)
        flush, ready_sec = self._flush, reply.ready_sec
        if flush is not None and flush.published_sec and flush.published_sec <= ready_sec:
            sealed_sec, published_sec = flush.sealed_sec, flush.published_sec
            # The first partitions of a large request may be sealed before its last is appended.
            stages.flush_wait.observe(max(0.0, sealed_sec - appended_sec))
            stages.upload.observe(flush.uploaded_sec - sealed_sec)
            stages.commit.observe(published_sec - flush.uploaded_sec)
            stages.reply.observe(left_sec - published_sec)
        else:
            self._finish_unpublished(reply, left_sec)
        return left_sec - received_sec

    def _finish_unpublished(self, reply: ReplyTimes, left_sec: float) -> None:
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
            "client_id": quoted(self._request.client_id or ""),
            "correlation_id": self._request.correlation_id,
            "total_ms": milliseconds(left_sec - reply.received_sec),
            "queue_ms": milliseconds(reply.started_sec - reply.received_sec),
            "append_ms": milliseconds(self._appended_sec - reply.started_sec),
            "flush_wait_ms": milliseconds(flush_wait_sec),
            "upload_ms": milliseconds(upload_sec),
            "commit_ms": milliseconds(commit_sec),
            "reply_ms": milliseconds(reply_sec),
            "request_bytes": self._request.size_bytes,
            "puts": 0 if self._flush is None else self._flush.puts,
        }
