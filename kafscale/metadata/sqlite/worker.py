"""The thread that owns the embedded store's file: decides requests in groups and commits each group once.

Theory of operation. The thread takes every waiting request, decides them one after the other on a `StoreState`, and
writes the staged changes as one SQLite transaction: one fsync for many callers, each with its own answer. Then one
call into the event loop answers all of them.

If the write fails, the file is opened again to see if the transaction is in it. If so, the answers stand; if not,
nothing was done, and the whole group gets `StoreUnavailableError`. If the file cannot even be read, the group gets
`StoreIndeterminateError`, the staged changes stay staged, and until a later attempt resolves the outcome no request
is served: a read would let a caller conclude that its transaction was lost.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafscale.errors import StartupError, StoreError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.sqlite.file import SqliteFile
from kafscale.metadata.store import Changes
from kafscale.metadata.store_state import StoreState

# The file is tried again this long after a failed attempt, or at the next request.
_RETRY_SEC = 0.5
_MAX_SLEEP_SEC = 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A caller's request: a function of the state and the time (seconds), and the future for its result."""

    decide: Callable[[StoreState, float], object]
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Changes for the event loop to show, and answers to give after that (a `StoreError` is raised).

    `unsettled`: why nothing can be read until a later outcome, or None.
    """

    committed: tuple[Changes, ...] = ()
    answers: Sequence[tuple[asyncio.Future[Any], object]] = ()
    unsettled: str | None = None


class SqliteWorker:
    """The owner thread of one metadata file. `clock` gives seconds and never goes back."""

    def __init__(
        self, path: Path, *, fsync: bool, clock: Callable[[], float], deliver: Callable[[Outcome], None]
    ) -> None:
        self._path = path
        self._fsync = fsync
        self._clock = clock
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._stopping = False
        self._failing = False
        self._unsettled: str | None = None
        self._serving: Sequence[Request] = ()
        self._started: asyncio.Future[Keyspace] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name="kafscale-metadata", daemon=True)

    async def start(self) -> Keyspace:
        """Open the file and return a copy of its content. Raises `StartupError`."""
        self._thread.start()
        try:
            return await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self._queue.put(None)
            raise
        except StartupError:
            await asyncio.shield(self._ended)
            raise

    def submit(self, request: Request) -> None:
        """Queue the request; its future gets the result once that is durable, or a `StoreError`."""
        if self._ended.done():
            resolve(request.future, self._closed_error())
        else:
            self._queue.put(request)

    async def stop(self) -> None:
        """Serve what was submitted, close the file and end the thread."""
        self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _main(self) -> None:
        try:
            self._file = SqliteFile(self._path, fsync=self._fsync)
            try:
                keyspace = self._file.load()
                self._state = StoreState(keyspace)
                self._post(resolve, self._started, Keyspace(keyspace, keyspace.revision))
                while not self._stopping:
                    self._serving = self._take()
                    self._serve(self._serving)
                    self._serving = ()
            finally:
                self._file.close()
        except StartupError as problem:
            self._post(resolve, self._started, problem)
        except BaseException:
            # A defect of the program: without this the callers would wait without limit.
            _log.critical("the thread of metadata file %s died", self._path, exc_info=True)
            self._unsettled = f"the thread of metadata file {self._path} died, see the log"
            self._answer(self._serving, StoreIndeterminateError, self._unsettled)
            raise
        finally:
            self._post(self._end)

    def _take(self) -> list[Request]:
        """All waiting requests; waits for one until a lease is due or the file must be tried again."""
        requests: list[Request] = []
        try:
            request = self._queue.get(timeout=self._patience_sec())
            while request is not None:
                requests.append(request)
                request = self._queue.get_nowait()
            self._stopping = True
        except queue.Empty:
            return requests
        return requests

    def _patience_sec(self) -> float:
        if self._unsettled is not None:
            return _RETRY_SEC
        due_sec = self._state.next_expiry_sec()
        return _MAX_SLEEP_SEC if due_sec is None else min(max(due_sec - self._clock(), 0), _MAX_SLEEP_SEC)

    def _serve(self, requests: Sequence[Request]) -> None:
        if self._unsettled is not None:
            self._settle()
            if self._unsettled is not None:
                self._answer(requests, StoreUnavailableError, self._unsettled)
                return
        now = self._clock()
        answers = [(request.future, self._decide(request, now)) for request in requests]
        self._state.expire_leases(now)
        if self._state.staged and not self._write():
            self._fail(requests, answers)
            return
        committed = self._state.commit()
        if committed or answers:
            self._post(self._deliver, Outcome(committed=committed, answers=answers))
        if self._file.checkpoint_is_due:
            self._file.checkpoint()

    def _decide(self, request: Request, now: float) -> object:
        try:
            return request.decide(self._state, now)
        except StoreError as refusal:
            return refusal

    def _write(self) -> bool:
        try:
            self._file.write(self._state.revision, self._state.staged_keys())
        except sqlite3.Error as problem:
            self._unsettled = f"metadata file {self._path} cannot be written: {problem}"
            if not self._failing:
                _log.error("%s", self._unsettled)
            self._failing = True
            return False
        if self._failing:
            _log.info("metadata file %s can be written again", self._path)
        self._failing = False
        return True

    def _fail(
        self, requests: Sequence[Request], answers: Sequence[tuple[asyncio.Future[Any], object]]
    ) -> None:
        problem = str(self._unsettled)
        committed = self._settle()
        if self._unsettled is not None:
            self._answer(requests, StoreIndeterminateError, problem)
        elif committed:
            self._post(self._deliver, Outcome(answers=answers))
        else:
            self._answer(requests, StoreUnavailableError, problem)

    def _settle(self) -> bool:
        """Resolve the outcome of the staged changes; True if they are in the file, and are shown then."""
        durable = self._state.keyspace.revision
        try:
            revision = self._file.reopen(durable)
        except (sqlite3.Error, StartupError) as problem:
            self._unsettled = f"metadata file {self._path} cannot be read: {problem}"
            return False
        if revision not in (durable, self._state.revision):
            self._unsettled = (
                f"metadata file {self._path} is at revision {revision}, not at {durable} or"
                f" {self._state.revision}: another process has changed it, restart the broker"
            )
            return False
        committed = self._state.commit() if revision != durable else ()
        self._state.rollback()
        # No client could renew its lease meanwhile.
        self._state.renew_every_lease(self._clock())
        self._unsettled = None
        self._post(self._deliver, Outcome(committed=committed))
        return bool(committed)

    def _answer(self, requests: Sequence[Request], error: type[StoreError], problem: str) -> None:
        answers = [(request.future, error(problem)) for request in requests]
        self._post(self._deliver, Outcome(answers=answers, unsettled=self._unsettled))

    def _post(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop was closed without `stop`: no caller is left.
            self._stopping = True

    def _end(self) -> None:
        """Runs on the event loop, so that `submit` queues nothing afterwards."""
        resolve(self._started, self._closed_error())
        resolve(self._ended, None)
        while not self._queue.empty():
            waiting = self._queue.get_nowait()
            if waiting is not None:
                resolve(waiting.future, self._closed_error())

    def _closed_error(self) -> StoreUnavailableError:
        return StoreUnavailableError(self._unsettled or f"the metadata store {self._path} is closed")


def resolve(future: asyncio.Future[Any], answer: object) -> None:
    """Give the future its result or, if the answer is an error, its exception. Does nothing if it is done."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
