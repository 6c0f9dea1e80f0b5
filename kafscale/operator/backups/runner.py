"""Takes one snapshot of a cluster's metadata store into its backup bucket, and deletes expired ones."""

import logging
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

from kafscale.errors import StoreError
from kafscale.operator.cluster_spec import Backups, ClusterSpec
from kafscale.operator.stores.metadata_access import SecretReader, open_metadata, open_objects
from kafscale.tools.backup.snapshots import Snapshots, Taken
from kafscale.tools.recovery.rebuild import patiently

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOutcome:
    """A snapshot that was taken. `removed`: expired ones deleted. `problem`: why deletion failed, or None."""

    taken: Taken
    removed: int = 0
    problem: str | None = None


class BackupRunner:
    """Takes snapshots of any cluster; keeps no connection between them. `now_ms`: Unix milliseconds.

    `own_role_buckets`: see `open_objects`.
    """

    def __init__(
        self, secrets: SecretReader, now_ms: Callable[[], int], own_role_buckets: Collection[str] = ()
    ) -> None:
        self._secrets = secrets
        self._now_ms = now_ms
        self._own_role_buckets = own_role_buckets

    async def take(self, cluster: ClusterSpec, backups: Backups) -> BackupOutcome:
        """Takes a snapshot, reads it back, then deletes expired ones.

        Raises `NothingToBackUpError`, `StoreError`, `CorruptDataError`, `StartupError`, `SecretError`, `KubeError`,
        `SpecError`.
        """
        async with AsyncExitStack() as stack:
            metadata = await open_metadata(cluster, self._secrets, stack)
            objects = await open_objects(
                backups.bucket, cluster.namespace, self._secrets, stack, self._own_role_buckets
            )
            snapshots = Snapshots(objects, backups.prefix, cluster.objects_namespace, self._now_ms)
            taken = await patiently(lambda: snapshots.take(metadata))
            try:
                gone = await patiently(
                    lambda: snapshots.remove_expired(
                        taken, keep=backups.keep, keep_for_ms=backups.keep_for_ms
                    )
                )
            except StoreError as problem:
                return BackupOutcome(taken=taken, problem=str(problem))
        for one in gone:
            logger.info("removed an old snapshot", extra={"key": one.key})
        return BackupOutcome(taken=taken, removed=len(gone))
