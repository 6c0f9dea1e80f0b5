"""Where a topic is read from: a data folder, a bucket with or without a metadata store, or what settings say."""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Protocol

from kafscale.broker.stores import (
    METADATA_FILE,
    journal_place,
    open_for_reading,
    open_objects_for_reading,
    whereabouts,
)
from kafscale.cluster.cluster_record import read_cluster_id
from kafscale.cluster.journal_place import check_journal_place
from kafscale.cluster.marker import find_marker
from kafscale.errors import SettingError, StartupError
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.bounds import ReadOptionError
from kafscale.settings.broker import PREFIX, Settings, load_settings, unknown_settings
from kafscale.settings.journal import JournalSettings
from kafscale.settings.rows import row_of
from kafscale.settings.stores import StoreSettings

BUCKET_SCHEMES: Final = ("s3", "gs", "az")

# The environment's other settings are a broker's; one that is not legal is no matter of a reader's.
_STORE_VARIABLES: Final = frozenset(
    row_of(field).variable for table in (StoreSettings, JournalSettings) for field in fields(table)
)
_NAMESPACE: Final = "KAFSCALE_S3_NAMESPACE"
_ETCD: Final = "KAFSCALE_ETCD_ENDPOINTS"


class ReadSource(Protocol):
    """The stores of a read. A `StoreOpener`, for one read after another."""

    @property
    def settings(self) -> Settings:
        """The settings of the stores."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader: ...

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader: ...


@dataclass(frozen=True, slots=True)
class StoresSource:
    """The stores as brokers use them: the metadata store says what is published."""

    settings: Settings

    @property
    def place(self) -> str:
        """See `ReadSource`."""
        return " and ".join(whereabouts(self.settings))

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        """See `ReadSource`."""
        # Not a replica: only the primary could tell which topic its objects are of.
        return open_objects_for_reading(self.settings, stack)

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        """See `ReadSource`. Raises `StartupError` if the two stores are not of one cluster."""
        # Objects are opened once more here: a store that is not used costs nothing.
        metadata, objects = await open_for_reading(self.settings, stack)
        await _check_same_cluster(self.settings, metadata, objects)
        return metadata


async def _check_same_cluster(settings: Settings, metadata: MetadataReader, objects: ListingReader) -> None:
    namespace = settings.s3_namespace
    records, keys = whereabouts(settings)
    cluster_id = await read_cluster_id(metadata)
    if cluster_id is None:
        raise StartupError(f"the metadata store ({keys}) is empty: no broker has used it yet")
    marker = await find_marker(objects, namespace)
    if marker is None:
        raise StartupError(
            f"namespace {namespace!r} of the object store ({records}) is no cluster's, and the metadata store "
            f"({keys}) is that of cluster {cluster_id}: name the right bucket and namespace"
        )
    if marker.cluster_id != cluster_id:
        raise StartupError(
            f"the metadata store ({keys}) belongs to cluster {cluster_id}, and namespace {namespace!r} of the object "
            f"store ({records}) to cluster {marker.cluster_id}: name the stores of one cluster"
        )
    await check_journal_place(objects, namespace, journal_place(settings))


def settings_of_source(
    source: str | os.PathLike[str] | None, options: Mapping[str, str], environment: Mapping[str, str]
) -> Settings:
    """The settings that a read of `source` has: see docs/read-topics.md.

    `options`: settings by their names, which override the environment. Raises `ReadOptionError`, `SettingError`.
    """
    _check_options(options)
    found = {name: value for name, value in environment.items() if name in _STORE_VARIABLES}
    if source is None:
        return _absolute(load_settings({**found, **options}))
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    if not text.strip():
        raise ReadOptionError(
            f"source={source!r} is not legal: it must be a folder, or s3://bucket/namespace"
        )
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _folder_settings(Path(text), found, options)
    if scheme not in BUCKET_SCHEMES:
        legal = ", ".join(f"{one}://bucket/namespace" for one in BUCKET_SCHEMES)
        raise ReadOptionError(f"source={text!r} is not legal: it must be a folder, or one of {legal}")
    bucket, _, namespace = rest.rstrip("/").partition("/")
    chosen = {"KAFSCALE_S3_BUCKET": f"{scheme}://{bucket}"}
    if namespace:
        chosen[_NAMESPACE] = namespace
    _check_not_twice(text, chosen, options)
    try:
        return _absolute(load_settings({**found, **chosen, **options}))
    except SettingError as problem:
        raise ReadOptionError(f"source={text!r}: {problem}") from problem


def _folder_settings(folder: Path, found: Mapping[str, str], options: Mapping[str, str]) -> Settings:
    """Of embedded stores. The environment may name a cluster's besides."""
    chosen = {"KAFSCALE_DATA_DIR": str(folder)}
    _check_not_twice(str(folder), chosen, options)
    if _NAMESPACE in found:
        chosen[_NAMESPACE] = found[_NAMESPACE]
    if not folder.is_dir():
        reason = "is no folder" if folder.exists() else "is not there"
        raise StartupError(
            f"the data folder {folder.absolute()} {reason}: name the KAFSCALE_DATA_DIR of a broker"
        )
    below = sorted(path.parent.name for path in folder.glob(f"*/{METADATA_FILE}"))
    if below and not (folder / METADATA_FILE).exists():
        raise StartupError(
            f"the folder {folder.absolute()} has no broker's data, and {below[0]} in it has: name that one"
        )
    return _absolute(load_settings({**chosen, **options}))


def _check_options(options: Mapping[str, str]) -> None:
    unknown = unknown_settings(dict.fromkeys(options, ""))
    unknown += [f"{name} is not a setting" for name in options if not name.startswith(PREFIX)]
    if unknown:
        raise ReadOptionError(f"settings: {unknown[0]}")
    wrong = [name for name, value in options.items() if not isinstance(value, str)]
    if wrong:
        raise ReadOptionError(f"settings: the value of {wrong[0]} must be text, as in the environment")


def _check_not_twice(source: str, chosen: Mapping[str, str], options: Mapping[str, str]) -> None:
    both = sorted(chosen.keys() & options.keys())
    if both:
        raise ReadOptionError(f"source={source!r} says what {both[0]} is: leave that out of the settings")


def _absolute(settings: Settings) -> Settings:
    return replace(settings, data_dir=Path(settings.data_dir).absolute())


def has_metadata_store(settings: Settings, source: str | os.PathLike[str] | None) -> bool:
    """False for a bucket that is named without etcd: then the bucket alone says what is published."""
    return settings.etcd_endpoints is not None or settings.s3_bucket is None or source is None
