"""The object that says which cluster a namespace of the object store belongs to.

Stored format: docs/format/cluster-marker.md. The metadata store knows the id as well; the marker shows a broker
whose metadata store is another one, or is gone, that it must not write here.
"""

import asyncio
import logging
from dataclasses import dataclass

from kafscale.errors import (
    CorruptDataError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreIndeterminateError,
)
from kafscale.formats.object_keys import cluster_marker_key
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.objects.object_store import ObjectReader, ObjectStore

_log = logging.getLogger(__name__)


VERSION = 2
"""Since there are journals: a rebuild by a release that does not know them would leave out what lies there."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker's content. `journal_bucket`: where journals lie beside the namespace's own bucket, if anywhere."""

    cluster_id: str
    journal_bucket: str | None = None


def encode_marker(cluster_id: str, journal_bucket: str | None = None) -> bytes:
    """The object's bytes."""
    fields = {"cluster_id": cluster_id}
    if journal_bucket is not None:
        fields["journal_bucket"] = journal_bucket
    return encode_fields(fields, VERSION)


def decode_marker(name: str, data: bytes) -> Marker:
    """The content. `name` says which object in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    fields = decode_fields(name, data, VERSION)
    cluster_id, journal_bucket = fields.get("cluster_id"), fields.get("journal_bucket")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise CorruptDataError(name, f"'cluster_id' is {cluster_id!r}, not text")
    if journal_bucket is not None and not (isinstance(journal_bucket, str) and journal_bucket):
        raise CorruptDataError(name, f"'journal_bucket' is {journal_bucket!r}, not text")
    return Marker(cluster_id, journal_bucket)


async def read_marker(objects: ObjectReader, namespace: str) -> str | None:
    """The id of the cluster that the namespace belongs to, None when no cluster has claimed it.

    Raises `CorruptDataError`, `UnknownFormatVersionError`, `StoreError`.
    """
    marker = await find_marker(objects, namespace)
    return None if marker is None else marker.cluster_id


async def find_marker(objects: ObjectReader, namespace: str) -> Marker | None:
    """The marker, None when no cluster has claimed the namespace. Raises as `read_marker`."""
    key = cluster_marker_key(namespace)
    try:
        return decode_marker(key, await objects.get(key))
    except ObjectNotFoundError:
        return None


async def name_journal_bucket(objects: ObjectStore, namespace: str, journal_bucket: str | None) -> None:
    """Write into the marker of a claimed namespace where its journals lie. May be repeated. Raises `StoreError`."""
    marker = await find_marker(objects, namespace)
    if marker is not None and marker.journal_bucket != journal_bucket:
        await objects.put(cluster_marker_key(namespace), [encode_marker(marker.cluster_id, journal_bucket)])


async def claim_marker(
    objects: ObjectStore, namespace: str, cluster_id: str, *, retry_delay_sec: float = 0.2
) -> str:
    """Claim the namespace for the cluster unless another has; returns the id that it belongs to from now on.

    The marker of an earlier release is replaced by that of this one, with the same id: no journal is written before.
    Raises as `read_marker` does; not for an unknown outcome, which is read back.
    """
    key = cluster_marker_key(namespace)
    while True:
        try:
            await objects.put_if_absent(key, [encode_marker(cluster_id)])
        except ObjectExistsError:
            pass
        except StoreIndeterminateError as problem:
            _log.warning("reading the cluster's marker, its creation has an unknown outcome: %s", problem)
        else:
            return cluster_id
        found = await find_marker(objects, namespace)
        if found is not None:
            await _renew(objects, key, found)
            return found.cluster_id
        await asyncio.sleep(retry_delay_sec)


async def _renew(objects: ObjectStore, key: str, marker: Marker) -> None:
    """Write the marker as this release does, unless it is so. May be repeated."""
    newest = encode_marker(marker.cluster_id, marker.journal_bucket)
    if await objects.get(key) != newest:
        await objects.put(key, [newest])
