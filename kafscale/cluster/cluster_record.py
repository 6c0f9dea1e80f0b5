"""The cluster's id: made once, by whichever broker comes first."""

import asyncio
import logging
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable

from kafscale.errors import CorruptDataError, StoreIndeterminateError
from kafscale.formats.features import NEW_CLUSTER, encode_level
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, MetadataReader, MetadataStore, Put

_log = logging.getLogger(__name__)


def kafka_uuid_text(value: uuid.UUID) -> str:
    """The id as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def new_kafka_uuid(random_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> uuid.UUID:
    """A random id of the kind that Kafka makes.

    Its text never starts with a dash, which a command line would take for an option (`Uuid.randomUuid`).
    """
    while True:
        value = random_uuid()
        if not kafka_uuid_text(value).startswith("-"):
            return value


async def read_cluster_id(store: MetadataReader) -> str | None:
    """The id of the cluster that the store belongs to, None when it belongs to none yet.

    Raises `StoreUnavailableError`, `CorruptDataError`, `UnknownFormatVersionError`.
    """
    found = await store.get(keys.CLUSTER)
    return None if found is None else decode_cluster_id(found.value)


def decode_cluster_id(value: bytes) -> str:
    """The record under `keys.CLUSTER`. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    cluster_id = decode_fields(keys.CLUSTER, value).get("cluster_id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise CorruptDataError(keys.CLUSTER, f"'cluster_id' is {cluster_id!r}, not text")
    return cluster_id


async def ensure_cluster_id(
    store: MetadataStore,
    new_uuid: Callable[[], uuid.UUID] = new_kafka_uuid,
    *,
    retry_delay_sec: float = 0.2,
) -> str:
    """The id of the cluster that the store belongs to; a store without one gets one, and a new cluster's features.

    Raises `StoreUnavailableError`, `CorruptDataError`, `UnknownFormatVersionError`.
    """
    while True:
        cluster_id = await read_cluster_id(store)
        if cluster_id is not None:
            return cluster_id
        value = encode_fields({"cluster_id": kafka_uuid_text(new_uuid())})
        levels = [Put(keys.feature(name), encode_level(level)) for name, level in NEW_CLUSTER.items()]
        try:
            await store.transact([Compare(keys.CLUSTER, ABSENT)], [Put(keys.CLUSTER, value), *levels])
        except StoreIndeterminateError as problem:
            _log.warning("reading the cluster id again, its creation has an unknown outcome: %s", problem)
            await asyncio.sleep(retry_delay_sec)


async def adopt_cluster_id(store: MetadataStore, cluster_id: str, *, retry_delay_sec: float = 0.2) -> str:
    """Give a store without a cluster id this one; returns the id that the store has from now on.

    Raises as `ensure_cluster_id` does.
    """
    while True:
        found = await read_cluster_id(store)
        if found is not None:
            return found
        value = encode_fields({"cluster_id": cluster_id})
        try:
            await store.transact([Compare(keys.CLUSTER, ABSENT)], [Put(keys.CLUSTER, value)])
        except StoreIndeterminateError as problem:
            _log.warning("reading the cluster id again, its writing has an unknown outcome: %s", problem)
            await asyncio.sleep(retry_delay_sec)
