"""The allowances of clients: made when one is used, removed when it is as new, and bounded in number. Pure."""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from kafscale.security.quota_limits import BucketKey, Limit

MAX_BUCKETS: Final = 10_000
"""Of one kind of quota; some hundred bytes each."""

OTHERS: Final[BucketKey] = (b"others", b"others")
"""Clients beyond `MAX_BUCKETS` share this one: as many client ids as a client invents are no way around a limit."""


class Bucket(Protocol):
    """A client's use of a limit."""

    def is_unused(self, limit: float, now_ms: float) -> bool:
        """True if it is as a new one."""


B = TypeVar("B", bound=Bucket)


class Buckets(Generic[B]):
    """By user and client id. Unused ones are looked for once in each span of the windows, when one is added."""

    def __init__(self, make: Callable[[], B], span_ms: int, max_buckets: int = MAX_BUCKETS) -> None:
        self._make = make
        self._span_ms = span_ms
        self._max_buckets = max_buckets
        self._buckets: dict[BucketKey, tuple[B, float]] = {}
        self._swept_ms = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, limit: Limit, now_ms: float) -> B:
        """The bucket that counts against the limit."""
        known = self._buckets.get(limit.bucket)
        if known is None:
            return self._add(limit, now_ms)
        if known[1] != limit.rate:
            self._buckets[limit.bucket] = known[0], limit.rate
        return known[0]

    def clear(self) -> None:
        """Remove all."""
        self._buckets.clear()

    def _add(self, limit: Limit, now_ms: float) -> B:
        if now_ms - self._swept_ms >= self._span_ms:
            self._sweep(now_ms)
        key = limit.bucket
        if len(self._buckets) >= self._max_buckets:
            key = OTHERS
            known = self._buckets.get(key)
            if known is not None:
                return known[0]
        bucket = self._make()
        self._buckets[key] = bucket, limit.rate
        return bucket

    def _sweep(self, now_ms: float) -> None:
        self._swept_ms = now_ms
        for key, (bucket, rate) in list(self._buckets.items()):
            if bucket.is_unused(rate, now_ms):
                del self._buckets[key]
