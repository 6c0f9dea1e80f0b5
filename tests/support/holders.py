"""Ends what brokers hold, as the end of their leases does, without their hearing of it."""

from kafscale.metadata.memory_store import MemoryStore


async def end_leases(store: MemoryStore, prefix: str) -> None:
    """End every lease to which a key under `prefix` is bound: whoever comes next may hold what they held.

    Past whatever a test makes of the store's calls.
    """
    snapshot = await MemoryStore.range(store, prefix)
    for lease in sorted({item.lease for item in snapshot.items if item.lease}):
        await MemoryStore.revoke_lease(store, lease)
