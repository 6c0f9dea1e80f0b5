"""The decisions of an embedded metadata store: transactions and leases over a keyspace, staged, then committed.

Theory of operation. Every call decides at once, on top of what was staged before it, and stages its changes.
`staged` is what must become durable; then `commit` makes it the state, or `rollback` forgets it. So a backend
may decide many transactions, make them durable together and only then answer. A backend with nothing to make
durable commits after every call.

A lease lives until its end is committed, not until the clock passes its time: one that is due and is renewed
before `expire_leases` ran lives on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kafscale.errors import LeaseEndedError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.store import (
    ABSENT,
    NO_LEASE,
    Changes,
    Compare,
    Delete,
    KeyValue,
    Operation,
    Put,
    TransactionResult,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A live lease: how long a renewal lasts, and when it is due."""

    ttl_sec: int
    expires_at_sec: float


class StoreState:
    """A keyspace with its leases. `now` is seconds on any clock that never goes back."""

    def __init__(self, keyspace: Keyspace, *, first_lease: int = 1) -> None:
        self._keyspace = keyspace
        self._leases: dict[int, Lease] = {}
        self._next_lease = first_lease
        self._log: list[Changes] = []
        self._overlay: dict[str, KeyValue | None] = {}
        self._ended_leases: set[int] = set()

    @property
    def keyspace(self) -> Keyspace:
        """The committed entries."""
        return self._keyspace

    @property
    def revision(self) -> int:
        """The revision with everything that is staged."""
        return self._log[-1].revision if self._log else self._keyspace.revision

    @property
    def staged(self) -> tuple[Changes, ...]:
        """The changes that a commit would apply, one entry a transaction, in order of revision."""
        return tuple(self._log)

    def staged_keys(self) -> dict[str, KeyValue | None]:
        """The value of each changed key after a commit; None: the key would be absent."""
        return dict(self._overlay)

    def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TransactionResult:
        """Decide a transaction of a legal shape and stage it.

        Raises `LeaseEndedError`, nothing staged, when the compares hold and a put names a lease that is not
        live.
        """
        found = tuple(self._get(compare.key) for compare in compares)
        for compare, item in zip(compares, found, strict=True):
            if (ABSENT if item is None else item.mod_revision) != compare.mod_revision:
                return TransactionResult(succeeded=False, revision=self.revision, found=found)
        for operation in operations:
            if (
                isinstance(operation, Put)
                and operation.lease != NO_LEASE
                and not self._is_live(operation.lease)
            ):
                raise LeaseEndedError(operation.lease)
        self._stage(operations)
        return TransactionResult(succeeded=True, revision=self.revision)

    def grant_lease(self, ttl_sec: int, now: float) -> int:
        """A new lease. Not staged: it is live at once and no rollback takes it back."""
        lease = self._next_lease
        self._next_lease += 1
        self._leases[lease] = Lease(ttl_sec=ttl_sec, expires_at_sec=now + ttl_sec)
        return lease

    def renew_lease(self, lease: int, now: float) -> bool:
        """Renew a live lease, at once; False when it is not live."""
        if not self._is_live(lease):
            return False
        held = self._leases[lease]
        self._leases[lease] = replace(held, expires_at_sec=now + held.ttl_sec)
        return True

    def renew_every_lease(self, now: float) -> None:
        """Renew all: for when the store itself was away and no lease could be renewed, as a new etcd leader does."""
        for lease in tuple(self._leases):
            self.renew_lease(lease, now)

    def revoke_lease(self, lease: int) -> None:
        """Stage the end of the lease and of its keys, as one transaction; nothing if it is not live."""
        if not self._is_live(lease):
            return
        keys = {key for key in self._keyspace.keys_of_lease(lease) if self._is_bound(key, lease)}
        keys.update(key for key in self._overlay if self._is_bound(key, lease))
        self._ended_leases.add(lease)
        self._stage([Delete(key) for key in sorted(keys)])

    def expire_leases(self, now: float) -> None:
        """Stage the end of every lease that is due."""
        for lease, held in tuple(self._leases.items()):
            if held.expires_at_sec <= now:
                self.revoke_lease(lease)

    def next_expiry_sec(self) -> float | None:
        """When the next lease is due, None when there is none."""
        return min((held.expires_at_sec for held in self._leases.values()), default=None)

    def commit(self) -> tuple[Changes, ...]:
        """Make what is staged the state; returns it."""
        committed = self.staged
        for changes in committed:
            self._keyspace.apply(changes)
        for lease in self._ended_leases:
            del self._leases[lease]
        self.rollback()
        return committed

    def rollback(self) -> None:
        """Forget what is staged. Leases whose end was staged are live again."""
        self._log.clear()
        self._overlay.clear()
        self._ended_leases.clear()

    def _get(self, key: str) -> KeyValue | None:
        return self._overlay[key] if key in self._overlay else self._keyspace.get(key)

    def _is_live(self, lease: int) -> bool:
        return lease in self._leases and lease not in self._ended_leases

    def _is_bound(self, key: str, lease: int) -> bool:
        item = self._get(key)
        return item is not None and item.lease == lease

    def _stage(self, operations: Iterable[Operation]) -> None:
        revision = self.revision + 1
        changes: list[KeyValue | Delete] = []
        for operation in operations:
            if isinstance(operation, Put):
                item = KeyValue(
                    key=operation.key, value=operation.value, mod_revision=revision, lease=operation.lease
                )
                self._overlay[operation.key] = item
                changes.append(item)
            elif self._get(operation.key) is not None:
                self._overlay[operation.key] = None
                changes.append(operation)
        if changes:
            self._log.append(Changes(puts_and_deletes=tuple(changes), revision=revision))
