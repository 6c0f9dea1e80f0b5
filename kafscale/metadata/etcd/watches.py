"""Every watch of one store on one stream to etcd, which is begun again wherever it broke."""

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator
from typing import NoReturn

import grpc
from aetcd import rpc

from kafscale.errors import StoreError
from kafscale.metadata.etcd.cancellation import cancellation_kept
from kafscale.metadata.etcd.config import EtcdTimeouts
from kafscale.metadata.etcd.connection import (
    CALL_ERRORS,
    EtcdConnection,
    EtcdRefusedError,
    code_and_details,
)
from kafscale.metadata.etcd.endpoints import EtcdEndpoints
from kafscale.metadata.etcd.verdict import PERMISSION_DENIED, Verdict, verdict_of
from kafscale.metadata.etcd.watcher import EtcdWatcher

logger = logging.getLogger(__name__)


# etcd's id for a watch that it did not create.
_NO_WATCH = -1


class _BrokenStreamError(Exception):
    """The stream ended, or etcd will not go on with one of its watches; `details` is etcd's reason, if any."""

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details


class EtcdWatches:
    """Keeps the watchers' backlogs fed. A break costs them nothing: each goes on after its last revision.

    Theory of operation. A watcher that was added has read a snapshot at some revision and is asked for with
    the next one. While the stream stands, new watches are created on it; when it is opened again, all are.
    etcd answers a watch whose revisions are compacted away by cancelling it: that watcher starts over. It
    cancels watches for nothing else but a token or a permission that is not valid (any more), and then does
    not always say which: the stream is opened again, with a new token.
    """

    def __init__(self, endpoints: EtcdEndpoints, timeouts: EtcdTimeouts, randomness: random.Random) -> None:
        self._endpoints = endpoints
        self._timeouts = timeouts
        self._randomness = randomness
        self._ids = itertools.count(1)
        self._watchers: dict[int, EtcdWatcher] = {}
        self._outbox: _Outbox | None = None
        self._running: asyncio.Task[None] | None = None
        self._has_answered = False

    @property
    def watcher_count(self) -> int:
        """How many watches etcd is, or is to be, asked for."""
        return len(self._watchers)

    def add(self, watcher: EtcdWatcher, snapshot_revision: int) -> None:
        """Feed the watcher with what comes after the snapshot that it has read."""
        watch_id = next(self._ids)
        watcher.begin(watch_id, snapshot_revision)
        self._watchers[watch_id] = watcher
        if self._outbox is not None:
            self._outbox.put(watcher.create_request())
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="etcd watches")
            self._running.add_done_callback(lambda _: self._wake_all())

    def remove(self, watcher: EtcdWatcher) -> None:
        """Feed the watcher no more; nothing if it is not fed."""
        self._drop(watcher.watch_id)

    def raise_defect(self) -> None:
        """Raise what ended the watches, when that was none of what is known to happen; nothing otherwise."""
        if self._running is not None and self._running.done() and not self._running.cancelled():
            self._running.result()

    async def close(self) -> None:
        """Close the stream."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        pause_sec = self._timeouts.first_pause_sec
        while True:
            self._has_answered = False
            try:
                connection = await self._endpoints.connection(self._timeouts.call_sec)
                token = connection.token
                try:
                    await self._follow(connection)
                except _BrokenStreamError as broken:
                    await self._mend(connection, token, broken)
                    raise
            except (StoreError, *CALL_ERRORS, _BrokenStreamError) as problem:
                logger.warning("the watches of etcd broke, going on", extra={"problem": str(problem)})
            if self._has_answered:
                pause_sec = self._timeouts.first_pause_sec
            await asyncio.sleep(pause_sec * self._randomness.uniform(0.5, 1))
            pause_sec = min(pause_sec * 2, self._timeouts.longest_pause_sec)

    async def _follow(self, connection: EtcdConnection) -> NoReturn:
        """Open the stream and take what comes until it breaks."""
        self._outbox = outbox = _Outbox()
        call = connection.watches.Watch(outbox.requests(), metadata=connection.metadata())
        stop_listening = connection.call_when_retired(call.cancel)
        try:
            for watcher in self._watchers.values():
                outbox.put(watcher.create_request())
            with cancellation_kept(connection.endpoint):
                while (response := await call.read()) is not grpc.aio.EOF:
                    self._endpoints.check_cluster(connection, response.header)
                    self._has_answered = True
                    self._take(response)
                raise _BrokenStreamError(f"{connection.endpoint} ended the stream")
        except EtcdRefusedError as of_another_cluster:
            raise _BrokenStreamError(str(of_another_cluster)) from of_another_cluster
        except CALL_ERRORS as error:
            code, details = code_and_details(error)
            text = f"{connection.endpoint}: {code.name}: {details}"
            raise _BrokenStreamError(text, details) from error
        finally:
            self._outbox = None
            stop_listening()
            call.cancel()
            outbox.end()

    async def _mend(self, connection: EtcdConnection, token: str | None, broken: _BrokenStreamError) -> None:
        """Make the next stream a better one: with a new token, or to another member."""
        # 3.4 denies permission to a token that is not valid.
        is_denied = broken.details == PERMISSION_DENIED
        if not (is_denied or verdict_of(grpc.StatusCode.UNKNOWN, broken.details) is Verdict.LOGIN):
            self._endpoints.retire(connection)
            return
        try:
            await connection.login(token, self._timeouts.connect_sec)
        except (StoreError, *CALL_ERRORS):
            self._endpoints.retire(connection)
            raise

    def _take(self, response: rpc.WatchResponse) -> None:
        watcher = self._watchers.get(response.watch_id)
        if watcher is None:
            if response.canceled and response.watch_id == _NO_WATCH:
                raise _BrokenStreamError(
                    f"a watch was refused: {response.cancel_reason}", response.cancel_reason
                )
        elif response.compact_revision:
            logger.info(
                "etcd has compacted what a watch had not seen", extra={"watch": watcher.first.decode()}
            )
            del self._watchers[response.watch_id]
            watcher.start_over()
        elif response.canceled:
            raise _BrokenStreamError(
                f"a watch was cancelled: {response.cancel_reason}", response.cancel_reason
            )
        else:
            watcher.take_response(response)
            if watcher.needs_snapshot:
                self._drop(response.watch_id)

    def _wake_all(self) -> None:
        for watcher in self._watchers.values():
            watcher.woken.set()

    def _drop(self, watch_id: int) -> None:
        if self._watchers.pop(watch_id, None) is not None and self._outbox is not None:
            cancel = rpc.WatchCancelRequest(watch_id=watch_id)
            self._outbox.put(rpc.WatchRequest(cancel_request=cancel))


class _Outbox:
    """The requests to send on one stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[rpc.WatchRequest | None] = asyncio.Queue()

    def put(self, request: rpc.WatchRequest) -> None:
        self._queue.put_nowait(request)

    def end(self) -> None:
        """gRPC goes on waiting for requests after the server has ended the stream."""
        self._queue.put_nowait(None)

    async def requests(self) -> AsyncIterator[rpc.WatchRequest]:
        while (request := await self._queue.get()) is not None:
            yield request
