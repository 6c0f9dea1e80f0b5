"""Rates from counters that are read twice: the samples that a page keeps while someone looks at it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

FIRST_WINDOW_SEC: Final = 1.0
"""Without a look lately, a page waits so long for its first rates."""

SPACING_SEC: Final = 10.0
"""Two samples are kept, so far apart: rates are those of the last 10 to 20 s where a page is read often."""

LONGEST_WINDOW_SEC: Final = 60.0
MAX_POINTS: Final = 90
POINTS_AGE_SEC: Final = 600.0


class TopicCounts(NamedTuple):
    """A topic's counters, or its rates a second. Bytes are those of whole record batches."""

    bytes_in: float = 0
    records_in: float = 0
    bytes_out: float = 0
    records_out: float = 0


NO_COUNTS: Final = TopicCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Counters at one time of a clock that only goes forward. `requests`, `apis`: by operation and by API."""

    at_sec: float
    topics: Mapping[str, TopicCounts] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    dollars: Mapping[str, float] = field(default_factory=dict)
    topic_dollars: Mapping[str, float] = field(default_factory=dict)
    apis: Mapping[str, int] = field(default_factory=dict)
    flushes: float = 0


class Point(NamedTuple):
    """The rates of all topics at one time."""

    at_sec: float
    rates: TopicCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """By second, over `window_sec`. `points`: the rates of all topics when pages were read, oldest first."""

    window_sec: float
    topics: Mapping[str, TopicCounts]
    total: TopicCounts
    requests: Mapping[str, float]
    dollars: Mapping[str, float]
    topic_dollars: Mapping[str, float]
    apis: Mapping[str, float]
    flushes: float
    points: tuple[Point, ...] = ()


def rates_between(before: Sample, after: Sample) -> Rates:
    """A counter that went back began again, as that of a topic that was deleted and created: from 0."""
    seconds = max(after.at_sec - before.at_sec, 1e-9)
    topics = {
        name: TopicCounts(
            *(
                _growth(old, new) / seconds
                for old, new in zip(before.topics.get(name, NO_COUNTS), counts, strict=True)
            )
        )
        for name, counts in after.topics.items()
    }
    return Rates(
        window_sec=seconds,
        topics=topics,
        total=_sum(topics.values()),
        requests=_rates(before.requests, after.requests, seconds),
        dollars=_rates(before.dollars, after.dollars, seconds),
        topic_dollars=_rates(before.topic_dollars, after.topic_dollars, seconds),
        apis=_rates(before.apis, after.apis, seconds),
        flushes=_growth(before.flushes, after.flushes) / seconds,
    )


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after


def _rates(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {name: _growth(before.get(name, 0), count) / seconds for name, count in after.items()}


def _sum(counts: Iterable[TopicCounts]) -> TopicCounts:
    columns = tuple(zip(*counts, strict=True))
    return TopicCounts(*map(sum, columns)) if columns else NO_COUNTS


class RateWindow:
    """The samples. Not for several threads at once. `sleep` may block: no event loop calls this."""

    def __init__(self, read: Callable[[], Sample], sleep: Callable[[float], object]) -> None:
        self._read = read
        self._sleep = sleep
        self._samples: deque[Sample] = deque(maxlen=2)
        self._points: deque[Point] = deque(maxlen=MAX_POINTS)

    def measure(self) -> Rates:
        """The rates up to now. Waits for `FIRST_WINDOW_SEC` if there was no measurement lately."""
        now = self._read()
        while self._samples and now.at_sec - self._samples[0].at_sec > LONGEST_WINDOW_SEC:
            self._samples.popleft()
        if not self._samples:
            self._samples.append(now)
            self._sleep(FIRST_WINDOW_SEC)
            now = self._read()
        rates = rates_between(self._samples[0], now)
        if now.at_sec - self._samples[-1].at_sec >= SPACING_SEC:
            self._samples.append(now)
        self._points.append(Point(now.at_sec, rates.total))
        while self._points[0].at_sec < now.at_sec - POINTS_AGE_SEC:
            self._points.popleft()
        return replace(rates, points=tuple(self._points))
