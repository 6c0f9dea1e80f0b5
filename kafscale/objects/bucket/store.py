"""The object store in a bucket of S3, and of what speaks it: `ObjectStore` over obstore.

Decisions and measurements: docs/decisions/0012-object-store-client.md.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Sequence

import obstore
from obstore.store import ObjectStore as Bucket

from kafscale.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.formats.object_keys import object_key_problem
from kafscale.memory.chunks import ExactChunks, check_streamed_size, collect
from kafscale.objects.bucket.errors import LIBRARY_ERRORS, Outcome, is_cut_off
from kafscale.objects.bucket.listing import Listing, UnorderedListing
from kafscale.objects.bucket.multipart import MAX_OBJECT_BYTES, PART_BYTES, MultipartCreation
from kafscale.objects.bucket.multipart_client import MultipartClient
from kafscale.objects.bucket.payload import Payload
from kafscale.objects.bucket.requests import (
    DEFAULT_PATIENCE,
    Allow,
    FailedError,
    Kind,
    Patience,
    Requester,
)
from kafscale.objects.object_store import ObjectInfo
from kafscale.objects.request_meter import RequestLog, Unmetered
from kafscale.ops.prices import Operation
from kafscale.protocol.types import Buffer

# S3's limit for one request. A larger object would need several, and could not be created conditionally.
MAX_CREATE_BYTES = 5 * 2**30
# So much of a streamed object is collected for one request where there is no conditional multipart upload.
MAX_COLLECTED_BYTES = 256 * 2**20
# Up to here that is done in any case: one request instead of several.
MULTIPART_ABOVE_BYTES = 64 * 2**20
# One request reads so much at most: it bounds the memory, and for how long a copy keeps the event loop busy.
_READ_BYTES = 8 * 2**20
# What a range may be longer than the object by does not lengthen the wait.
_MOST_EXPECTED_BYTES = 64 * 2**20
_DELETE_BATCH = 1000
_SETTLE_SEC = 0.02


class BucketStore:
    """`ObjectStore` in a bucket. At most `concurrency` requests are in flight; every call ends in time.

    `deletes_in_bulk`: whether one request deletes many objects, and an object that is not there is no error.
    `multipart`: streamed objects of more than `multipart_above_bytes` come in parts of `part_bytes`; without
    it none may have more than 256 MiB. `meter` notes every request. `lists_in_order`: whether listings of the bucket
    are in the order of keys.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        concurrency: int,
        deletes_in_bulk: bool = True,
        multipart: MultipartClient | None = None,
        multipart_above_bytes: int = MULTIPART_ABOVE_BYTES,
        part_bytes: int = PART_BYTES,
        patience: Patience = DEFAULT_PATIENCE,
        jitter: random.Random | None = None,
        refusal_hint: str = "",
        meter: RequestLog | None = None,
        lists_in_order: bool = True,
    ) -> None:
        self._bucket = bucket
        self._listing = Listing if lists_in_order else UnorderedListing
        self._meter = meter or Unmetered()
        self._deletes_in_bulk = deletes_in_bulk
        self._requests = Requester(concurrency, patience, jitter or random.Random(), refusal_hint)
        self._multipart_above_bytes = multipart_above_bytes
        self._multipart: MultipartCreation | None = None
        if multipart is not None:
            self._multipart = MultipartCreation(
                multipart, self._requests, lambda: uuid.uuid4().hex, part_bytes=part_bytes
            )

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`. Raises `ValueError` above 5 GiB.

        What may have arrived is not sent again: `ObjectExistsError` never speaks of this call's own object.
        Where the connection broke, what lies under the key is looked at; these very bytes count as created.
        """
        _check(key)
        payload = Payload(parts)
        if payload.size_bytes > MAX_CREATE_BYTES:
            raise ValueError(f"{key!r} has {payload.size_bytes} bytes; legal are up to {MAX_CREATE_BYTES}")

        async def attempt(allow: Allow) -> None:
            self._meter.sent(Operation.PUT_OBJECT, key, payload.size_bytes)
            try:
                await payload.create(self._bucket, key)
            except LIBRARY_ERRORS as problem:
                if not is_cut_off(problem):
                    raise
                allow(payload.size_bytes)
                if not await self._was_created(key, payload):
                    raise

        try:
            await self._requests.until_done(attempt, Kind.WRITE, payload.size_bytes, is_repeatable=False)
        except FailedError as problem:
            if problem.outcome is Outcome.EXISTS:
                raise ObjectExistsError(key) from problem
            raise _refused(problem) from problem

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """See `ObjectStore`."""
        _check(key)
        check_streamed_size(key, size_bytes, self.max_streamed_bytes)
        exact = ExactChunks(key, chunks, size_bytes)
        if self._multipart is not None and size_bytes > self._multipart_above_bytes:
            await self._multipart.create(key, exact, size_bytes)
        else:
            await self.put_if_absent(key, [await collect(exact, size_bytes)])

    @property
    def max_streamed_bytes(self) -> int:
        """See `ObjectStore`."""
        return MAX_COLLECTED_BYTES if self._multipart is None else MAX_OBJECT_BYTES

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        _check(key)
        payload = Payload(parts)

        async def attempt(_: Allow) -> None:
            for operation, size_bytes in payload.replacement_requests():
                self._meter.sent(operation, key, size_bytes)
            await payload.replace(self._bucket, key)

        try:
            await self._requests.until_done(attempt, Kind.WRITE, payload.size_bytes)
        except FailedError as problem:
            raise _refused(problem) from problem

    async def get(self, key: str) -> bytes:
        """See `ObjectStore`."""
        _check(key)

        async def attempt(allow: Allow) -> bytes:
            self._meter.sent(Operation.GET_OBJECT, key)
            found = await obstore.get_async(self._bucket, key)
            allow(found.meta["size"])
            content = bytes(await found.bytes_async())
            self._meter.received(Operation.GET_OBJECT, key, len(content))
            return content

        try:
            return await self._requests.until_done(attempt, Kind.READ)
        except FailedError as problem:
            raise _not_read(key, problem) from problem

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectStore`."""
        _check_range(key, start, length)
        if length == 0:
            await self.size_bytes(key)
            return b""
        return bytes(await self._read(key, start, length))

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """See `ObjectStore`."""
        _check_range(key, start, length)
        if length == 0:
            await self.size_bytes(key)
        count = 0
        while count < length:
            wanted = min(length - count, _READ_BYTES)
            found = memoryview(await self._read(key, start + count, wanted))
            targets = _fill(targets, found)
            count += len(found)
            if len(found) < wanted:
                break
        return count

    async def size_bytes(self, key: str) -> int:
        """See `ObjectStore`."""
        _check(key)

        # Not a HEAD: its 404 has no body, which would distinguish a missing object from a missing bucket.
        async def attempt(_: Allow) -> int:
            self._meter.sent(Operation.GET_OBJECT, key)
            found = await obstore.get_async(self._bucket, key, options={"range": (0, 1)})
            await found.bytes_async()
            return found.meta["size"]

        try:
            return await self._requests.until_done(attempt, Kind.READ)
        except FailedError as problem:
            if problem.outcome is Outcome.PAST_END:
                return 0
            raise _not_read(key, problem) from problem

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`. Goes on after a failure behind the last object that it saw."""
        listing = self._listing(self._bucket, prefix, self._meter)

        async def attempt(_: Allow) -> list[ObjectInfo]:
            return await listing.next_page()

        while not listing.is_at_end:
            try:
                page = await self._requests.until_done(attempt, Kind.READ)
            except FailedError as problem:
                raise _refused(problem) from problem
            for info in page:
                yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            _check(key)
        distinct = list(dict.fromkeys(keys))
        size = _DELETE_BATCH if self._deletes_in_bulk else 1
        for start in range(0, len(distinct), size):
            try:
                await self._delete(distinct[start : start + size])
            except StoreUnavailableError as problem:
                if start:
                    text = f"deleted only {start} of {len(distinct)} objects: {problem}"
                    raise StoreIndeterminateError(text) from problem
                raise

    async def close(self) -> None:
        """See `ObjectStore`. The library's connections end with its store."""
        if self._multipart is not None:
            await self._multipart.close()
        # Its threads may still be leaving Python after handing over their results. Python does not wait for them
        # at its exit, and a thread that enters it again then crashes the process.
        await asyncio.sleep(_SETTLE_SEC)

    async def _read(self, key: str, start: int, length: int) -> obstore.Bytes | bytes:
        """One range of at least one byte, in memory of the library's."""

        async def attempt(_: Allow) -> obstore.Bytes | bytes:
            self._meter.sent(Operation.GET_OBJECT, key)
            found = await obstore.get_range_async(self._bucket, key, start=start, length=length)
            self._meter.received(Operation.GET_OBJECT, key, len(found))
            return found

        try:
            return await self._requests.until_done(attempt, Kind.READ, min(length, _MOST_EXPECTED_BYTES))
        except FailedError as problem:
            if problem.outcome is Outcome.PAST_END:
                return b""
            raise _not_read(key, problem) from problem

    async def _was_created(self, key: str, payload: Payload) -> bool:
        """After a connection that broke: False when there is no object yet, or none can be seen.

        A server that knows from the request's head that the key is taken may say so and hang up before it has
        the body. Who still sends then never sees that answer, and would not however often it tried again.
        """
        self._meter.sent(Operation.GET_OBJECT, key)
        try:
            if await payload.lies_under(self._bucket, key):
                return True
        except LIBRARY_ERRORS:
            return False
        raise ObjectExistsError(key)

    async def _delete(self, keys: Sequence[str]) -> None:
        operation = Operation.DELETE_OBJECTS if self._deletes_in_bulk else Operation.DELETE_OBJECT

        async def attempt(_: Allow) -> None:
            self._meter.sent(operation, "")
            await obstore.delete_async(self._bucket, keys)

        try:
            await self._requests.until_done(attempt, Kind.WRITE)
        except FailedError as problem:
            if problem.outcome is not Outcome.NOT_FOUND or self._deletes_in_bulk:
                raise _refused(problem) from problem


def _check(key: str) -> None:
    problem = object_key_problem(key)
    if problem is not None:
        raise ValueError(problem)


def _check_range(key: str, start: int, length: int) -> None:
    _check(key)
    if start < 0 or length < 0:
        raise ValueError(f"a range of {length} bytes at {start} is not legal: neither may be negative")


def _not_read(key: str, problem: FailedError) -> StoreError:
    return ObjectNotFoundError(key) if problem.outcome is Outcome.NOT_FOUND else _refused(problem)


def _refused(problem: FailedError) -> StoreRefusedError:
    """An answer that makes no sense to what was asked, such as 416 to a put: not from the store that is meant."""
    return StoreRefusedError(f"{problem}: check KAFSCALE_S3_ENDPOINT")


def _fill(targets: Sequence[memoryview], data: memoryview) -> Sequence[memoryview]:
    """Copy to the beginning of the targets; returns what is left of them."""
    rest = list(targets)
    while data:
        target = rest.pop(0)
        count = min(len(target), len(data))
        target[:count] = data[:count]
        data = data[count:]
        if count < len(target):
            rest.insert(0, target[count:])
    return rest
