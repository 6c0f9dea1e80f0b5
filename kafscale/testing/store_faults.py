"""Faults of stores, ordered by a test: outages, single failures, slow answers, and answers that are lost.

To bind them, put a wrapper in front of the store, below everything that a broker does with it:

    store, metadata_store = StoreFaults("object store"), StoreFaults("metadata store")
    BasicParts(..., FaultyMetadataStore(metadata, metadata_store), FaultyObjectStore(objects, store), ...)

Several brokers of a cluster use the same wrapper, or each its own, to cut one of them off.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, TypeVar

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.testing.fault import Fault, Faults
from kafscale.testing.store_wrappers import StoreOperation, WrappedMetadataStore, WrappedObjectStore

T = TypeVar("T")

_WRITES: Final = frozenset({StoreOperation.WRITE, StoreOperation.DELETE})
_ALL: Final = frozenset(StoreOperation)
_LONGEST_SEC: Final = 24 * 3600.0


class _Outcome(Enum):
    UNAVAILABLE = "the call is not made"
    ANSWER_LOST = "the call is made, and its answer is lost"
    SLOW = "the call is made later"


class StoreFault(Fault):
    """One order, from `StoreFaults`, for calls of a store."""

    def __init__(
        self,
        store: str,
        times: int | None,
        operations: frozenset[StoreOperation],
        outcome: _Outcome,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(f"a fault of the {store}", times)
        self.operations = operations
        self.outcome = outcome
        self.seconds = seconds


class StoreFaults(Faults[StoreFault]):
    """The faults that are ordered for one store. `name`: for messages, such as `object store`."""

    def __init__(self, name: str = "object store") -> None:
        super().__init__()
        self.name = name

    def outage(self) -> StoreFault:
        """Let no call reach the store: it fails as against an unreachable one, until the block ends.

        What producers send meanwhile is not acknowledged; once the store is back, brokers store it, or producers
        have sent it again. Watches of a metadata store go on: nothing changes meanwhile but leases that end.
        """
        return self._order(None, _ALL, _Outcome.UNAVAILABLE)

    def fail(self, operation: str | StoreOperation, times: int | None = 1) -> StoreFault:
        """Let the next calls of a kind fail without being made: `read`, `write`, `delete`, `list` or `lease`.

        Raises `ValueError` for another operation.
        """
        return self._order(times, _operations(operation), _Outcome.UNAVAILABLE)

    def slow(
        self, seconds: float, operation: str | StoreOperation | None = None, times: int | None = None
    ) -> StoreFault:
        """Let the calls of a kind, or all, begin so much later, by the broker's clock, until it is removed.

        Raises `ValueError`.
        """
        if not 0 <= seconds <= _LONGEST_SEC:
            raise ValueError(f"seconds={seconds} is not legal: from 0 to {_LONGEST_SEC:.0f}")
        operations = _ALL if operation is None else _operations(operation)
        return self._order(times, operations, _Outcome.SLOW, seconds)

    def lose_answers(self, times: int | None = 1) -> StoreFault:
        """Let the next writes and deletions be made, and their callers not know it: as after a timeout."""
        return self._order(times, _WRITES, _Outcome.ANSWER_LOST)

    def _order(
        self,
        times: int | None,
        operations: frozenset[StoreOperation],
        outcome: _Outcome,
        seconds: float = 0.0,
    ) -> StoreFault:
        rule = StoreFault(self.name, times, operations, outcome, seconds)
        self._add(rule)
        return rule

    async def call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        """Make a call, with the faults that are in force.

        Raises `StoreUnavailableError`, `StoreIndeterminateError`, and what the call raises.
        """
        slow = self._taken(operation, _Outcome.SLOW)
        if slow is not None:
            await asyncio.sleep(slow.seconds)
        if self._taken(operation, _Outcome.UNAVAILABLE) is not None:
            raise StoreUnavailableError(f"the {self.name} does not answer, as a test ordered")
        lost = self._taken(operation, _Outcome.ANSWER_LOST)
        result = await action()
        if lost is not None:
            raise StoreIndeterminateError(f"the answer of the {self.name} is lost, as a test ordered")
        return result

    def _taken(self, operation: StoreOperation, outcome: _Outcome) -> StoreFault | None:
        for rule in self.rules:
            if rule.outcome is outcome and operation in rule.operations and rule.take():
                return rule
        return None


class FaultyObjectStore(WrappedObjectStore):
    """An `ObjectStore` with the faults that a test orders."""

    def __init__(self, inner: ObjectStore, faults: StoreFaults) -> None:
        super().__init__(inner)
        self._faults = faults

    async def _call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        return await self._faults.call(operation, action)


class FaultyMetadataStore(WrappedMetadataStore):
    """A `MetadataStore` with the faults that a test orders."""

    def __init__(self, inner: MetadataStore, faults: StoreFaults) -> None:
        super().__init__(inner)
        self._faults = faults

    async def _call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        return await self._faults.call(operation, action)


def _operations(given: str | StoreOperation) -> frozenset[StoreOperation]:
    try:
        return frozenset({StoreOperation(given)})
    except ValueError:
        legal = ", ".join(StoreOperation)
        raise ValueError(f"operation={given!r} is not legal; legal are {legal}") from None
