"""Takes snapshots of the metadata store, finds them again, reads them, and removes the old ones."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafscale.cluster.cluster_record import decode_cluster_id
from kafscale.errors import CorruptDataError, KafscaleError, ObjectExistsError
from kafscale.formats.snapshot_file import (
    SnapshotHeader,
    decode_snapshot,
    encode_snapshot,
    lasting,
)
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ObjectStore
from kafscale.tools.backup.snapshot_keys import StoredSnapshot, expired, folder, key_of, snapshot_of

logger = logging.getLogger(__name__)


class NothingToBackUpError(KafscaleError):
    """The metadata store belongs to no cluster yet, or to none any more: an empty copy would be no backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A snapshot that was taken and read back. `sha256`: of the whole object, in hexadecimal."""

    stored: StoredSnapshot
    header: SnapshotHeader
    sha256: str


class Snapshots:
    """The snapshots of one namespace, under `prefix` in a bucket of their own. `now_ms`: Unix milliseconds.

    Clusters whose records lie in different buckets may have the same namespace: `cluster_id` distinguishes theirs.
    """

    def __init__(self, objects: ObjectStore, prefix: str, namespace: str, now_ms: Callable[[], int]) -> None:
        self._objects = objects
        self._prefix = prefix
        self._namespace = namespace
        self._now_ms = now_ms

    @property
    def folder(self) -> str:
        """The prefix of the snapshots' keys."""
        return folder(self._prefix, self._namespace)

    async def take(self, metadata: MetadataReader) -> Taken:
        """Copy everything that lasts, as of one revision; it is read back before this returns.

        Raises `NothingToBackUpError`, `StoreError`, `CorruptDataError` (what was read back is not what was
        written).
        """
        created_ms = self._now_ms()
        found = await metadata.range("")
        items = lasting(found.items)
        # By what is copied: a store that loses its data while this runs is not empty in one place only.
        cluster_id = next((decode_cluster_id(item.value) for item in items if item.key == keys.CLUSTER), None)
        if cluster_id is None:
            raise NothingToBackUpError(
                "the metadata store holds no cluster: either no broker has started yet, or it was lost "
                "(`kafscale recover` rebuilds it)"
            )
        header = SnapshotHeader(
            cluster_id=cluster_id,
            namespace=self._namespace,
            revision=found.revision,
            created_ms=created_ms,
            keys=len(items),
        )
        # In a thread: hundreds of megabytes must not hold up a process that takes it beside other work.
        parts = await asyncio.to_thread(encode_snapshot, header, items)
        key = key_of(self._prefix, self._namespace, created_ms, found.revision, cluster_id)
        try:
            await self._objects.put_if_absent(key, parts)
        except ObjectExistsError:
            # Taken twice within a second, nothing having changed.
            logger.info("this snapshot is there already", extra={"key": key})
        return await self._read_back(key, header)

    async def _read_back(self, key: str, header: SnapshotHeader) -> Taken:
        data = await self._objects.get(key)
        there, _ = await asyncio.to_thread(decode_snapshot, key, data)
        if (there.cluster_id, there.revision, there.keys) != (
            header.cluster_id,
            header.revision,
            header.keys,
        ):
            raise CorruptDataError(key, f"it shows {there}, not {header}")
        stored = snapshot_of(key, len(data))
        assert stored is not None
        return Taken(stored=stored, header=there, sha256=hashlib.sha256(data).hexdigest())

    async def find(self, cluster_id: str | None = None) -> list[StoredSnapshot]:
        """All that there are of the cluster, None: of any, oldest first. Raises `StoreError`."""
        found = []
        async for info in self._objects.list(self.folder):
            stored = snapshot_of(info.key, info.size_bytes)
            # What lies deeper is of another namespace, whose folder begins as this one.
            if stored is None or "/" in info.key.removeprefix(self.folder):
                continue
            if cluster_id in (None, stored.cluster_id):
                found.append(stored)
        return sorted(found, key=_age)

    async def read(self, key: str) -> tuple[SnapshotHeader, dict[str, bytes]]:
        """The content of one of them. Raises `ObjectNotFoundError`, `StoreError`, `CorruptDataError`."""
        return await asyncio.to_thread(decode_snapshot, key, await self._objects.get(key))

    async def remove_expired(self, taken: Taken, *, keep: int, keep_for_ms: int) -> Sequence[StoredSnapshot]:
        """Remove those of its cluster that are neither among the newest nor young, and not the one that was taken.

        Returns them. Raises `StoreError`.
        """
        gone = expired(
            await self.find(taken.header.cluster_id),
            taken=taken.stored,
            keep=keep,
            keep_for_ms=keep_for_ms,
            now_ms=self._now_ms(),
        )
        if gone:
            await self._objects.delete([one.key for one in gone])
        return gone


def _age(stored: StoredSnapshot) -> tuple[int, int]:
    return stored.created_ms, stored.revision
