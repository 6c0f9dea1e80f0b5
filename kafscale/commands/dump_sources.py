"""Opens the targets of `kafscale dump`: a path, or the URL of a file or of an object in a bucket."""

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from kafscale.errors import KafscaleError, ObjectNotFoundError, StoreError
from kafscale.formats.object_keys import object_key_problem
from kafscale.objects.object_store import ObjectStore
from kafscale.settings.broker import load_settings
from kafscale.system import FILE_FLAGS, NO_WAIT, read_at
from kafscale.tools.dump.piece_reader import ByteSource

BUCKET_SCHEMES: Final = ("s3", "gs", "az")
FILE_SCHEME: Final = "file"

OnRead = Callable[[int], None]
T = TypeVar("T")


class SourceError(KafscaleError):
    """The file or object cannot be read; the message names it and says why. Nothing is known of its bytes."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")


class NoSuchSourceError(SourceError):
    """There is none of that name."""


class Sources:
    """Opens sources; files stay open up to `close_files`, stores, which a URL first asks for, to the block's end.

    `environment`: for the settings of the stores. `on_read` is called with the number of bytes of each read.
    """

    def __init__(self, environment: Mapping[str, str], on_read: OnRead) -> None:
        self._environment = environment
        self._on_read = on_read
        self._files = ExitStack()
        self._stores = ExitStack()
        self._runner: asyncio.Runner | None = None
        self._buckets: dict[str, ObjectStore] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_files()
        self._stores.close()

    def close_files(self) -> None:
        """Close every file that is open; nothing is read from them afterwards."""
        self._files.close()

    def open(self, target: str) -> ByteSource:
        """The source. Raises `SourceError`; `SettingError` when the settings do not fit a URL."""
        scheme, separator, rest = target.partition("://")
        if not separator:
            return self._open_file(target, target)
        if scheme == FILE_SCHEME:
            parts = urlsplit(target)
            if parts.netloc not in ("", "localhost"):
                raise SourceError(target, "a file URL names no other machine: it is file:///path")
            return self._open_file(target, url2pathname(parts.path))
        if scheme not in BUCKET_SCHEMES:
            legal = ", ".join(f"{name}://" for name in (*BUCKET_SCHEMES, FILE_SCHEME))
            raise SourceError(target, f"a URL starts with one of {legal}")
        bucket, _, key = rest.partition("/")
        problem = object_key_problem(key) if key else f"the URL of an object is {scheme}://bucket/key"
        if problem is not None:
            raise SourceError(target, problem)
        return self._open_object(target, f"{scheme}://{bucket}", key)

    def _open_file(self, name: str, path: str) -> ByteSource:
        try:
            # A pipe would wait for its writer here.
            descriptor = os.open(path, os.O_RDONLY | FILE_FLAGS | NO_WAIT)
            self._files.callback(os.close, descriptor)
            found = os.fstat(descriptor)
        except FileNotFoundError:
            raise NoSuchSourceError(name, "there is no such file") from None
        except (OSError, ValueError) as problem:
            raise SourceError(name, _said(problem)) from problem
        if stat.S_ISDIR(found.st_mode):
            raise SourceError(name, "it is a folder; name the files in it")
        if not stat.S_ISREG(found.st_mode):
            raise SourceError(name, "it is not a regular file")
        return _LocalFile(name=name, size_bytes=found.st_size, descriptor=descriptor, on_read=self._on_read)

    def _open_object(self, name: str, bucket: str, key: str) -> ByteSource:
        store = self._bucket(bucket)
        return _Object(
            name=name,
            size_bytes=self._call(name, store.size_bytes(key)),
            read_range=lambda start, length: self._call(name, store.get_range(key, start, length)),
            on_read=self._on_read,
        )

    def _bucket(self, bucket: str) -> ObjectStore:
        if bucket not in self._buckets:
            # Imported here: a dump of a file needs no client of any store.
            from kafscale.broker.stores import open_bucket_alone

            store = open_bucket_alone(load_settings({**self._environment, "KAFSCALE_S3_BUCKET": bucket}))
            if self._runner is None:
                self._runner = self._stores.enter_context(asyncio.Runner())
            self._stores.callback(lambda: self._run(store.close()))
            self._buckets[bucket] = store
        return self._buckets[bucket]

    def _call(self, name: str, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self._run(call)
        except ObjectNotFoundError:
            raise NoSuchSourceError(name, "there is no such object") from None
        except StoreError as problem:
            raise SourceError(name, str(problem)) from problem

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        assert self._runner is not None
        return self._runner.run(call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalFile:
    name: str
    size_bytes: int
    descriptor: int
    on_read: OnRead

    def read(self, start: int, length: int) -> bytes:
        """See `ByteSource`. Raises `SourceError`."""
        parts = []
        while length:
            try:
                data = read_at(self.descriptor, length, start)
            except OSError as problem:
                raise SourceError(self.name, f"byte {start} cannot be read: {_said(problem)}") from problem
            if not data:
                break
            parts.append(data)
            start, length = start + len(data), length - len(data)
            self.on_read(len(data))
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    name: str
    size_bytes: int
    read_range: Callable[[int, int], bytes]
    on_read: OnRead

    def read(self, start: int, length: int) -> bytes:
        """See `ByteSource`. Raises `SourceError`."""
        data = self.read_range(start, length)
        self.on_read(len(data))
        return data


def _said(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
