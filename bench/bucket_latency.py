"""A proxy in front of an S3 server that delays every request like a distant bucket, and counts billed requests."""

import asyncio
import math
import random
import time
from collections import Counter
from dataclasses import dataclass

from tests.support.http_stream import Head
from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy, RequestKind

_Z99 = 2.3263  # the 99th percentile of the standard normal distribution
_WRITES = frozenset({"PUT", "POST"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """A log-normal distribution, given by two of its percentiles, in milliseconds."""

    p50_ms: float
    p99_ms: float

    def draw_sec(self, generator: random.Random) -> float:
        """A random value of it, in seconds."""
        spread = math.log(self.p99_ms / self.p50_ms) / _Z99
        return self.p50_ms / 1000 * math.exp(spread * generator.gauss(0.0, 1.0))


PUT_LATENESS = Lateness(p50_ms=25.0, p99_ms=120.0)
GET_LATENESS = Lateness(p50_ms=15.0, p99_ms=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Requests as a bucket's owner counts them: LIST is billed as PUT, HEAD as GET, DELETE is free."""

    puts: int
    gets: int

    def __sub__(self, other: "Bill") -> "Bill":
        return Bill(puts=self.puts - other.puts, gets=self.gets - other.gets)


def bill(counts: "Counter[RequestKind]") -> Bill:
    """The billing class of these requests."""
    puts = gets = 0
    for kind, number in counts.items():
        if kind.method in _WRITES or (kind.method == "GET" and kind.suffix == "bucket"):
            puts += number
        elif kind.method in ("GET", "HEAD"):
            gets += number
    return Bill(puts=puts, gets=gets)


class LateBucket(ObjectStoreProxy):
    """Forwards each request after a delay drawn for its kind; DELETE and LIST take that of a GET."""

    def __init__(self, upstream: str, *, put: Lateness, get: Lateness, seed: int) -> None:
        super().__init__(upstream, seed=seed)
        self._put = put
        self._get = get
        self._put_milliseconds: list[float] = []

    @property
    def puts_done(self) -> int:
        """The number of PUTs that have been answered."""
        return len(self._put_milliseconds)

    def put_milliseconds(self, since: int) -> list[float]:
        """The durations, after the first `since`, from a request's last byte to its reply; sorted."""
        return sorted(self._put_milliseconds[since:])

    def bill(self) -> Bill:
        """The requests so far."""
        return bill(self.counts())

    def _fault_for(self, head: Head) -> Fault:
        lateness = self._put if head.method in _WRITES else self._get
        seconds = lateness.draw_sec(self._generator)
        return Fault(kind=FaultKind.DELAY, seconds=(seconds, seconds))

    async def _meet(
        self, fault: Fault | None, head: Head, request: list[bytes], writer: asyncio.StreamWriter
    ) -> bool:
        began = time.perf_counter()
        keeps = await super()._meet(fault, head, request, writer)
        if head.method == "PUT":
            self._put_milliseconds.append((time.perf_counter() - began) * 1000)
        return keeps
