"""The embedded metadata store for processes that only read it, with or without a running broker."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kafscale.errors import StartupError, StoreError, StoreUnavailableError
from kafscale.metadata.sqlite.snapshot_read import SELECT_KEY, SELECT_RANGE, read_snapshot
from kafscale.metadata.store import KeyValue, Snapshot

PATIENCE_SEC: Final = 5.0

_LAST_CODE_POINT: Final = 0x10FFFF
_BEFORE_SURROGATES: Final = 0xD7FF
_AFTER_SURROGATES: Final = 0xE000
# SQLite sorts every text before any blob.
_BEHIND_EVERYTHING: Final = b""


class SqliteReader:
    """A `MetadataReader` of a metadata file. Use `open`; everything belongs to the event loop that called it.

    Each call shows one revision: the newest at some moment during the call. Keys that are bound to a lease
    are shown while a process owns the file, as a running broker does: leases end with it. Nothing is written or
    created, and an owner never waits for a reader of another process. The file is open during a call only.
    """

    def __init__(self, path: Path, patience_sec: float) -> None:
        self._path = path.absolute()
        self._patience_sec = patience_sec
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kafscale-metadata-reader")
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, patience_sec: float = PATIENCE_SEC) -> "SqliteReader":
        """A reader of the file, which must exist. A call retries for `patience_sec` while the file is unreadable.

        Raises `StartupError` if the file is missing, empty, damaged, of another program or of an unknown version,
        or if it cannot be read now. Later problems are raised by the calls: `StoreRefusedError` if waiting does
        not help, otherwise `StoreUnavailableError`.
        """
        reader = cls(path, patience_sec)
        try:
            await reader.get("cluster")
        except StoreError as problem:
            await reader.close()
            raise StartupError(str(problem)) from problem
        except BaseException:
            await reader.close()
            raise
        return reader

    async def get(self, key: str) -> KeyValue | None:
        """See `MetadataReader.get`."""
        items = (await self._read(SELECT_KEY, (key,))).items if key else ()
        return items[0] if items else None

    async def range(self, prefix: str) -> Snapshot:
        """See `MetadataReader.range`."""
        return await self._read(SELECT_RANGE, (prefix, _behind(prefix)))

    async def close(self) -> None:
        """Close the reader; later calls raise `StoreUnavailableError`. Idempotent."""
        self._closed = True
        await asyncio.to_thread(self._executor.shutdown)

    async def _read(self, statement: str, parameters: Sequence[object]) -> Snapshot:
        if self._closed:
            raise StoreUnavailableError(f"the reader of metadata file {self._path} is closed")
        rows, revision = await asyncio.wrap_future(
            self._executor.submit(read_snapshot, self._path, statement, parameters, self._patience_sec)
        )
        items = (
            KeyValue(key=key, value=value, mod_revision=mod_revision, lease=lease)
            for key, value, mod_revision, lease in rows
        )
        return Snapshot(items=tuple(items), revision=revision)


def _behind(prefix: str) -> str | bytes:
    """The least that SQLite sorts behind every key with the prefix."""
    for position in reversed(range(len(prefix))):
        code_point = ord(prefix[position])
        if code_point < _LAST_CODE_POINT:
            following = _AFTER_SURROGATES if code_point == _BEFORE_SURROGATES else code_point + 1
            return prefix[:position] + chr(following)
    return _BEHIND_EVERYTHING
