"""Opens the stores that the settings name: the only place that knows every backend."""

import contextlib

from kafscale.errors import StartupError
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.sqlite_store import SqliteStore
from kafscale.metadata.store import MetadataStore
from kafscale.ops.metrics import Metrics
from kafscale.settings import Settings
from kafscale.storage.local_store import LocalStore
from kafscale.storage.object_store import ObjectStore


async def open_stores(
    settings: Settings, metrics: Metrics, stack: contextlib.AsyncExitStack
) -> tuple[MetadataStore, ObjectStore]:
    """The metadata store, its calls counted, and the object store; `stack` closes both.

    Raises `StartupError`.
    """
    metadata = await _open_metadata(settings, stack)
    objects = await _open_objects(settings, stack)
    return MeasuredMetadataStore(metadata, metrics), objects


async def _open_metadata(settings: Settings, stack: contextlib.AsyncExitStack) -> MetadataStore:
    _make_data_folder(settings)
    metadata = await SqliteStore.open(settings.data_dir / "metadata.db", fsync=settings.local_fsync)
    stack.push_async_callback(metadata.close)
    return metadata


async def _open_objects(settings: Settings, stack: contextlib.AsyncExitStack) -> ObjectStore:
    _make_data_folder(settings)
    objects = LocalStore(settings.data_dir / "objects", fsync=settings.local_fsync)
    stack.push_async_callback(objects.close)
    return objects


def _make_data_folder(settings: Settings) -> None:
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StartupError(
            f"cannot use the data folder {settings.data_dir} ({problem.strerror}): "
            "create it, or set KAFSCALE_DATA_DIR to a folder that can be written"
        ) from problem
