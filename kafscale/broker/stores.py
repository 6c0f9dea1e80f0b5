"""Opens the stores that the settings name: the only place that knows every backend."""

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale import clocks
from kafscale.cluster.exports import ExportHeldError, read_holder
from kafscale.cluster.journal_place import JournalPlace
from kafscale.errors import SettingError, StartupError, StoreError
from kafscale.extras import extra_needed
from kafscale.formats.export_records import ExportRecord
from kafscale.formats.journal_keys import journal_bucket_prefix
from kafscale.metadata.store import MetadataReader, MetadataStore
from kafscale.objects.hedging import PERCENT_AT_ONCE, USUAL_PERCENT, Hedge
from kafscale.objects.journal_bucket import JournalBucketStore, ReplicatedReader
from kafscale.objects.object_store import ListingReader, ObjectReader, ObjectStore
from kafscale.objects.replica_reads import ReplicaReads
from kafscale.objects.request_meter import RequestLog, RequestMeter
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import Prices
from kafscale.settings.broker import JournalBucketUse, Settings
from kafscale.settings.journal import is_directory_bucket
from kafscale.tools.backup.snapshots import Snapshots

METADATA_FILE: Final = "metadata.db"
_HOLDER_PATIENCE_SEC: Final = 0.5

# The backends are imported where they are opened: a broker with embedded stores loads no client of another, and
# needs none installed.


@dataclass(frozen=True, slots=True)
class RequestMeters:
    """The meters of requests to the bucket and to the journal bucket: one meter if they are the same bucket."""

    records: RequestMeter
    journals: RequestMeter
    namespace: str

    def shared(self, key: str, slices: Iterable[tuple[str, int]]) -> AbstractContextManager[None]:
        """`RequestMeter.shared`, for the bucket that the key lies in."""
        lies_with_journals = key.startswith(journal_bucket_prefix(self.namespace))
        return (self.journals if lies_with_journals else self.records).shared(key, slices)


async def open_stores(
    settings: Settings, stack: contextlib.AsyncExitStack, meters: RequestMeters | None = None
) -> tuple[MetadataStore, ObjectStore]:
    """The metadata store and the object store; `stack` closes both. `meters` note the requests to buckets.

    Stores over a network need not be reachable yet; until then calls fail. Raises `StartupError`, `SettingError`.
    """
    metadata = await open_metadata(settings, stack)
    objects = _open_objects(settings, meters)
    stack.push_async_callback(objects.close)
    return metadata, objects


async def open_metadata(settings: Settings, stack: contextlib.AsyncExitStack) -> MetadataStore:
    """The metadata store alone; `stack` closes it. Raises `StartupError`, `SettingError`."""
    metadata = await _open_metadata(settings)
    stack.push_async_callback(metadata.close)
    return metadata


async def open_for_reading(
    settings: Settings, stack: contextlib.AsyncExitStack
) -> tuple[MetadataReader, ListingReader]:
    """The stores of running brokers, for processes that only look at it; `stack` closes both.

    Nothing is written, and no folder is made. Embedded stores can be looked into while a broker uses them. With
    a replica of the bucket, objects are read from there first. Raises `StartupError`, among others when the
    data folder has no metadata file, and `SettingError`.
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


def open_objects_for_reading(settings: Settings, stack: contextlib.AsyncExitStack) -> ListingReader:
    """The object store alone, without a replica of it, for processes that only look at it; `stack` closes it.

    Nothing is written, and no folder is made. Raises `SettingError`.
    """
    if settings.s3_bucket is None:
        from kafscale.objects.local.reader import LocalReader

        local = LocalReader(_objects_folder(settings))
        stack.push_async_callback(local.close)
        return local
    primary = _open_buckets(settings, None)
    stack.push_async_callback(primary.close)
    return primary


async def open_export_store(
    settings: Settings, topic: str, stack: contextlib.AsyncExitStack
) -> MetadataStore:
    """The store that the exporter of a topic keeps its hold on it, and its progress, in; `stack` closes it.

    In a cluster that is etcd. The embedded metadata store has one owner, the broker, so there each topic has a
    small file of its own, whose owner is the exporter: only one can have it open. Raises `ExportHeldError` when
    another one has, and `StartupError`.
    """
    if settings.etcd_endpoints is not None:
        store = await _open_metadata(settings)
        stack.push_async_callback(store.close)
        return store
    from kafscale.metadata.sqlite.owner_lock import InUseError
    from kafscale.metadata.sqlite.store import SqliteStore

    path = _export_file(settings, topic)
    _make_folder(path.parent)
    try:
        own = await SqliteStore.open(path, fsync=settings.local_fsync)
    except InUseError as problem:
        raise ExportHeldError(topic, await _holder_in(path, topic)) from problem
    stack.push_async_callback(own.close)
    return own


def open_export_objects(settings: Settings, stack: contextlib.AsyncExitStack) -> ObjectStore:
    """Where exporters keep objects of their own; `stack` closes the store.

    In a cluster that is the bucket of the records. The embedded object store belongs to the broker, so there it is a
    folder beside those of the topics' exports, whose name no topic can have. Raises `SettingError`, `StartupError`.
    """
    if settings.s3_bucket is not None:
        objects: ObjectStore = open_bucket_alone(settings)
    else:
        from kafscale.objects.local.store import LocalStore

        folder = _exports_folder(settings) / "+objects"
        _make_folder(folder)
        objects = LocalStore(folder, fsync=settings.local_fsync)
    stack.push_async_callback(objects.close)
    return objects


async def open_exports_for_reading(
    settings: Settings, stack: contextlib.AsyncExitStack
) -> list[MetadataReader]:
    """Where exporters keep what is to be known of them, for processes that only look; `stack` closes all.

    Nothing is written, and no folder is made. Raises `StartupError`.
    """
    if settings.etcd_endpoints is not None:
        store = await _open_metadata(settings)
        stack.push_async_callback(store.close)
        return [store]
    from kafscale.metadata.sqlite.reader import SqliteReader

    readers: list[MetadataReader] = []
    for path in sorted(_exports_folder(settings).glob(f"*/{METADATA_FILE}")):
        reader = await SqliteReader.open(path)
        stack.push_async_callback(reader.close)
        readers.append(reader)
    return readers


async def _holder_in(path: Path, topic: str) -> ExportRecord | None:
    """The owner of the topic's export, by the file that another process owns; None when that is not in it (yet)."""
    from kafscale.metadata.sqlite.reader import SqliteReader

    async with contextlib.AsyncExitStack() as stack:
        try:
            reader = await SqliteReader.open(path, patience_sec=_HOLDER_PATIENCE_SEC)
            stack.push_async_callback(reader.close)
            return await read_holder(reader, topic)
        except (StartupError, StoreError):
            return None


def open_bucket_alone(settings: Settings) -> ObjectStore:
    """The bucket that the settings name, without its replica: for tools that report its contents.

    Raises `SettingError`.
    """
    with extra_needed("cluster", f"the bucket {settings.s3_bucket}"):
        from kafscale.objects.bucket.config import open_bucket

    return open_bucket(settings)


def whereabouts(settings: Settings) -> tuple[str, str]:
    """Where the records and the metadata are, as paths and URLs for people."""
    if settings.s3_bucket is None:
        records = str(_objects_folder(settings).absolute())
    else:
        records = f"{_bucket_url(settings.s3_bucket)}/{settings.s3_namespace}"
    if settings.journal_bucket is not None:
        records += f", journals in {_bucket_url(settings.journal_bucket)}"
    if settings.etcd_endpoints is None:
        return records, str(_metadata_file(settings).absolute())
    return records, f"etcd {','.join(settings.etcd_endpoints)}"


def backup_location(settings: Settings, key: str) -> str:
    """The path or the URL of a snapshot, by its key."""
    if settings.backup_bucket is None:
        return str((_backups_folder(settings) / key).absolute())
    return f"{_bucket_url(settings.backup_bucket)}/{key}"


def _bucket_url(bucket: str) -> str:
    return bucket if "://" in bucket else f"s3://{bucket}"


def open_backups(settings: Settings, stack: contextlib.AsyncExitStack) -> Snapshots:
    """The snapshots of the metadata store, where the settings say that they are; `stack` closes the store.

    Makes no request. Raises `SettingError`, `StartupError`.
    """
    objects: ObjectStore
    if settings.backup_bucket is not None or settings.s3_bucket is not None:
        bucket = settings.backup_bucket or settings.s3_bucket
        with extra_needed("cluster", f"the bucket of backups {bucket}"):
            from kafscale.objects.bucket.config import open_backup_bucket

        objects = open_backup_bucket(settings)
    else:
        from kafscale.objects.local.store import LocalStore

        _make_data_folder(settings)
        objects = LocalStore(_backups_folder(settings), fsync=settings.local_fsync)
    stack.push_async_callback(objects.close)
    return Snapshots(objects, settings.backup_prefix, settings.s3_namespace, clocks.now_ms)


async def _open_metadata(settings: Settings) -> MetadataStore:
    if settings.etcd_endpoints is not None:
        with extra_needed("cluster", f"KAFSCALE_ETCD_ENDPOINTS={','.join(settings.etcd_endpoints)}"):
            from kafscale.metadata.etcd.config import EtcdConfig
            from kafscale.metadata.etcd.store import EtcdStore

        return await EtcdStore.open(EtcdConfig.from_settings(settings))
    from kafscale.metadata.sqlite.store import SqliteStore

    _make_data_folder(settings)
    return await SqliteStore.open(_metadata_file(settings), fsync=settings.local_fsync)


def _metadata_file(settings: Settings) -> Path:
    return settings.data_dir / METADATA_FILE


def _backups_folder(settings: Settings) -> Path:
    return settings.data_dir / "backups"


def _exports_folder(settings: Settings) -> Path:
    return settings.data_dir / "exports"


def _export_file(settings: Settings, topic: str) -> Path:
    # A folder for each: a topic's name may be almost as long as that of a file may be.
    return _exports_folder(settings) / topic / METADATA_FILE


def open_replica(
    settings: Settings, stack: contextlib.AsyncExitStack, meter: RequestLog | None = None
) -> ObjectReader | None:
    """The replica of the object store that segments are read from first, if there is one.

    `stack` closes it, `meter` notes its requests. Raises `SettingError`.
    """
    if settings.s3_read_bucket is None:
        return None
    with extra_needed("cluster", f"KAFSCALE_S3_READ_BUCKET={settings.s3_read_bucket}"):
        from kafscale.objects.bucket import config

    replica = config.open_replica(settings, meter)
    stack.push_async_callback(replica.close)
    return replica


def request_meters(settings: Settings, metrics: Metrics) -> RequestMeters | None:
    """Count the requests to buckets and what they cost; None for a folder, which has none."""
    if settings.s3_bucket is None:
        return None
    namespace = settings.s3_namespace
    records = RequestMeter(metrics, Prices.from_settings(settings), namespace)
    if settings.journal_bucket is None:
        return RequestMeters(records, records, namespace)
    return RequestMeters(records, RequestMeter(metrics, Prices.of_journals(settings), namespace), namespace)


def journal_place(settings: Settings) -> JournalPlace:
    """Where journals lie by the settings."""
    begins_there = (
        settings.journal_bucket is not None and settings.journal_bucket_use is JournalBucketUse.WRITE
    )
    return JournalPlace(settings.journal_bucket, begins_there)


def open_hedge(settings: Settings) -> Hedge | None:
    """When a second request is sent beside a slow PUT of an entry; None for a folder: its disk would only do more."""
    percent = hedged_percent(settings)
    if settings.s3_bucket is None or percent == 0:
        return None
    return Hedge(percent / 100)


def hedged_percent(settings: Settings) -> int:
    """Of how many PUTs of small entries a second request is sent beside the first."""
    if settings.s3_hedged_puts_percent is not None:
        return settings.s3_hedged_puts_percent
    return PERCENT_AT_ONCE if settings.flush_interval_ms == 0 else USUAL_PERCENT


def _open_objects(settings: Settings, meters: RequestMeters | None) -> ObjectStore:
    if settings.s3_bucket is not None:
        return _open_buckets(settings, meters)
    from kafscale.objects.local.store import LocalStore

    _make_data_folder(settings)
    return LocalStore(_objects_folder(settings), fsync=settings.local_fsync)


def _open_buckets(settings: Settings, meters: RequestMeters | None) -> ObjectStore:
    """The bucket, and the one of the journals where there is one. Raises `SettingError`."""
    with extra_needed("cluster", f"KAFSCALE_S3_BUCKET={settings.s3_bucket}"):
        from kafscale.objects.bucket.config import open_bucket, open_journal_bucket

    if settings.s3_bucket is not None and is_directory_bucket(settings.s3_bucket):
        raise SettingError(
            f"KAFSCALE_S3_BUCKET={settings.s3_bucket} is not legal: it is a directory bucket, which one zone stores "
            "and which lists in no order; only KAFSCALE_JOURNAL_BUCKET may be one"
        )
    journals = None
    if settings.journal_bucket is not None:
        journals = open_journal_bucket(settings, meters.journals if meters else None)
    records = open_bucket(settings, meter=meters.records if meters else None)
    return JournalBucketStore(records, journals, settings.s3_namespace)


def _objects_folder(settings: Settings) -> Path:
    return settings.data_dir / "objects"


async def _open_objects_for_reading(settings: Settings, stack: contextlib.AsyncExitStack) -> ListingReader:
    primary = open_objects_for_reading(settings, stack)
    replica = open_replica(settings, stack)
    if replica is None:
        return primary
    reads = ReplicaReads(replica, primary, Metrics(), clocks.steady_ms)
    stack.push_async_callback(reads.close)
    return ReplicatedReader(reads, primary, settings.s3_namespace)


def _make_data_folder(settings: Settings) -> None:
    _make_folder(settings.data_dir)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise StartupError(
            f"cannot use the data folder {path} ({problem.strerror}): "
            "create it, or set KAFSCALE_DATA_DIR to a folder that can be written"
        ) from problem
