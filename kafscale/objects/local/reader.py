"""Reads and listings of a local folder: nothing is written there, and the folder need not be there."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from kafscale.errors import ObjectNotFoundError, StoreUnavailableError
from kafscale.formats.object_keys import object_key_problem
from kafscale.objects.local.entries import OPEN_FLAGS, check_folders, check_object
from kafscale.objects.local.files import read_exactly, read_into
from kafscale.objects.local.temporary import TEMPORARY_FOLDER
from kafscale.objects.object_store import ObjectInfo

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name in a folder: an object, or a folder when `info` is None."""

    key: str
    info: ObjectInfo | None


class LocalReader:
    """`ListingReader` on a folder. Every operation is one job on the reader's own threads."""

    def __init__(self, root: str | os.PathLike[str], *, threads: int = 8) -> None:
        self._root = os.path.abspath(root)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="local-store")

    async def get(self, key: str) -> bytes:
        """See `ObjectReader`."""
        return await self._run(self._read, key, self._path(key), 0, None)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectReader`."""
        if start < 0 or length < 0:
            raise ValueError(f"a range of {length} bytes at {start} is not legal: neither may be negative")
        return await self._run(self._read, key, self._path(key), start, length)

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """See `ObjectReader`."""
        return await self._run_to_its_end(self._read_into, key, self._path(key), start, length, targets)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`. A folder is read when the listing arrives at it, whole."""
        folder, slash, name_prefix = prefix.rpartition("/")
        if slash and key_problem(folder) is not None:
            return
        pending = [iter(await self._run(self._scan, folder, name_prefix))]
        while pending:
            entry = next(pending[-1], None)
            if entry is None:
                pending.pop()
            elif entry.info is None:
                pending.append(iter(await self._run(self._scan, entry.key, "")))
            else:
                yield entry.info

    async def close(self) -> None:
        """Waits for the reads in progress. Nothing may be called afterwards."""
        await asyncio.to_thread(self._executor.shutdown)

    def _path(self, key: str) -> str:
        problem = key_problem(key)
        if problem is not None:
            raise ValueError(problem)
        return os.path.join(self._root, key)

    async def _run(self, job: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.wrap_future(self._executor.submit(job, *arguments))

    async def _run_to_its_end(self, job: Callable[..., _Result], *arguments: object) -> _Result:
        """As `_run`, but a caller that is cancelled goes on only once nothing reads its buffers any more."""
        job_future = self._executor.submit(job, *arguments)
        future = asyncio.wrap_future(job_future)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not job_future.cancel():
                while not future.done():
                    with suppress(asyncio.CancelledError):  # The first one is raised below.
                        await asyncio.wait([future])
                future.exception()  # No waiter is left; asyncio wants it taken.
            raise

    def _read(self, key: str, path: str, start: int, length: int | None) -> bytes:
        with self._opened(key, path) as descriptor:
            available = max(os.fstat(descriptor).st_size - start, 0)
            return read_exactly(descriptor, start, available if length is None else min(length, available))

    def _read_into(self, key: str, path: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        with self._opened(key, path) as descriptor:
            return read_into(descriptor, start, length, targets)

    def _scan(self, folder: str, name_prefix: str) -> Sequence[_Entry]:
        """The entries of a folder whose names start with `name_prefix`, in the order of the keys' bytes."""
        found: dict[bytes, _Entry] = {}
        try:
            check_folders(self._root, f"{folder}/")
            with os.scandir(os.path.join(self._root, folder)) as entries:
                for entry in entries:
                    if not entry.name.startswith(name_prefix):
                        continue
                    key = f"{folder}/{entry.name}" if folder else entry.name
                    if key_problem(key) is not None:
                        continue  # A temporary file, or not put there by a store: no key leads to it.
                    if entry.is_dir(follow_symlinks=False):
                        # `/` takes part in the order of keys: "a-b" comes before "a/c".
                        found[os.fsencode(entry.name) + b"/"] = _Entry(key, None)
                        continue
                    with suppress(FileNotFoundError):  # Deleted since the folder was read.
                        status = entry.stat(follow_symlinks=False)
                        check_object(key, entry.path, status.st_mode)
                        found[os.fsencode(entry.name)] = _Entry(key, _object_info(key, status))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as problem:
            raise StoreUnavailableError(f"cannot list {folder!r}: {problem}") from problem
        return [found[name] for name in sorted(found)]

    @contextmanager
    def _opened(self, key: str, path: str) -> Iterator[int]:
        """The object's descriptor, for reading; errors in the block become the store's errors."""
        with store_errors(key):
            check_folders(self._root, key)
            try:
                descriptor = os.open(path, OPEN_FLAGS)
            except OSError:
                check_object(key, path, os.lstat(path).st_mode)  # A link, or a socket.
                raise
            try:
                check_object(key, path, os.fstat(descriptor).st_mode)
                yield descriptor
            finally:
                os.close(descriptor)


def key_problem(key: str) -> str | None:
    """Why the key is none that an object in a folder can have; None when it can."""
    if key.partition("/")[0] == TEMPORARY_FOLDER:
        return f"object key {key!r} lies in the folder store's own folder {TEMPORARY_FOLDER!r}"
    return object_key_problem(key)


@contextmanager
def store_errors(key: str) -> Iterator[None]:
    """Translate `OSError` of a read in the block to the store's errors."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise ObjectNotFoundError(key) from problem
    except OSError as problem:
        raise StoreUnavailableError(f"cannot read {key!r}: {problem}") from problem


def _object_info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)
