"""The exports' cache of schemas in the object store, for a driver without an event loop."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from kafscale.broker import stores
from kafscale.errors import ObjectNotFoundError
from kafscale.formats.object_keys import schema_cache_key
from kafscale.objects.object_store import ObjectStore
from kafscale.settings.broker import Settings

Result = TypeVar("Result")

_PATIENCE_SEC: Final = 60


class ObjectSchemaStore:
    """`SchemaStore` in the object store of the settings, which is opened at the first call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner: asyncio.Runner | None = None
        self._stack = contextlib.AsyncExitStack()
        self._objects: ObjectStore | None = None

    def get(self, name: str) -> bytes | None:
        """See `SchemaStore`."""

        async def read(objects: ObjectStore) -> bytes | None:
            try:
                return await objects.get(self._key(name))
            except ObjectNotFoundError:
                return None

        return self._run(read)

    def put(self, name: str, data: bytes) -> None:
        """See `SchemaStore`."""
        self._run(lambda objects: objects.put(self._key(name), [data]))

    def close(self) -> None:
        """Close the object store."""
        runner, self._runner, self._objects = self._runner, None, None
        if runner is not None:
            with runner:
                runner.run(self._stack.aclose())

    def _key(self, name: str) -> str:
        return schema_cache_key(self._settings.s3_namespace, name)

    def _run(self, function: Callable[[ObjectStore], Coroutine[Any, Any, Result]]) -> Result:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._call(function))

    async def _call(self, function: Callable[[ObjectStore], Coroutine[Any, Any, Result]]) -> Result:
        if self._objects is None:
            self._objects = stores.open_export_objects(self._settings, self._stack)
        async with asyncio.timeout(_PATIENCE_SEC):
            return await function(self._objects)
