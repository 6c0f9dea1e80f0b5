"""The lease of a topic for an export, for a driver without an event loop: a thread keeps it alive."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from kafscale.broker import stores
from kafscale.cluster.export_hold import ExportHold
from kafscale.cluster.exports import ExportHeldError, ExportLeaseLostError
from kafscale.errors import StoreError
from kafscale.formats.export_records import ExportProgress
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.settings.broker import Settings

DEFAULT_TTL_SEC: Final = 30
# Renewed so often that one failed attempt, with its timeout, costs nothing.
_RENEWALS_PER_TTL: Final = 4
_WAIT_PAUSE_SEC: Final = 0.5

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
ReadFunction = Callable[[MetadataReader, ListingReader], Coroutine[Any, Any, Result]]


@contextlib.contextmanager
def hold_export(
    settings: Settings, topic: str, holder: str, ttl_sec: int = DEFAULT_TTL_SEC, *, wait_sec: float = 0
) -> Iterator["ExportLease"]:
    """Own the topic within the block, so that no other exporter does.

    `holder`: this exporter's name, for others to read. `ttl_sec`: after this time without a sign of life the topic is
    free for others (embedded: only once the process has ended). `wait_sec`: how long to wait for another exporter to
    end. Raises `ExportHeldError`, `StartupError`, `SettingError`, `StoreError`.
    """
    lease = ExportLease(settings, topic, holder, ttl_sec)
    try:
        lease.open(wait_sec)
        yield lease
    finally:
        lease.close()


class ExportLease:
    """A lease of a topic, from `open` to `close`. Use `hold_export`. May be called from any thread."""

    def __init__(self, settings: Settings, topic: str, holder: str, ttl_sec: int) -> None:
        self._settings = settings
        self._topic = topic
        self._holder = holder
        self._ttl_sec = ttl_sec
        self._opened: concurrent.futures.Future[_Open] = concurrent.futures.Future()
        self._serving: concurrent.futures.Future[_Serving] = concurrent.futures.Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=f"kafscale-export-lease {topic}", daemon=True)
        self._wait_sec = 0.0
        self._lock = threading.Lock()
        self._takes_calls = (
            False  # guarded by the lock: a call that the loop never runs would wait without limit
        )

    @property
    def topic(self) -> str:
        """The topic of the lease."""
        return self._topic

    @property
    def epoch(self) -> int:
        """Grows with every owner of the topic."""
        return self._opened.result().hold.epoch

    def open(self, wait_sec: float = 0) -> None:
        """Acquire the lease. Raises the errors of `hold_export`."""
        self._wait_sec = wait_sec
        self._thread.start()
        self._opened.result()

    def check(self) -> None:
        """Raise `ExportLeaseLostError` if the lease is lost, as far as this process knows; makes no request.

        It is lost, too, once no renewal has succeeded for the time that the lease lasts.
        """
        opened = self._opened.result()
        try:
            opened.hold.check()
        except ExportLeaseLostError:
            # After a failure the lease is released, and the failure is the error to raise.
            if self._failure is None:
                raise
        if self._failure is not None:
            raise ExportLeaseLostError(
                self._topic, f"the thread that keeps it failed: {self._failure!r}"
            ) from self._failure

    def confirm(self) -> None:
        """Like `check`, with a request to the metadata store. Raises `StoreError`, too."""
        self._run(lambda opened: opened.hold.confirm())

    def last_progress(self, table: str) -> ExportProgress | None:
        """The newest record for the table, of any exporter. Raises `StoreError`, `CorruptDataError`."""
        return self._run(lambda opened: opened.hold.last_progress(table))

    def record(self, progress: ExportProgress) -> None:
        """Show others the progress of the export: all its partitions, which replaces the earlier progress.

        Raises `ExportLeaseLostError`, nothing written, `StoreError`, and `ValueError` for a progress of another
        topic or one that cannot be stored.
        """
        self._run(lambda opened: opened.hold.record(progress))

    def call(self, function: ReadFunction[Result]) -> Result:
        """The result of the coroutine function, called with the metadata store and the object store to read from.

        It must not block: the lease is kept alive by the same event loop. Raises the function's errors.
        """
        return self._run(lambda opened: function(opened.metadata, opened.objects))

    def close(self) -> None:
        """Release the lease. Raises a failure of the thread that the driver has not seen yet."""
        if self._thread.ident is None:
            return
        # The thread never had a loop, or it has ended by itself and the loop is closed.
        with contextlib.suppress(concurrent.futures.CancelledError, RuntimeError):
            serving = self._serving.result()
            serving.loop.call_soon_threadsafe(serving.task.cancel)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, begin: "Callable[[_Open], Coroutine[Any, Any, Result]]") -> Result:
        opened = self._opened.result()

        async def run() -> Result:
            return await begin(opened)

        with self._lock:
            if not self._takes_calls:
                raise self._ended()
            future = asyncio.run_coroutine_threadsafe(run(), self._serving.result().loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._ended() from None
        except BaseException:
            # Does nothing once it is done; after an interrupted wait no caller wants the result.
            future.cancel()
            raise

    def _ended(self) -> ExportLeaseLostError:
        """The reason why no call is accepted any more."""
        try:
            self.check()
        except ExportLeaseLostError as lost:
            return lost
        return ExportLeaseLostError(self._topic, "it was released")

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            self._give_up_opening(ExportLeaseLostError(self._topic, "it was released"))
        except BaseException as problem:  # noqa: BLE001 - it is the driver's
            if not self._give_up_opening(problem):
                self._failure = problem
        finally:
            self._serving.cancel()

    def _give_up_opening(self, problem: BaseException) -> bool:
        """True if a caller waits for it, which gets the error."""
        if self._opened.done():
            return False
        self._opened.set_exception(problem)
        return True

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio.run makes one"
        self._serving.set_result(_Serving(asyncio.get_running_loop(), task))
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await stores.open_for_reading(self._settings, stack)
            hold = await self._acquire(stack)
            with self._lock:
                self._takes_calls = True
            self._opened.set_result(_Open(hold, metadata, objects))
            try:
                await self._keep_alive(hold)
            except Exception as problem:
                self._failure = problem  # before the release, which would be all that `check` could tell
                raise
            finally:
                with self._lock:
                    self._takes_calls = False
                await asyncio.sleep(0)  # what was called before begins, and is ended with the loop
                await self._release(hold)

    async def _acquire(self, stack: contextlib.AsyncExitStack) -> ExportHold:
        give_up_at_sec = time.monotonic() + self._wait_sec
        while True:
            async with contextlib.AsyncExitStack() as own:
                try:
                    store = await stores.open_export_store(self._settings, self._topic, own)
                    hold = await ExportHold.acquire(
                        store,
                        self._topic,
                        self._holder,
                        self._ttl_sec,
                        now_ms=lambda: time.time_ns() // 1_000_000,
                    )
                    stack.push_async_callback(own.pop_all().aclose)
                    return hold
                except ExportHeldError:
                    if time.monotonic() >= give_up_at_sec:
                        raise
            await asyncio.sleep(_WAIT_PAUSE_SEC)

    async def _keep_alive(self, hold: ExportHold) -> None:
        """Runs until the task is cancelled; a lost lease is not renewed any more, `check` raises."""
        while True:
            await asyncio.sleep(self._ttl_sec / _RENEWALS_PER_TTL)
            try:
                await hold.renew()
            except StoreError as problem:
                _log.warning("could not renew the hold of topic %s: %s", self._topic, problem)
            except ExportLeaseLostError as lost:
                _log.error("%s", lost)
                await asyncio.Event().wait()

    async def _release(self, hold: ExportHold) -> None:
        try:
            await hold.release()
        except StoreError as problem:
            _log.warning("the hold of topic %s ends by itself, later: %s", self._topic, problem)


class _Open:
    """The parts of an open lease."""

    def __init__(self, hold: ExportHold, metadata: MetadataReader, objects: ListingReader) -> None:
        self.hold = hold
        self.metadata = metadata
        self.objects = objects


class _Serving:
    """The thread's main function."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
        self.loop = loop
        self.task = task
