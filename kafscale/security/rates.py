"""Rates as Kafka's quotas measure them. Pure: the time is an argument, in milliseconds of a clock that goes forward.

A `SlidingRate` is Kafka's `Rate` over a `SampledStat`, with `QuotaUtils.throttleTime`; a `TokenBucket` is its
`TokenBucket` (KIP-599), which a single large amount does not block for longer than it must.
"""

import math
from typing import Final, NamedTuple

MAX_DELAY_MS: Final = 2**31 - 1
"""The longest that a response can carry."""


_ROUNDING_MS: Final = 1e-3


class Windows(NamedTuple):
    """So many windows of `size_ms` each, over which a rate is measured."""

    number: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        """All windows together."""
        return self.number * self.size_ms


class SlidingRate:
    """Amounts of the last windows. A window begins with the first amount after the end of the one before."""

    __slots__ = ("_least_sec", "_samples", "_span_ms", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._span_ms = windows.span_ms
        self._least_sec = (windows.number - 1) * windows.size_ms / 1000  # of `_elapsed_ms`
        self._samples: list[list[float]] = []  # [begin, last change, sum], oldest first
        self._total = 0.0

    def add(self, amount: float, now_ms: float) -> None:
        """Count an amount; a negative one takes back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._windows.size_ms:
            samples.append([now_ms, now_ms, amount])
        else:
            samples[-1][1] = now_ms
            samples[-1][2] += amount
        self._total += amount
        self._expire(now_ms)

    def per_sec(self, now_ms: float) -> float:
        """The rate: at least all windows but the last count as over."""
        self._expire(now_ms)
        return self._total * 1000 / self._elapsed_ms(now_ms)

    def delay_ms(self, limit: float, now_ms: float) -> int:
        """How long to add nothing, so that the rate comes down to `limit` (a second); 0 if it is not above it."""
        if self._total <= limit * self._least_sec:
            return 0  # Whatever has expired.
        self._expire(now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        allowed_ms = self._total * 1000 / limit
        return 0 if allowed_ms <= elapsed_ms else min(MAX_DELAY_MS, round(allowed_ms - elapsed_ms))

    def is_unused(self, limit: float, now_ms: float) -> bool:
        """True if nothing counts any more."""
        self._expire(now_ms)
        return not self._samples

    def _expire(self, now_ms: float) -> None:
        samples, span_ms = self._samples, self._span_ms
        while samples and now_ms - samples[0][1] >= span_ms:
            self._total -= samples[0][2]
            del samples[0]
        if not samples:
            self._total = 0.0  # without the errors of sums of floats

    def _elapsed_ms(self, now_ms: float) -> float:
        """Since the oldest window began, or as if all windows but one had passed, if that is more."""
        number, size_ms = self._windows
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = number - 1 - elapsed_ms // size_ms
        return max(1.0, elapsed_ms + max(0.0, missing) * size_ms)


class TokenBucket:
    """Tokens that come back at a limit a second, at most those of all windows; they may be overdrawn once."""

    __slots__ = ("_span_sec", "_tokens", "_updated_ms")

    def __init__(self, windows: Windows) -> None:
        self._span_sec = windows.span_ms / 1000
        self._tokens: float | None = None
        self._updated_ms = 0.0

    def take(self, amount: float, limit: float, now_ms: float) -> None:
        """Take so many, there or not; a negative amount gives back."""
        self._tokens = min(self._most(limit), self._refilled(limit, now_ms) - amount)

    def delay_ms(self, limit: float, now_ms: float) -> int:
        """How long until the bucket is not overdrawn; 0 if it is not."""
        delay_ms = -self._refilled(limit, now_ms) / limit * 1000
        # Rounded up: after this time it is not overdrawn. What is less than that is an error of the floats.
        return min(MAX_DELAY_MS, math.ceil(delay_ms)) if delay_ms > _ROUNDING_MS else 0

    def is_unused(self, limit: float, now_ms: float) -> bool:
        """True if the bucket is full, as a new one."""
        return self._refilled(limit, now_ms) >= self._most(limit)

    def _most(self, limit: float) -> float:
        return self._span_sec * limit

    def _refilled(self, limit: float, now_ms: float) -> float:
        most = self._most(limit)
        if self._tokens is not None:
            self._tokens = min(most, self._tokens + limit * (now_ms - self._updated_ms) / 1000)
        else:
            self._tokens = most
        self._updated_ms = now_ms
        return self._tokens
