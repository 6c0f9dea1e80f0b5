"""The object that says which cluster a namespace of the object store belongs to.

Stored format: docs/format/cluster-marker.md. The metadata store knows the id as well; the marker shows a broker
whose metadata store is another one, or is gone, that it must not write here.
"""

import asyncio
import logging

from kafscale.errors import (
    CorruptDataError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreIndeterminateError,
)
from kafscale.formats.object_keys import cluster_marker_key
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.objects.object_store import ObjectStore

_log = logging.getLogger(__name__)


def encode_marker(cluster_id: str) -> bytes:
    """The object's bytes."""
    return encode_fields({"cluster_id": cluster_id})


def decode_marker(name: str, data: bytes) -> str:
    """The cluster id. `name` says which object in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    cluster_id = decode_fields(name, data).get("cluster_id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise CorruptDataError(name, f"'cluster_id' is {cluster_id!r}, not text")
    return cluster_id


async def read_marker(objects: ObjectStore, namespace: str) -> str | None:
    """The id of the cluster that the namespace belongs to, None when no cluster has claimed it.

    Raises `CorruptDataError`, `UnknownFormatVersionError`, `StoreError`.
    """
    key = cluster_marker_key(namespace)
    try:
        return decode_marker(key, await objects.get(key))
    except ObjectNotFoundError:
        return None


async def claim_marker(
    objects: ObjectStore, namespace: str, cluster_id: str, *, retry_delay_sec: float = 0.2
) -> str:
    """Claim the namespace for the cluster unless another has; returns the id that it belongs to from now on.

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
        found = await read_marker(objects, namespace)
        if found is not None:
            return found
        await asyncio.sleep(retry_delay_sec)
