"""The object store on a local folder: an object is a file that is complete when it gets its name.

Decisions and measurements: docs/decisions/0004-local-folder-store.md.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from kafscale.errors import (
    ObjectExistsError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.memory.chunks import ExactChunks, check_streamed_size, collect
from kafscale.objects.local.entries import check_folders, check_object
from kafscale.objects.local.files import FileWriter, NewFile
from kafscale.objects.local.folders import Folders
from kafscale.objects.local.open_folders import OpenFolder, OpenFolders
from kafscale.objects.local.reader import LocalReader, store_errors
from kafscale.objects.local.temporary import open_root
from kafscale.protocol.types import Buffer
from kafscale.system import OPENS_FOLDERS, replace

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# The largest offset that a file has: Linux ends a write behind it with EFBIG or earlier with ENOSPC.
_MAX_FILE_BYTES = 2**63 - 1
# A streamed object up to here is collected in memory.
_COLLECTED_BYTES = 1024 * 1024


class LocalStore(LocalReader):
    """`ObjectStore` on a folder. Every operation is one job on the store's own threads.

    With `fsync` an object, its name and the folders on the way to it are on the disk when a put returns;
    without, a crash of the machine (not of the process) can lose them. The folder has to be on one file
    system that has hard links. A key cannot be an object and the folder of other objects at once.
    """

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = True, threads: int = 8) -> None:
        """Opens the folder, making it where it is missing. Blocks for a few milliseconds.

        Raises `StartupError` for a folder that cannot be used.
        """
        super().__init__(root, threads=threads)
        if fsync and not OPENS_FOLDERS:
            logger.warning(
                "this system cannot sync folders: a power loss may take the newest acknowledged records",
                extra={"folder": self._root},
            )
        self._temporary = open_root(self._root)
        self._files = FileWriter(fsync=fsync)
        self._files.probe_unnamed(self._temporary.path)
        self._folders = Folders(self._root, fsync=fsync)
        self._open_folders = OpenFolders()
        self._numbers = itertools.count()

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        await self._run_to_its_end(self._create, key, self._path(key), parts)

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """See `ObjectStore`."""
        path = self._path(key)
        check_streamed_size(key, size_bytes, self.max_streamed_bytes)
        exact = ExactChunks(key, chunks, size_bytes)
        if size_bytes <= _COLLECTED_BYTES:
            # One job for the threads instead of one for each chunk.
            await self.put_if_absent(key, [await collect(exact, size_bytes)])
            return
        temporary = self._new_temporary()
        file = self._files.begin(temporary)
        try:
            async for chunk in exact:
                await self._run_to_its_end(_append, key, file, chunk)
            await self._run_to_its_end(self._place, key, path, temporary, os.link, file.finish)
        finally:
            # Does happen, even where the caller is cancelled once more.
            await asyncio.shield(self._run(_abandon, file, temporary))

    @property
    def max_streamed_bytes(self) -> int:
        """See `ObjectStore`."""
        return _MAX_FILE_BYTES

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        await self._run_to_its_end(self._write, key, self._path(key), parts, replace)

    async def size_bytes(self, key: str) -> int:
        """See `ObjectStore`."""
        return await self._run(self._size_bytes, key, self._path(key))

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        await self._run(self._delete, [(key, self._path(key)) for key in keys])

    async def close(self) -> None:
        """See `ObjectStore`. Waits for the calls in progress."""
        await super().close()
        self._open_folders.close()
        await asyncio.to_thread(self._temporary.remove)

    def _create(self, key: str, path: str, parts: Sequence[Buffer]) -> None:
        """Put an object whose name may be taken: into a folder that is held open if possible."""
        folder_path, _, name = path.rpartition("/")
        folder = self._open_folders.find(folder_path)
        if folder is None or not self._create_in(folder, folder_path, name, key, parts):
            self._write(key, path, parts, os.link)
            with suppress(OSError):  # It was removed again.
                self._open_folders.remember(folder_path)

    def _create_in(
        self, folder: OpenFolder, folder_path: str, name: str, key: str, parts: Sequence[Buffer]
    ) -> bool:
        """False if nothing was done, and the long way is to be taken."""
        exists = False
        try:
            beginning = self._temporary.folders.next(folder_path)
            if not self._files.write_linked(beginning, folder.descriptor, name, parts):
                return False
        except FileExistsError as problem:
            if os.path.isdir(f"{folder_path}/{name}"):
                raise StoreUnavailableError(
                    f"cannot write {key!r}: {folder_path}/{name} is a folder"
                ) from problem
            exists = True
        except OSError as problem:
            self._temporary.folders.forget_missing()
            if folder.is_there:
                raise StoreUnavailableError(f"cannot write {key!r}: {problem}") from problem
            # It was removed this moment: ext4 says EPERM then, others ENOENT.
            self._open_folders.forget(folder_path)
            return False
        self._sync(key, lambda: self._folders.sync_open(folder.descriptor))
        if exists:
            raise ObjectExistsError(key)
        return True

    def _write(self, key: str, path: str, parts: Sequence[Buffer], place: Callable[[str, str], None]) -> None:
        temporary = self._new_temporary()
        self._place(key, path, temporary, place, lambda: self._files.write(temporary, parts))

    def _new_temporary(self) -> str:
        return os.path.join(self._temporary.path, str(next(self._numbers)))

    def _place(
        self,
        key: str,
        path: str,
        temporary: str,
        place: Callable[[str, str], None],
        finish: Callable[[], None],
    ) -> None:
        """Give the temporary file its name once `finish` has completed it. The temporary name is gone then."""
        exists = False
        try:
            check_folders(self._root, key)
            finish()
            self._folders.place(place, temporary, path)
        except FileExistsError as problem:
            if os.path.isdir(path):
                raise StoreUnavailableError(f"cannot write {key!r}: {path} is a folder") from problem
            exists = True
        except OSError as problem:
            raise StoreUnavailableError(f"cannot write {key!r}: {problem}") from problem
        finally:
            # What cannot be removed now is removed when the store is opened the next time.
            with suppress(OSError):
                os.unlink(temporary)
        self._sync(key, lambda: self._folders.sync(os.path.dirname(path)))
        if exists:
            raise ObjectExistsError(key)

    def _sync(self, key: str, sync: Callable[[], None]) -> None:
        """Also for an object that was there.

        Its writer may have died, or failed, between link and fsync, and the caller is about to rely on it.
        """
        try:
            sync()
        except OSError as problem:
            raise StoreIndeterminateError(
                f"cannot tell whether {key!r} would survive a crash: {problem}"
            ) from problem

    def _size_bytes(self, key: str, path: str) -> int:
        with store_errors(key):
            check_folders(self._root, key)
            status = os.lstat(path)
            check_object(key, path, status.st_mode)
            return status.st_size

    def _delete(self, objects: Sequence[tuple[str, str]]) -> None:
        folders: dict[str, None] = {}
        try:
            for key, _ in objects:
                check_folders(self._root, key)
            for _, path in objects:
                with suppress(FileNotFoundError, NotADirectoryError):
                    if os.path.islink(path) or not os.path.isdir(path):
                        os.unlink(path)
                        folders[os.path.dirname(path)] = None
            for folder in folders:
                self._folders.remove_if_empty(folder)
        except OSError as problem:
            if folders:
                raise StoreIndeterminateError(
                    f"deleted only some of {len(objects)} objects: {problem}"
                ) from problem
            raise StoreUnavailableError(f"cannot delete: {problem}") from problem


def _append(key: str, file: NewFile, chunk: memoryview) -> None:
    try:
        file.append(chunk)
    except OSError as problem:
        raise StoreUnavailableError(f"cannot write {key!r}: {problem}") from problem


def _abandon(file: NewFile, temporary: str) -> None:
    """After the object was created, or will not be: nothing of how it came is left."""
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        os.unlink(temporary)
