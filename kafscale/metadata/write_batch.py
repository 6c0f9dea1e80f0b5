"""Decides which conditional writes share a store transaction, and what its result means for each of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.store import ABSENT, Compare, KeyValue, Operation, Put, TransactionResult

MAX_TRANSACTION_BYTES: Final = 1024 * 1024
"""Keys and values of one store transaction: by default etcd takes requests of up to 1.5 MiB."""

# Besides its value an operation costs its key, below a prefix that is not known here, and a few fields around it.
_OVERHEAD_BYTES = 256


@dataclass(frozen=True, slots=True)
class Write:
    """The operations, if all compares hold. No key is named twice among the compares, nor among the operations."""

    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]

    @property
    def request_bytes(self) -> int:
        """An upper estimate of what it adds to the size of a request. A compare is read where it fails."""
        return request_bytes(self.operations) + sum(_key_bytes(one.key) for one in self.compares)


def request_bytes(operations: Sequence[Operation]) -> int:
    """An upper estimate of what the operations add to a request."""
    return sum(_key_bytes(one.key) + (len(one.value) if isinstance(one, Put) else 0) for one in operations)


def _key_bytes(key: str) -> int:
    return _OVERHEAD_BYTES + 2 * len(key.encode())


class WriteBatch:
    """Writes that share one transaction, in their order. It names no key twice."""

    def __init__(self, max_operations: int, max_bytes: int) -> None:
        """`max_operations`: also of the compares."""
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._compares: set[Compare] = set()
        self._compared: set[str] = set()
        self._changed: set[str] = set()
        self._size_bytes = 0
        self._count = 0

    def takes(self, write: Write) -> bool:
        """Add the write, unless there is no room for it, or it is not independent of those before.

        The first one is always taken: what is too large by itself is for the store to refuse.
        """
        size_bytes = write.request_bytes
        if self._count and not (self._has_room(write, size_bytes) and self._is_independent(write)):
            return False
        self._count += 1
        self._compares.update(write.compares)
        self._compared.update(one.key for one in write.compares)
        self._changed.update(one.key for one in write.operations)
        self._size_bytes += size_bytes
        return True

    def _has_room(self, write: Write, size_bytes: int) -> bool:
        new_compares = sum(one not in self._compares for one in write.compares)
        return (
            len(self._changed) + len(write.operations) <= self._max_operations
            and len(self._compares) + new_compares <= self._max_operations
            and self._size_bytes + size_bytes <= self._max_bytes
        )

    def _is_independent(self, write: Write) -> bool:
        """True if neither changes what the other compares or changes."""
        return all(
            one.key not in self._changed and one.key not in self._compared for one in write.operations
        ) and all(one.key not in self._changed for one in write.compares)


def joined_compares(writes: Sequence[Write]) -> list[Compare]:
    """Those of a transaction with all these writes. Several may have the same one, such as the owner of a shard."""
    return list(dict.fromkeys(compare for one in writes for compare in one.compares))


def answers(
    writes: Sequence[Write], compares: Sequence[Compare], result: TransactionResult
) -> list[TransactionResult | None]:
    """The result that each write would have had alone, or None where it is unknown: send that one again.

    It is unknown where its own compares held and another's did not. Raises `StoreUnavailableError` if the store says
    that a compare failed, and none can have.
    """
    if result.succeeded:
        return [result] * len(writes)
    found = dict(zip(compares, result.found, strict=True))
    failed = {compare for compare, item in found.items() if _revision(item) != compare.mod_revision}
    if not failed:
        raise StoreUnavailableError(
            f"the metadata store refused a transaction of {len(compares)} compares, and every one holds"
        )
    return [
        None
        if failed.isdisjoint(one.compares)
        else TransactionResult(
            succeeded=False, revision=result.revision, found=tuple(found[compare] for compare in one.compares)
        )
        for one in writes
    ]


def _revision(item: KeyValue | None) -> int:
    return ABSENT if item is None else item.mod_revision
