"""The stores, open in an event loop in a thread of its own: the caller goes on while they answer."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, TypeVar

from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader

Result = TypeVar("Result")


class StoreOpener(Protocol):
    """Opens the stores; the stack closes them."""

    async def open_objects(self, stack: contextlib.AsyncExitStack) -> ListingReader: ...

    async def open_metadata(self, stack: contextlib.AsyncExitStack) -> MetadataReader: ...


class StoreThread:
    """A context manager: the object store is open within it, the metadata store from its first use on.

    Most readers never use the metadata store, which so many connections at once would burden. Calls in progress at
    the end are cancelled. Entering raises the errors of `open_objects`.
    """

    objects: ListingReader

    def __init__(self, opener: StoreOpener) -> None:
        self._opener = opener
        self._metadata: MetadataReader | None = None
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="kafscale stores", daemon=True)

    def __enter__(self) -> "StoreThread":
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def start(self, call: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start the call. Cancelling the future cancels the call."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def call(self, function: Callable[[MetadataReader, ListingReader], Awaitable[Result]]) -> Result:
        """The result of the function, called in the thread with both stores.

        Raises its errors, and those of `open_metadata`.
        """

        async def called() -> Result:
            if self._metadata is None:
                self._metadata = await self._opener.open_metadata(self._stack)
            return await function(self._metadata, self.objects)

        return self.start(called()).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:
            if self._opened.done():
                raise
            self._opened.set_exception(problem)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        async with contextlib.AsyncExitStack() as self._stack:
            self.objects = await self._opener.open_objects(self._stack)
            self._opened.set_result(None)
            try:
                await self._ended.wait()
            finally:
                # Before the stores are closed: some calls read into memory that is used again afterwards.
                calls = asyncio.all_tasks() - {asyncio.current_task()}
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
