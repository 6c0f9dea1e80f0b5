"""The metadata store as the broker sees it, after etcd: a revisioned map, transactions, leases, watches."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

NO_LEASE = 0
ABSENT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A key as stored. `mod_revision`: the store's revision at the key's last change."""

    key: str
    value: bytes
    mod_revision: int
    lease: int = NO_LEASE


@dataclass(frozen=True, slots=True)
class Compare:
    """True when the key's last change was at `mod_revision`; `ABSENT` means that there is no such key."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set the key and what it is bound to: a lease other than `NO_LEASE` removes it when the lease ends.

    A later put or delete of the key unbinds it from that lease.
    """

    key: str
    value: bytes
    lease: int = NO_LEASE


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key; no error when it is not there."""

    key: str


Operation = Put | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """The result of a transaction: whether every compare was true, and the revision of its operations.

    `revision` is the store's revision after the transaction: the `mod_revision` of each key it put. A
    transaction that changes nothing (no operations, or deletes of absent keys) makes no new revision.
    `found` holds, when a compare failed, what each compare's key held (in their order); else it is empty.
    """

    succeeded: bool
    revision: int
    found: tuple[KeyValue | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Every key under a prefix, ascending by key, as of one revision."""

    items: tuple[KeyValue, ...]
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one or more transactions under a watched prefix, in order of revision.

    A transaction is never split over two `Changes`. `revision` is that of the newest transaction in it.
    """

    puts_and_deletes: tuple[KeyValue | Delete, ...]
    revision: int


class MetadataReader(Protocol):
    """The reads, which every backend also gives to processes that only look.

    They are linearizable and show only what is durable. Both raise `StoreUnavailableError` and
    `StoreIndeterminateError` as `MetadataStore`'s methods do.
    """

    async def get(self, key: str) -> KeyValue | None:
        """The key as it is now, None when it is not there."""

    async def range(self, prefix: str) -> Snapshot:
        """Everything under the prefix."""


class MetadataStore(MetadataReader, Protocol):
    """The interface of every backend; `tests/contract/test_metadata_store.py` is the contract.

    Revisions only grow, by one or more a transaction; others may use them up, too, so nothing but their order
    means anything. Keys are not empty and sort by code point (the order of their UTF-8).

    Reads are linearizable and show only what is durable. Every method raises `StoreUnavailableError` when it
    is known that nothing was done and `StoreIndeterminateError` when that is not known: the caller reads back
    before it decides.
    """

    @property
    def max_operations(self) -> int:
        """How many compares, and how many operations, one transaction may hold."""

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """Apply all operations, durable on return, if all compares hold; otherwise change nothing.

        Raises `ValueError` for a transaction larger than `max_operations` or that names a key twice among
        its operations, `LeaseEndedError` (nothing done) when the compares hold and a put names a lease that
        has ended.
        """

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """First a `Snapshot` of the prefix, then every change to it, none left out, none twice.

        The watch begins when the iterator is first asked for something. After a break that the backend
        cannot bridge (a watcher too slow for the backlog that is kept for it is one) another `Snapshot`
        follows: what is not in it is gone. A change may reach the watcher before or after its own writer is
        answered. `aclose`, or the cancellation of the task that waits for the next step, gives everything
        back. The watch ends when the store is closed.
        """

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """The same for one key: each `Snapshot` holds it or nothing."""

    async def grant_lease(self, ttl_sec: int) -> int:
        """A new lease, which ends `ttl_sec` (at least 1) or a little more after its last renewal.

        Its keys go with it, in one transaction, which watchers see. A backend may lengthen the time.
        """

    async def renew_lease(self, lease: int) -> bool:
        """Renew; False when the lease has ended already or never was."""

    async def revoke_lease(self, lease: int) -> None:
        """End the lease and remove its keys; no error when it has ended already."""

    async def close(self) -> None:
        """Give back what the backend holds. Nothing may be called afterwards."""


async def read_many(store: MetadataStore, keys: Sequence[str]) -> dict[str, KeyValue]:
    """The entries of `keys` as of one moment, at most `max_operations` of them; absent keys are skipped.

    A transaction without operations, whose compares fail unless every key is absent, returns their values.
    Raises as `MetadataStore.get`.
    """
    result = await store.transact([Compare(key, ABSENT) for key in keys], [])
    return {found.key: found for found in result.found if found is not None}
