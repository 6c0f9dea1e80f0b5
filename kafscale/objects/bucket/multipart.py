"""Large objects created at most once, part by part: a multipart upload whose completion is conditional.

Decision: docs/decisions/0020-streamed-creation-and-replica.md.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kafscale.errors import (
    ObjectExistsError,
    StoreError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.memory.chunks import ExactChunks
from kafscale.objects.bucket.errors import Failure, Outcome
from kafscale.objects.bucket.multipart_client import NO_SUCH_UPLOAD, MultipartClient, SentPart
from kafscale.objects.bucket.requests import Allow, AttemptError, FailedError, Kind, Requester
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MIB = 2**20
# S3's limit for an object.
MAX_OBJECT_BYTES = 5 * 2**40
PART_BYTES = 16 * _MIB
_MAX_PARTS = 10_000
# The most memory of one object's parts in flight, unless one part alone has more.
_IN_FLIGHT_BYTES = 48 * _MIB
# A store that joins parts by copying them does so at least at 32 times the pace of an upload.
_COPYING_FACTOR = 32
_MOST_PATIENCE_BYTES = 512 * _MIB
_CLOSE_SEC = 2.0


class MultipartCreation:
    """Creates objects of the chunks that come. `new_mark`: a text that no other upload has.

    `part_bytes`: what the parts have while 10,000 of them are enough.
    """

    def __init__(
        self,
        client: MultipartClient,
        requests: Requester,
        new_mark: Callable[[], str],
        *,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._client = client
        self._requests = requests
        self._new_mark = new_mark
        self._part_bytes = part_bytes
        self._aborts = TaskOwner()

    async def create(self, key: str, chunks: ExactChunks, size_bytes: int) -> None:
        """As `ObjectStore.put_if_absent_streamed`, for an object of at least one byte."""
        # It saves the upload where the key is taken already, and is a second line, beside the completion's
        # condition, with a store that does not look at that.
        await self._check_free(key)
        mark = self._new_mark()
        upload = await self._nothing_done(lambda _: self._client.begin(key, mark))
        try:
            parts = await self._send(key, upload, chunks, size_bytes)
            await self._check_free(key)
            await self._complete(key, upload, parts, mark, size_bytes)
        except BaseException:
            # Of a completion with unknown outcome as well: one that did not happen by now does not any more.
            self._abort_soon(key, upload)
            raise

    async def close(self) -> None:
        """Give aborts in flight a moment; a rule of the bucket deletes what is left of an upload then."""
        await self._aborts.wait(_CLOSE_SEC)
        await self._aborts.close()
        self._client.close()

    async def _send(self, key: str, upload: str, chunks: ExactChunks, size_bytes: int) -> list[SentPart]:
        part_bytes = part_size_bytes(size_bytes, self._part_bytes)

        async def send(number: int, content: bytearray) -> SentPart:
            return await self._nothing_done(
                lambda _: self._client.send(key, upload, number, content), len(content)
            )

        sending = _Sending(send, max(1, _IN_FLIGHT_BYTES // part_bytes))
        try:
            await _fill_parts(chunks, size_bytes, part_bytes, sending.add)
            return await sending.finish()
        finally:
            await sending.end()

    async def _complete(
        self, key: str, upload: str, parts: list[SentPart], mark: str, size_bytes: int
    ) -> None:
        patience_bytes = min(size_bytes // _COPYING_FACTOR, _MOST_PATIENCE_BYTES)
        in_doubt = False

        async def attempt(_: Allow) -> None:
            nonlocal in_doubt
            was_in_doubt, in_doubt = in_doubt, True
            try:
                await self._client.complete(key, upload, parts, patience_bytes)
            except AttemptError as problem:
                in_doubt = was_in_doubt or problem.failure.outcome is Outcome.UNKNOWN
                if problem.code == NO_SUCH_UPLOAD:
                    await self._resolve_outcome(key, mark, problem, in_doubt=was_in_doubt)
                elif was_in_doubt and problem.failure.outcome is Outcome.EXISTS:
                    await self._resolve_outcome(key, mark, problem, in_doubt=True)
                else:
                    raise
            else:
                # A store may take a second request to complete for a repetition of the first, still in flight
                # or not, and say yes to it whatever its outcome.
                if was_in_doubt:
                    await self._resolve_outcome(key, mark, None, in_doubt=True)

        try:
            await self._requests.until_done(attempt, Kind.WRITE, patience_bytes)
        except FailedError as problem:
            if problem.outcome is Outcome.EXISTS:
                raise ObjectExistsError(key) from problem
            raise StoreRefusedError(f"{problem}: check KAFSCALE_S3_ENDPOINT") from problem

    async def _resolve_outcome(
        self, key: str, mark: str, problem: AttemptError | None, *, in_doubt: bool
    ) -> None:
        """Return when the object that lies there is ours, by its mark.

        Raises `AttemptError`, and `StoreUnavailableError` when nothing was, or can be, created any more.
        """
        found = await self._client.mark_of(key)
        if found == mark:
            return
        if found is not None:
            raise AttemptError(Failure(outcome=Outcome.EXISTS, text=f"{key!r} is another's")) from problem
        if in_doubt:
            text = f"whether {key!r} was completed is not known: no object is there yet"
            raise AttemptError(Failure(outcome=Outcome.UNKNOWN, text=text)) from problem
        raise StoreUnavailableError(f"the upload of {key!r} was ended by another writer: {problem}")

    async def _check_free(self, key: str) -> None:
        if await self._nothing_done(lambda _: self._client.mark_of(key)) is not None:
            raise ObjectExistsError(key)

    async def _nothing_done(self, attempt: Callable[[Allow], Awaitable[T]], size_bytes: int = 0) -> T:
        """A repeatable request after whose failure nothing is visible. Raises `StoreUnavailableError`."""
        try:
            return await self._requests.until_done(attempt, Kind.WRITE, size_bytes)
        except StoreIndeterminateError as problem:
            raise StoreUnavailableError(str(problem)) from problem
        except FailedError as problem:
            raise StoreRefusedError(f"{problem}: check KAFSCALE_S3_ENDPOINT") from problem

    def _abort_soon(self, key: str, upload: str) -> None:
        self._aborts.spawn(self._abort(key, upload), f"abort the upload of {key}")

    async def _abort(self, key: str, upload: str) -> None:
        await self._client.quiet(upload)
        try:
            await self._nothing_done(lambda _: self._client.abort(key, upload))
        except StoreError as problem:
            logger.warning(
                "could not abort an upload; a lifecycle rule of the bucket has to",
                extra={"key": key, "upload": upload, "problem": str(problem)},
            )


def part_size_bytes(size_bytes: int, smallest_bytes: int) -> int:
    """The size of an object's parts but for the last: whole MiB where more than the smallest is needed."""
    needed = -(-size_bytes // _MAX_PARTS)
    return smallest_bytes if needed <= smallest_bytes else -(-needed // _MIB) * _MIB


async def _fill_parts(
    chunks: ExactChunks, size_bytes: int, part_bytes: int, add: Callable[[bytearray], Awaitable[None]]
) -> None:
    """Cut the chunks into parts, and add each as soon as it is full."""
    rest = size_bytes
    part = bytearray(min(part_bytes, rest))
    filled = 0
    async for chunk in chunks:
        while chunk:
            count = min(len(chunk), len(part) - filled)
            part[filled : filled + count] = chunk[:count]
            filled += count
            chunk = chunk[count:]
            if filled == len(part):
                await add(part)
                rest -= filled
                part = bytearray(min(part_bytes, rest))
                filled = 0


class _Sending:
    """Parts in flight, at most `at_once` of them. A failure of one is raised at the next opportunity."""

    def __init__(self, send: Callable[[int, bytearray], Awaitable[SentPart]], at_once: int) -> None:
        self._send = send
        self._at_once = at_once
        self._in_flight: set[asyncio.Future[SentPart]] = set()
        self._sent: list[SentPart] = []
        self._count = 0

    async def add(self, content: bytearray) -> None:
        """Send the part as soon as there is room."""
        while len(self._in_flight) >= self._at_once:
            await self._wait()
        self._count += 1
        self._in_flight.add(asyncio.ensure_future(self._send(self._count, content)))

    async def finish(self) -> list[SentPart]:
        """All parts, in order, once they were sent."""
        while self._in_flight:
            await self._wait()
        return sorted(self._sent, key=lambda part: part.number)

    async def end(self) -> None:
        """Send no more."""
        for part in self._in_flight:
            part.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    async def _wait(self) -> None:
        done, self._in_flight = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        self._take(tuple(done))

    def _take(self, done: Sequence[asyncio.Future[SentPart]]) -> None:
        problems = [problem for part in done if (problem := part.exception()) is not None]
        if problems:
            raise problems[0]
        self._sent.extend(part.result() for part in done)
