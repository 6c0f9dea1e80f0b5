"""The metadata store of a simulated cluster: one for all, and how each broker sees it over its link."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from kafscale.errors import StoreUnavailableError
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import (
    Changes,
    Compare,
    KeyValue,
    Operation,
    Put,
    Snapshot,
    TransactionResult,
)
from tests.sim.links import Link

Result = TypeVar("Result")

NOBODY = "the store"
"""Who changes what belongs to a lease that has ended."""


def at_once(call: Coroutine[Any, Any, Result]) -> Result:
    """The result of a call that only lets others run before it acts."""
    try:
        while True:
            call.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result


class CommitObserver(Protocol):
    """Who looks at every change before it is made."""

    def committing(self, origin: str, before: KeyValue | None, after: KeyValue | None, key: str) -> None:
        """`origin` changes a key; None: there is no such key."""


class SimulatedMetadata(MemoryStore):
    """A store that shows every change to an observer, and to streams instead of watches."""

    def __init__(self, observer: CommitObserver) -> None:
        super().__init__()
        self.streams: list[WatchStream] = []
        self.shared_records = 0
        self.partly_failed = 0
        self._observer = observer
        self._origin = NOBODY

    def transact_as(
        self, origin: str, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """A transaction of a broker's, at once."""
        self._origin = origin
        try:
            result = at_once(self.transact(compares, operations))
        finally:
            self._origin = NOBODY
        if len(compares) == len(operations) > 1 and all(
            isinstance(one, Put) and one.key.startswith(keys.PARTITIONS) for one in operations
        ):
            self._count_shared(compares, result)
        return result

    def _count_shared(self, compares: Sequence[Compare], result: TransactionResult) -> None:
        """Of transactions that several records share: what was written, and what failed only in part."""
        if result.succeeded:
            self.shared_records += len(compares)
        elif any(
            found is not None and found.mod_revision == compare.mod_revision
            for compare, found in zip(compares, result.found, strict=True)
        ):
            self.partly_failed += 1

    def now(self, key: str) -> KeyValue | None:
        """The key's value."""
        return self._state.keyspace.get(key)

    def everything(self, prefix: str) -> Snapshot:
        """The entries under the prefix."""
        return self._state.keyspace.range(prefix)

    def _commit(self) -> None:
        staged = self._state.staged
        for changes in staged:
            for change in changes.puts_and_deletes:
                after = change if isinstance(change, KeyValue) else None
                self._observer.committing(self._origin, self.now(change.key), after, change.key)
        super()._commit()
        for changes in staged:
            for stream in self.streams:
                stream.push(changes)


class WatchStream:
    """One watch's changes, in order; it is slow, it breaks off, and it begins again with a snapshot."""

    def __init__(
        self, store: SimulatedMetadata, link: Link, prefix: str, wants: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._link = link
        self._prefix = prefix
        self._wants = wants
        self._arrived: deque[Snapshot | Changes | Exception] = deque()
        self._woken: asyncio.Future[None] | None = None
        self._last_arrival_sec = 0.0
        self._generation = 0
        self._missed = False
        self._send(self._snapshot())
        store.streams.append(self)

    def _snapshot(self) -> Snapshot:
        snapshot = self._store.everything(self._prefix)
        return replace(snapshot, items=tuple(item for item in snapshot.items if self._wants(item.key)))

    def push(self, changes: Changes) -> None:
        """The store has committed this."""
        if self._missed:
            return
        wanted = tuple(change for change in changes.puts_and_deletes if self._wants(change.key))
        if not wanted:
            return
        rng = self._link.rng
        if self._link.is_cut or rng.random() < self._link.conditions.break_rate:
            self._break_off(heals_in=rng.random() * 2)
            return
        self._send(Changes(puts_and_deletes=wanted, revision=changes.revision))

    def _break_off(self, heals_in: float) -> None:
        """Messages in flight may be lost, and changes are not reported until the store notices."""
        if self._link.rng.random() < 0.5:
            self._generation += 1
        self._missed = True
        self._link.later(heals_in, self._begin_anew)

    def _begin_anew(self) -> None:
        if self._link.is_cut:
            self._link.later(0.5, self._begin_anew)
            return
        self._missed = False
        self._generation += 1
        if self._link.rng.random() < 0.5:
            self._send(self._snapshot())
        else:
            self._missed = True  # Whoever reads must begin a new watch.
            self._send(StoreUnavailableError(f"the watch of {self._prefix} broke"))

    def _send(self, event: Snapshot | Changes | Exception) -> None:
        now_sec = asyncio.get_running_loop().time()
        arrival_sec = max(self._last_arrival_sec + 1e-6, now_sec + self._link.delay())
        self._last_arrival_sec = arrival_sec
        self._link.later(arrival_sec - now_sec, self._arrive, self._generation, event)

    def _arrive(self, generation: int, event: Snapshot | Changes | Exception) -> None:
        if generation == self._generation:
            self._arrived.append(event)
            if self._woken is not None and not self._woken.done():
                self._woken.set_result(None)

    async def next(self) -> Snapshot | Changes:
        """The next changes; those that wait together are passed on together. Raises `StoreUnavailableError`."""
        while not self._arrived:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        event = self._arrived.popleft()
        if isinstance(event, Exception):
            raise event
        while isinstance(event, Changes) and self._arrived and isinstance(self._arrived[0], Changes):
            following = self._arrived.popleft()
            assert isinstance(following, Changes)
            event = Changes(
                puts_and_deletes=(*event.puts_and_deletes, *following.puts_and_deletes),
                revision=following.revision,
            )
        return event

    def close(self) -> None:
        """Nobody reads it any more."""
        if self in self._store.streams:
            self._store.streams.remove(self)


class LinkedMetadata:
    """A `MetadataStore` at the other end of a link."""

    def __init__(self, store: SimulatedMetadata, link: Link, origin: str) -> None:
        self._store = store
        self._link = link
        self._origin = origin
        self._streams: list[WatchStream] = []

    @property
    def max_operations(self) -> int:
        """See `MetadataStore`."""
        return self._store.max_operations

    async def get(self, key: str) -> KeyValue | None:
        """See `MetadataStore`."""
        return await self._link.call(f"get {key}", lambda: self._store.now(key))

    async def range(self, prefix: str) -> Snapshot:
        """See `MetadataStore`."""
        return await self._link.call(f"range {prefix}", lambda: self._store.everything(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """See `MetadataStore`."""
        what = ", ".join(
            f"{'put' if isinstance(operation, Put) else 'delete'} {operation.key}" for operation in operations
        )
        return await self._link.call(
            what, lambda: self._store.transact_as(self._origin, compares, operations), is_slow=True
        )

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore`."""
        return self._watch(prefix, lambda key: key.startswith(prefix))

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore`."""
        return self._watch(key, key.__eq__)

    async def _watch(
        self, prefix: str, wants: Callable[[str], bool]
    ) -> AsyncGenerator[Snapshot | Changes, None]:
        await self._link.call(f"watch {prefix}", lambda: None)
        stream = WatchStream(self._store, self._link, prefix, wants)
        self._streams.append(stream)
        try:
            while True:
                yield await stream.next()
        finally:
            stream.close()
            self._streams.remove(stream)

    async def grant_lease(self, ttl_sec: int) -> int:
        """See `MetadataStore`."""
        return await self._link.call("grant a lease", lambda: at_once(self._store.grant_lease(ttl_sec)))

    async def renew_lease(self, lease: int) -> bool:
        """See `MetadataStore`."""
        return await self._link.call(
            f"renew lease {lease}", lambda: at_once(self._store.renew_lease(lease)), is_slow=True
        )

    async def revoke_lease(self, lease: int) -> None:
        """See `MetadataStore`."""
        await self._link.call(f"revoke lease {lease}", lambda: at_once(self._store.revoke_lease(lease)))

    async def close(self) -> None:
        """The store is everybody's."""

    def end(self) -> None:
        """The process is gone, and its watches with it."""
        for stream in self._streams:
            stream.close()
