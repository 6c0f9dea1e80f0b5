"""Which cluster a broker finds itself in, from what its two stores hold."""

from collections.abc import Awaitable, Callable

import pytest

from kafscale.errors import StartupError
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import KeyValue
from kafscale.storage.cluster_identity import establish_cluster
from tests.support.controlled_store import ControlledStore

NAMESPACE = "default"


class Overtaken(MemoryMetadata):
    """Something happens right after the first read."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def get(self, key: str) -> KeyValue | None:
        found = await super().get(key)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


async def test_two_new_stores_become_one_cluster() -> None:
    metadata, objects = MemoryMetadata(), ControlledStore()
    first = await establish_cluster(metadata, objects, NAMESPACE)
    assert await establish_cluster(metadata, objects, NAMESPACE) == first


async def test_a_broker_that_starts_while_another_one_makes_the_cluster_joins_it() -> None:
    objects = ControlledStore()
    ids = []

    async def another_broker_starts() -> None:
        ids.append(await establish_cluster(metadata, objects, NAMESPACE))

    metadata = Overtaken(another_broker_starts)
    assert await establish_cluster(metadata, objects, NAMESPACE) == ids[0]


@pytest.mark.parametrize("left", ["the marker", "segments"])
async def test_an_empty_metadata_store_beside_a_used_bucket_is_refused(left: str) -> None:
    objects = ControlledStore()
    if left == "segments":
        await objects.put_if_absent(f"{NAMESPACE}/topic/0/segment-{0:020d}.kfs", [b"x"])
    else:
        await establish_cluster(MemoryMetadata(), objects, NAMESPACE)
    with pytest.raises(StartupError, match="kafscale recover"):
        await establish_cluster(MemoryMetadata(), objects, NAMESPACE)


async def test_stores_of_two_clusters_are_refused() -> None:
    metadata, objects = MemoryMetadata(), ControlledStore()
    await establish_cluster(metadata, ControlledStore(), NAMESPACE)
    await establish_cluster(MemoryMetadata(), objects, NAMESPACE)
    with pytest.raises(StartupError, match="belongs to cluster"):
        await establish_cluster(metadata, objects, NAMESPACE)
