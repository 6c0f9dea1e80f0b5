"""Reads of segments and indexes: from a replica of the bucket first, from the bucket itself where that fails.

Decision: docs/decisions/0020-streamed-creation-and-replica.md. What happens when: docs/object-store.md.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafscale.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.memory.pieces import Pieces
from kafscale.objects.object_store import ListingReader, ObjectInfo, ObjectReader
from kafscale.objects.replica_pauses import PausePolicy, ReplicaPauses
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics, StoreReadMetrics
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FAILURES = (StoreUnavailableError, StoreIndeterminateError, TimeoutError)
# A longer read is made piece by piece, each of which has its own time: it is soon known that one hangs.
_PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPatience:
    """The time that a read waits for the replica: `wait_sec`, and what its bytes take at `bytes_per_sec`."""

    wait_sec: float = 1.0
    bytes_per_sec: int = 8 * 2**20


class ReplicaReads:
    """A `ListingReader` of objects that are created once and never change. `primary` has them all.

    A replica that fails, or keeps a read waiting for longer than `patience`, is skipped from then on:
    until it answers a question that is asked aside, while the read that it comes from goes to the primary.
    `now_ms`: milliseconds of a clock that never goes back.
    """

    def __init__(
        self,
        replica: ObjectReader,
        primary: ListingReader,
        metrics: Metrics,
        now_ms: Callable[[], int],
        *,
        patience: ReplicaPatience | None = None,
        pauses: PausePolicy | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self._replica = replica
        self._primary = primary
        self._now_ms = now_ms
        self._patience = patience or ReplicaPatience()
        self._pauses = ReplicaPauses(pauses or PausePolicy())
        self._jitter = jitter or random.Random()
        self._of_replica = metrics.store_reads("replica")
        self._of_primary = metrics.store_reads("primary")
        self._questions = TaskOwner()
        metrics.gauge(metric_families.REPLICA_PASSED_OVER, lambda: self._pauses.is_passed_over)

    async def get(self, key: str) -> bytes:
        """`ObjectStore.get`."""

        async def read(store: ObjectReader) -> bytes:
            return await store.get(key)

        return await self._read(key, read, lambda: self._in_time(read, _PIECE_BYTES), len)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """`ObjectStore.get_range`."""

        async def read(store: ObjectReader) -> bytes:
            return await store.get_range(key, start, length)

        return await self._read(key, read, lambda: self._in_time(read, min(length, _PIECE_BYTES)), len)

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """`ObjectStore.read_into`. The primary is asked once the replica writes to the targets no more."""

        async def from_replica() -> int:
            room = Pieces(targets)
            count = 0
            while True:
                piece = min(length - count, _PIECE_BYTES)
                views = room.slices(count, count + piece)
                # Bound at once: the next turn has others.
                read = _reading_into(key, start + count, piece, views)
                found = await self._in_time(read, piece)
                count += found
                if found < piece or count == length:
                    return count

        async def from_primary(store: ObjectReader) -> int:
            return await store.read_into(key, start, length, targets)

        return await self._read(key, from_primary, from_replica, int)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """`ObjectStore.list`, of the primary."""
        return self._primary.list(prefix)

    async def close(self) -> None:
        """Cancel the question that is in flight."""
        await self._questions.close()

    async def _read(
        self,
        key: str,
        read: Callable[[ObjectReader], Awaitable[T]],
        from_replica: Callable[[], Awaitable[T]],
        size_bytes: Callable[[T], int],
    ) -> T:
        if self._pauses.is_passed_over:
            self._of_replica.passed_over += 1
            self._ask_aside(key)
        else:
            started_ms = self._now_ms()
            try:
                return await _counted(self._of_replica, from_replica, size_bytes)
            except ObjectNotFoundError:
                pass  # It has not been replicated yet, or is nowhere: the primary knows.
            except _FAILURES as problem:
                self._failed(problem, started_ms)
        return await _counted(self._of_primary, lambda: read(self._primary), size_bytes)

    async def _in_time(self, read: Callable[[ObjectReader], Awaitable[T]], size_bytes: int) -> T:
        """The replica's answer, within the patience for so many bytes. Raises `TimeoutError`."""
        patience = self._patience
        async with asyncio.timeout(patience.wait_sec + size_bytes / patience.bytes_per_sec):
            return await read(self._replica)

    def _failed(self, problem: Exception, started_ms: int) -> None:
        if self._pauses.failed(started_ms, self._now_ms(), self._any_jitter()):
            logger.warning(
                "the replica fails: segments are read from the primary until it answers again",
                extra={"problem": str(problem) or "it did not answer in time"},
            )

    def _ask_aside(self, key: str) -> None:
        if self._pauses.ask(self._now_ms()):
            self._questions.spawn(self._ask(key), "question to the replica")

    async def _ask(self, key: str) -> None:
        """Find out whether the replica answers; that it has no such object is an answer."""
        answers = False
        try:
            await self._in_time(lambda replica: replica.get_range(key, 0, 1), 1)
            answers = True
        except ObjectNotFoundError:
            answers = True
        except (StoreError, TimeoutError) as problem:
            logger.debug("the replica still fails", extra={"problem": str(problem)})
        finally:
            if answers:
                self._pauses.answered(self._now_ms())
                logger.info("the replica answers again: segments are read from it")
            else:
                self._pauses.silent(self._now_ms(), self._any_jitter())

    def _any_jitter(self) -> float:
        return self._jitter.uniform(0.75, 1.25)


def _reading_into(
    key: str, start: int, length: int, views: Sequence[memoryview]
) -> Callable[[ObjectReader], Awaitable[int]]:
    async def read(store: ObjectReader) -> int:
        return await store.read_into(key, start, length, views)

    return read


async def _counted(
    counts: StoreReadMetrics, read: Callable[[], Awaitable[T]], size_bytes: Callable[[T], int]
) -> T:
    counts.reads += 1
    try:
        result = await read()
    except ObjectNotFoundError:
        counts.misses += 1
        raise
    except (StoreError, TimeoutError) as problem:
        counts.errors[type(problem).__name__] += 1
        raise
    counts.bytes += size_bytes(result)
    return result
