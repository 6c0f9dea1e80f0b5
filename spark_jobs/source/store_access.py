"""The stores as Spark's planner uses them: opened at the first call, kept between calls, and never in a pickle."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafscale.broker import stores
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.settings.broker import Settings

Result = TypeVar("Result")

Stores = tuple[MetadataReader, ListingReader]


class StoreAccess:
    """Calls coroutine functions with the stores, from a thread without an event loop of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner: asyncio.Runner | None = None
        self._stack = contextlib.AsyncExitStack()
        self._stores: Stores | None = None

    def run(self, function: Callable[[MetadataReader, ListingReader], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the function. Raises its errors, and `StartupError` if the stores do not exist."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._call(function))

    async def _call(
        self, function: Callable[[MetadataReader, ListingReader], Coroutine[Any, Any, Result]]
    ) -> Result:
        if self._stores is None:
            self._stores = await stores.open_for_reading(self._settings, self._stack)
        return await function(*self._stores)

    def close(self) -> None:
        """Close the stores; a later call opens them again."""
        runner, self._runner, self._stores = self._runner, None, None
        if runner is not None:
            with runner:
                runner.run(self._stack.aclose())

    def __getstate__(self) -> Settings:
        return self._settings

    def __setstate__(self, settings: Settings) -> None:
        self.__init__(settings)  # type: ignore[misc]
