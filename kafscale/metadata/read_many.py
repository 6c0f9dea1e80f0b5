"""Several keys of the metadata store as of one moment, in one round trip."""

from collections.abc import Sequence

from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore


async def read_many(store: MetadataStore, keys: Sequence[str]) -> dict[str, KeyValue]:
    """The entries of `keys`, at most `max_operations` of them; absent keys are skipped.

    A transaction without operations, whose compares fail unless every key is absent, returns their values.
    Raises as `MetadataStore.get`.
    """
    result = await store.transact([Compare(key, ABSENT) for key in keys], [])
    return {found.key: found for found in result.found if found is not None}
