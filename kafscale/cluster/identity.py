"""The cluster that a broker belongs to, and whether its two stores agree: nothing is written before they do."""

from collections.abc import AsyncGenerator

from kafscale.cluster.cluster_record import ensure_cluster_id, read_cluster_id
from kafscale.cluster.marker import claim_marker, read_marker
from kafscale.errors import CorruptDataError, StartupError
from kafscale.formats.journal_keys import journals_prefix
from kafscale.formats.object_keys import namespace_prefix
from kafscale.formats.partition_record import decode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore


async def establish_cluster(metadata: MetadataStore, objects: ObjectStore, namespace: str) -> str:
    """The cluster's id; two stores that are new become one cluster.

    A metadata store that is empty beside an object store that is not has been lost, or is not the right one:
    a broker that started from nothing would write over what is there. An object store that is empty beside a
    metadata store that knows of records is not the right one either: a broker that claimed it would take them
    for lost. Raises `StartupError` for both and for stores of two clusters, `CorruptDataError`, `StoreError`.
    """
    if await read_cluster_id(metadata) is None:
        owner = await _owner(objects, namespace)
        # Another broker may have begun the cluster meanwhile; then both stores have its id.
        if owner is not None and await read_cluster_id(metadata) is None:
            raise StartupError(
                f"the metadata store is empty, but namespace {namespace!r} of the object store {owner}: point "
                "to the right metadata store, or rebuild it with `kafscale recover` (--backup newest uses a snapshot)"
            )
    cluster_id = await ensure_cluster_id(metadata)
    if await read_marker(objects, namespace) is None:
        await _check_records_are_there(metadata, objects, namespace)
    marked = await claim_marker(objects, namespace, cluster_id)
    if marked != cluster_id:
        raise StartupError(
            f"the metadata store belongs to cluster {cluster_id}, and namespace {namespace!r} of the object "
            f"store to cluster {marked}: set KAFSCALE_S3_NAMESPACE or the metadata store to the right one"
        )
    return cluster_id


async def _check_records_are_there(metadata: MetadataStore, objects: ObjectStore, namespace: str) -> None:
    """Of a namespace that no cluster has claimed. Raises `StartupError`."""
    for found in (await metadata.range(keys.PARTITIONS)).items:
        try:
            record = decode_partition_record(found.key, found.value)
        except CorruptDataError:
            break  # It may have named records.
        if record.log_start_offset < record.log_end_offset:
            break
    else:
        return  # nothing is at stake: a first start that ended here, for one
    if not await _holds_anything(objects, namespace):
        raise StartupError(
            f"namespace {namespace!r} of the object store is empty, but the metadata store knows of records in it "
            f"({found.key} for one): set KAFSCALE_S3_BUCKET, KAFSCALE_S3_ENDPOINT or KAFSCALE_S3_NAMESPACE to where "
            "they are"
        )


async def _owner(objects: ObjectStore, namespace: str) -> str | None:
    """Whose the namespace is, as the end of a sentence about it; None when nothing is there."""
    marked = await read_marker(objects, namespace)
    if marked is not None:
        return f"belongs to cluster {marked}"
    return "holds segments" if await _holds_anything(objects, namespace) else None


async def _holds_anything(objects: ObjectStore, namespace: str) -> bool:
    for prefix in (namespace_prefix(namespace), journals_prefix(namespace)):
        listing = objects.list(prefix)
        try:
            async for _ in listing:
                return True
        finally:
            if isinstance(listing, AsyncGenerator):
                await listing.aclose()
    return False
