"""The object store as the broker sees it: immutable objects under keys, created at most once."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafscale.protocol.types import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing. `modified_ms`: Unix milliseconds."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectReader(Protocol):
    """The reads of single objects; what they raise is what `ObjectStore`'s methods do."""

    async def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectNotFoundError`."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes `start` to `start + length` of the object, fewer where it ends earlier.

        Raises `ObjectNotFoundError`.
        """

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """The same, to the beginning of the targets, one after the other; returns how many bytes there were.

        The targets are writable and have room for `length` bytes; the rest of them may change, too. A caller
        that is cancelled goes on only once nothing is written there any more. Raises `ObjectNotFoundError`.
        """


class ListingReader(ObjectReader, Protocol):
    """Reads and listings, for processes that only look at a store."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key starts with `prefix`, in ascending order of their keys' UTF-8 bytes."""


class ObjectStore(ListingReader, Protocol):
    """The object store as every backend implements it; `tests/contract/test_object_store.py` is the contract.

    Every method raises `StoreUnavailableError` when it is known that nothing was done and
    `StoreIndeterminateError` when that is not known. An object is visible whole or not at all.
    """

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """Create the object from the joined parts, durable on return. The parts are not changed or kept.

        Raises `ObjectExistsError` when the key is taken; what lies there stays as it is. Of any number of
        concurrent creators exactly one succeeds.
        """

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """The same for an object of exactly `size_bytes`, which is never held whole: it is made of the chunks.

        A chunk need be valid only until the next one is asked for; the iterator is the caller's to close, and
        is not asked at all where the key is seen to be taken. Nothing is created when it raises, which the
        caller gets to see as it is, when it gives more or fewer bytes or `size_bytes` is above
        `max_streamed_bytes`, which are `ValueError`s, nor when the caller is cancelled before the last chunk
        was taken. Raises `ObjectExistsError` as well.
        """

    @property
    def max_streamed_bytes(self) -> int:
        """The size of the largest object that can be streamed."""

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Create or replace the object, durable on return. Never used for a `.kfs`."""

    async def size_bytes(self, key: str) -> int:
        """The object's size. Raises `ObjectNotFoundError`."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove the objects; a key without an object is no error."""

    async def close(self) -> None:
        """Give back what the backend holds. Nothing may be called afterwards."""
