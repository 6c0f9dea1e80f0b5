"""Opens the stores that the settings name: the only place that knows every backend."""

import contextlib
import time
from pathlib import Path

from kafscale.errors import StartupError
from kafscale.metadata.store import MetadataReader, MetadataStore
from kafscale.ops.metrics import Metrics
from kafscale.settings import Settings
from kafscale.storage.object_store import ObjectReader, ObjectStore
from kafscale.storage.reading.replica_reads import ReplicaReads

# The backends are imported where they are opened: a broker with embedded stores loads no client of another.


async def open_stores(
    settings: Settings, stack: contextlib.AsyncExitStack
) -> tuple[MetadataStore, ObjectStore]:
    """The metadata store and the object store; `stack` closes both.

    Stores over a network need not be there yet: their calls tell. Raises `StartupError`, `SettingError`.
    """
    metadata = await _open_metadata(settings)
    stack.push_async_callback(metadata.close)
    objects = _open_objects(settings)
    stack.push_async_callback(objects.close)
    return metadata, objects


async def open_for_reading(
    settings: Settings, stack: contextlib.AsyncExitStack
) -> tuple[MetadataReader, ObjectReader]:
    """What running brokers keep, for processes that only look at it; `stack` closes both.

    Nothing is written, and no folder is made. Embedded stores can be looked into while a broker uses them. With
    a replica of the bucket, objects are read from there first. Raises `StartupError`, among others when the
    data folder holds no metadata file, and `SettingError`.
    """
    metadata: MetadataReader
    if settings.etcd_endpoints is not None:
        store = await _open_metadata(settings)
        stack.push_async_callback(store.close)
        metadata = store
    else:
        from kafscale.metadata.sqlite.reader import SqliteReader

        reader = await SqliteReader.open(_metadata_file(settings))
        stack.push_async_callback(reader.close)
        metadata = reader
    return metadata, await _open_objects_for_reading(settings, stack)


def open_objects_for_reading(settings: Settings, stack: contextlib.AsyncExitStack) -> ObjectReader:
    """The object store alone, without a replica of it, for processes that only look at it; `stack` closes it.

    Nothing is written, and no folder is made. Raises `SettingError`.
    """
    if settings.s3_bucket is None:
        from kafscale.storage.local.reader import LocalReader

        local = LocalReader(_objects_folder(settings))
        stack.push_async_callback(local.close)
        return local
    primary = open_bucket_alone(settings)
    stack.push_async_callback(primary.close)
    return primary


def open_bucket_alone(settings: Settings) -> ObjectStore:
    """The bucket that the settings name, without its replica: for tools that say what it holds.

    Raises `SettingError`.
    """
    from kafscale.storage.bucket.config import open_bucket

    return open_bucket(settings)


async def _open_metadata(settings: Settings) -> MetadataStore:
    if settings.etcd_endpoints is not None:
        from kafscale.metadata.etcd.config import EtcdConfig
        from kafscale.metadata.etcd.store import EtcdStore

        return await EtcdStore.open(EtcdConfig.from_settings(settings))
    from kafscale.metadata.sqlite.store import SqliteStore

    _make_data_folder(settings)
    return await SqliteStore.open(_metadata_file(settings), fsync=settings.local_fsync)


def _metadata_file(settings: Settings) -> Path:
    return settings.data_dir / "metadata.db"


def open_replica(settings: Settings, stack: contextlib.AsyncExitStack) -> ObjectReader | None:
    """The replica of the object store that segments are read from first, if there is one.

    `stack` closes it. Raises `SettingError`.
    """
    if settings.s3_read_bucket is None:
        return None
    from kafscale.storage.bucket import config

    replica = config.open_replica(settings)
    stack.push_async_callback(replica.close)
    return replica


def _open_objects(settings: Settings) -> ObjectStore:
    if settings.s3_bucket is not None:
        from kafscale.storage.bucket.config import open_bucket

        return open_bucket(settings)
    from kafscale.storage.local.store import LocalStore

    _make_data_folder(settings)
    return LocalStore(_objects_folder(settings), fsync=settings.local_fsync)


def _objects_folder(settings: Settings) -> Path:
    return settings.data_dir / "objects"


async def _open_objects_for_reading(settings: Settings, stack: contextlib.AsyncExitStack) -> ObjectReader:
    primary = open_objects_for_reading(settings, stack)
    replica = open_replica(settings, stack)
    if replica is None:
        return primary
    reads = ReplicaReads(replica, primary, Metrics(), lambda: time.monotonic_ns() // 1_000_000)
    stack.push_async_callback(reads.close)
    return reads


def _make_data_folder(settings: Settings) -> None:
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StartupError(
            f"cannot use the data folder {settings.data_dir} ({problem.strerror}): "
            "create it, or set KAFSCALE_DATA_DIR to a folder that can be written"
        ) from problem
