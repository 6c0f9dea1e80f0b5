"""One live cluster in memory, for operators of its topics and users."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.cluster.view import ClusterView
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.stores.same_cluster_store import SameClusterStore
from kafscale.settings.broker import Settings


class OneCluster:
    """Every cluster is the one of the test."""

    def __init__(self, live: LiveCluster) -> None:
        self.cluster = live
        self.problem: Exception | None = None

    @asynccontextmanager
    async def live(self, cluster: ClusterSpec) -> AsyncIterator[LiveCluster]:
        if self.problem is not None:
            raise self.problem
        yield self.cluster


async def live_cluster(store: MetadataStore, view: ClusterView | None = None) -> LiveCluster:
    """A cluster that has started. `view`: by default one that shows nothing."""
    cluster_id = await ensure_cluster_id(store)
    guarded = SameClusterStore(store, await cluster_revision(store))
    return LiveCluster(store=guarded, view=view or ClusterView(str(cluster_id)), settings=Settings())


async def cluster_revision(store: MetadataStore) -> int:
    """The revision of the cluster's id, which an operator's writes compare."""
    held = await store.get(keys.CLUSTER)
    assert held is not None
    return held.mod_revision
