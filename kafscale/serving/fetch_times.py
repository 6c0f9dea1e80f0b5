"""The time of a Fetch by stage."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafscale.log.reading.load_notes import LoadNotes, noted
from kafscale.ops.request_stages import FetchStages
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.quoting import quoted
from kafscale.serving.context import RequestContext
from kafscale.serving.request_times import ReplyTimes, milliseconds


class FetchTimes:
    """The stages of one Fetch; a `RequestTimes`. What no other stage takes is `plan`."""

    __slots__ = (
        "_began_waiting_sec",
        "_notes",
        "_request",
        "_stages",
        "check_sec",
        "decompress_sec",
        "load_sec",
        "wait_sec",
    )

    def __init__(self, stages: FetchStages, request: RequestContext) -> None:
        self._stages = stages
        self._request = request
        self._notes: LoadNotes | None = None
        self._began_waiting_sec = 0.0
        self.wait_sec = 0.0
        self.load_sec = 0.0
        self.check_sec = 0.0
        self.decompress_sec = 0.0

    def begin_wait(self) -> None:
        """The request waits because its client asked for it, until `end_wait`."""
        self._began_waiting_sec = time.perf_counter()

    def end_wait(self) -> None:
        """It waits no longer."""
        self.wait_sec += time.perf_counter() - self._began_waiting_sec

    @contextmanager
    def loading(self) -> Iterator[LoadNotes]:
        """The request waits for what tasks load that are created in this block."""
        self._notes = notes = LoadNotes()
        began_sec = time.perf_counter()
        try:
            with noted(notes):
                yield notes
        finally:
            ended_sec = time.perf_counter()
            self.check_sec = notes.check_sec(began_sec, ended_sec)
            self.load_sec = ended_sec - began_sec - self.check_sec

    @contextmanager
    def decompressing(self) -> Iterator[None]:
        """The request waits for its batches to be decompressed."""
        began_sec = time.perf_counter()
        try:
            yield
        finally:
            self.decompress_sec = time.perf_counter() - began_sec

    def finish(self, replies: Sequence[ReplyTimes], left_sec: float, slow_sec: float) -> Sequence[ReplyTimes]:
        """See `RequestTimes`."""
        return [
            reply
            for reply in replies
            if isinstance(reply.times, FetchTimes) and reply.times.count(reply, left_sec) > slow_sec
        ]

    def count(self, reply: ReplyTimes, left_sec: float) -> float:
        """Count the stages of this request's reply; returns its time in seconds, without deliberate waiting."""
        stages = self._stages
        stages.queue.observe(reply.started_sec - reply.received_sec)
        stages.plan.observe(self._plan_sec(reply))
        stages.send.observe(left_sec - reply.ready_sec)
        if self.wait_sec:
            stages.wait.observe(self.wait_sec)
        if self._notes is not None:
            stages.load.observe(self.load_sec)
        if self.check_sec:
            stages.check.observe(self.check_sec)
        if self.decompress_sec:
            stages.decompress.observe(self.decompress_sec)
        active_sec = max(0.0, reply.ready_sec - reply.received_sec - self.wait_sec)
        stages.active.observe(active_sec)
        return active_sec

    def _plan_sec(self, reply: ReplyTimes) -> float:
        elsewhere_sec = self.wait_sec + self.load_sec + self.check_sec + self.decompress_sec
        return max(0.0, reply.ready_sec - reply.started_sec - elsewhere_sec)

    def describe(self, reply: ReplyTimes, left_sec: float) -> dict[str, object]:
        """See `RequestTimes`."""
        notes = self._notes or LoadNotes()
        return {
            "api": ApiKey.FETCH.name,
            "client_id": quoted(self._request.client_id or ""),
            "correlation_id": self._request.correlation_id,
            "total_ms": milliseconds(left_sec - reply.received_sec),
            "queue_ms": milliseconds(reply.started_sec - reply.received_sec),
            "wait_ms": milliseconds(self.wait_sec),
            "plan_ms": milliseconds(self._plan_sec(reply)),
            "load_ms": milliseconds(self.load_sec),
            "check_ms": milliseconds(self.check_sec),
            "decompress_ms": milliseconds(self.decompress_sec),
            "send_ms": milliseconds(left_sec - reply.ready_sec),
            "reply_bytes": reply.size_bytes,
            "segments_cached": notes.segments_cached,
            "segments_missing": notes.segments_missing,
            "indexes_cached": notes.indexes_cached,
            "indexes_missing": notes.indexes_missing,
            "gets": notes.gets,
        }
