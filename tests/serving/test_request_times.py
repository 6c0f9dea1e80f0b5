"""Stages of Fetch and Produce: they add up to the request's time, and deliberate waiting makes nothing slow."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.writing.flush_times import EntryUpload, FlushTimes
from kafscale.ops.histogram import Histogram
from kafscale.ops.request_stages import FetchStages, ProduceStages
from kafscale.serving.context import ClientSoftware, RequestContext
from kafscale.serving.fetch_times import FetchTimes
from kafscale.serving.produce_times import ProduceTimes
from kafscale.serving.request_times import RequestTimes

REQUEST = RequestContext(13, 7, "x" * 1000, "192.0.2.1", ClientSoftware(), size_bytes=321)
NEVER = float("inf")


@dataclass
class SentReply:
    received_sec: float = 100.0
    started_sec: float = 100.5
    ready_sec: float = 110.0
    size_bytes: int = 4321
    times: RequestTimes | None = None


def spent(stages: FetchStages | ProduceStages) -> dict[str, float]:
    return {stage: round(histogram.total, 6) for stage, histogram in stages if sum(histogram.counts)}


def count(histogram: Histogram) -> int:
    return sum(histogram.counts)


def produced(stages: ProduceStages, flush: FlushTimes | None, appended_sec: float = 101.0) -> SentReply:
    return SentReply(times=ProduceTimes(stages, REQUEST.client_id, 7, 321, appended_sec, flush))


def finish(reply: SentReply, left_sec: float = 112.0, slow_sec: float = NEVER) -> bool:
    """True if it is reported as slow."""
    assert reply.times is not None
    slow = reply.times.finish([reply], left_sec, slow_sec)
    assert list(slow) in ([], [reply])
    return bool(slow)


# --- produce


def test_stages_of_a_published_produce() -> None:
    stages = ProduceStages()
    finish(produced(stages, FlushTimes(103.0, 106.0, 109.0)))
    assert spent(stages) == {
        "queue": 0.5,
        "append": 0.5,
        "flush_wait": 2.0,
        "upload": 3.0,
        "commit": 3.0,
        "reply": 3.0,
    }


def test_produces_of_one_flush_are_counted_each() -> None:
    stages, first, second = ProduceStages(), FlushTimes(103.0, 106.0, 109.0), FlushTimes(104.0, 105.0, 106.0)
    replies = [produced(stages, flush) for flush in (first, first, second, None, second)]
    assert replies[0].times is not None
    replies[0].times.finish(replies, 112.0, NEVER)
    assert {name: count(one) for name, one in stages} == {
        "queue": 5,
        "append": 5,
        "flush_wait": 5,
        "upload": 4,
        "commit": 4,
        "reply": 5,
    }
    assert stages.upload.total == pytest.approx(2 * 3.0 + 2 * 1.0)


@pytest.mark.parametrize(
    ("flush", "stuck"),
    [
        (None, "flush_wait"),
        (FlushTimes(), "flush_wait"),
        (FlushTimes(101.0), "upload"),
        (FlushTimes(101.0, 101.0), "commit"),
    ],
)
def test_a_produce_that_times_out_counts_where_it_is_stuck(flush: FlushTimes, stuck: str) -> None:
    stages = ProduceStages()
    finish(produced(stages, flush))
    assert spent(stages) == {"queue": 0.5, "append": 0.5, stuck: 9.0, "reply": 2.0}


def test_a_produce_refused_at_once_has_no_flush_wait() -> None:
    stages = ProduceStages()
    finish(produced(stages, None, appended_sec=110.0))
    assert spent(stages) == {"queue": 0.5, "append": 9.5, "reply": 2.0}


@given(st.lists(st.floats(100.5, 120.0), max_size=3), st.floats(100.5, 110.0))
def test_produce_stages_add_up_to_the_whole_time(steps: list[float], appended_sec: float) -> None:
    """A part of a large request may be sealed and uploaded before its last partition is appended."""
    stages = ProduceStages()
    sealed_sec, uploaded_sec, published_sec = (*sorted(steps), 0.0, 0.0, 0.0)[:3]
    flush = FlushTimes(sealed_sec, uploaded_sec, published_sec)
    finish(produced(stages, flush, appended_sec), left_sec=130.0)
    assert sum(histogram.total for _, histogram in stages) == pytest.approx(30.0)


def test_a_flush_that_began_before_the_last_append_has_no_wait() -> None:
    stages = ProduceStages()
    finish(produced(stages, FlushTimes(103.0, 106.0, 109.0), appended_sec=104.0))
    assert stages.flush_wait.total == 0.0


# --- fetch


def test_stages_of_a_fetch_that_loads() -> None:
    stages = FetchStages()
    times = FetchTimes(stages, REQUEST)
    with times.loading() as notes:
        notes.gets = 3
    times.wait_sec, times.load_sec, times.check_sec = 4.0, 2.0, 1.0
    finish(SentReply(times=times))
    assert spent(stages) == {"queue": 0.5, "wait": 4.0, "plan": 2.5, "load": 2.0, "check": 1.0, "send": 2.0}
    assert stages.active.total == pytest.approx(6.0)


def test_a_fetch_from_memory_has_no_load() -> None:
    stages = FetchStages()
    finish(SentReply(times=FetchTimes(stages, REQUEST)))
    assert spent(stages) == {"queue": 0.5, "plan": 9.5, "send": 2.0}


def test_a_check_counts_as_far_as_it_lies_within_the_load() -> None:
    times = FetchTimes(FetchStages(), REQUEST)
    with times.loading() as notes:
        notes.checked = (0.0, NEVER)
    assert times.check_sec > 0 and times.load_sec == 0


# --- slow


def test_a_fetch_that_waits_for_records_is_not_slow() -> None:
    times = FetchTimes(FetchStages(), REQUEST)
    times.wait_sec = 9.0
    assert not finish(SentReply(times=times), slow_sec=2.0)


def test_a_client_that_reads_late_makes_no_request_slow() -> None:
    reply = SentReply(times=FetchTimes(FetchStages(), REQUEST))
    assert not finish(reply, left_sec=1000.0, slow_sec=10.5)


def test_requests_beyond_the_limit_are_slow() -> None:
    assert finish(SentReply(times=FetchTimes(FetchStages(), REQUEST)), slow_sec=9.9)
    assert finish(produced(ProduceStages(), FlushTimes(103.0, 106.0, 109.0)), slow_sec=9.9)
    assert not finish(produced(ProduceStages(), FlushTimes(103.0, 106.0, 109.0)), slow_sec=10.1)


def test_the_line_of_a_slow_fetch_names_stages_and_caches() -> None:
    times = FetchTimes(FetchStages(), REQUEST)
    with times.loading() as notes:
        notes.segments_missing, notes.indexes_missing, notes.gets = 2, 1, 3
    times.wait_sec, times.load_sec, times.check_sec = 4.0, 2.0, 1.0
    described = times.describe(SentReply(), 112.0)
    assert len(str(described.pop("client_id"))) < 150
    assert described == {
        "api": "FETCH",
        "correlation_id": 7,
        "total_ms": 12000.0,
        "queue_ms": 500.0,
        "wait_ms": 4000.0,
        "plan_ms": 2500.0,
        "load_ms": 2000.0,
        "check_ms": 1000.0,
        "decompress_ms": 0.0,
        "send_ms": 2000.0,
        "reply_bytes": 4321,
        "segments_cached": 0,
        "segments_missing": 2,
        "indexes_cached": 0,
        "indexes_missing": 1,
        "gets": 3,
    }


def test_the_line_of_a_slow_produce_names_stages_and_puts() -> None:
    flush = FlushTimes(103.0, 106.0, 109.0, EntryUpload(puts=2))
    described = ProduceTimes(ProduceStages(), REQUEST.client_id, 7, 321, 101.0, flush).describe(
        SentReply(), 112.0
    )
    assert len(str(described.pop("client_id"))) < 150
    assert described == {
        "api": "PRODUCE",
        "correlation_id": 7,
        "total_ms": 12000.0,
        "queue_ms": 500.0,
        "append_ms": 500.0,
        "flush_wait_ms": 2000.0,
        "upload_ms": 3000.0,
        "commit_ms": 3000.0,
        "reply_ms": 3000.0,
        "request_bytes": 321,
        "puts": 2,
    }
