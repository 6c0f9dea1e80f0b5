"""An HTTP proxy before the S3 server under a test's control: slow, failing, forgetful, late or gone.

It passes heads and bodies on unchanged, so a client that signs for the proxy's address (its Host header) is
accepted by the server. It runs on a thread and an event loop of its own.
"""

import asyncio
import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvloop

from tests.support.http_stream import (
    Head,
    HttpStreamError,
    is_delimited,
    read_head,
    request_body,
    response_body,
)
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SEC

T = TypeVar("T")

HOST = "127.0.0.1"
STREAM_LIMIT_BYTES = 1 << 20
COMMAND_TIMEOUT_S = PATIENCE_SEC
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SLOW_DOWN_BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class FaultKind(StrEnum):
    """The fate of a request."""

    DELAY = "forwarded after a while, also where its client has gone by then"
    LATE = "its connection breaks at once; forwarded after a while, without a reader of the reply"
    SLOW_DOWN = "answered 503 SlowDown, never forwarded"
    DROP_REQUEST = "its connection breaks; never forwarded"
    DROP_REPLY = "forwarded; its connection breaks where the reply was due"
    BLACK_HOLE = "neither forwarded nor answered; its connection breaks when the fault is cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The requests that meet a fault. `seconds`: of DELAY and LATE, drawn evenly from the range."""

    kind: FaultKind
    methods: frozenset[str] | None = None  # None: all
    pattern: str = ""  # searched in the path: the bucket's name, then the key
    probability: float = 1.0
    seconds: tuple[float, float] = (0.0, 0.0)
    times: int | None = None  # how many requests meet it at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """The key of a counter. `suffix`: the key's, such as `.kfs`, or `bucket`; `outcome`: see below."""

    method: str
    suffix: str
    outcome: str  # the server's status, or the kind of fault if no client received it


class ObjectStoreProxy:
    """A proxy before one server, from `start` to `close`. All methods may be called from any thread."""

    def __init__(self, upstream: str, *, seed: int | None = None) -> None:
        parts = urlsplit(upstream)
        assert parts.scheme == "http" and parts.hostname and parts.port, f"{upstream}: not http://host:port"
        self.port = free_port()
        self._upstream = (parts.hostname, parts.port)
        self._generator = random.Random(seed)
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int | None]] = []  # with how often it may still be met
        self._counts: Counter[RequestKind] = Counter()
        self._held = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="object-store-proxy")
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The server's endpoint for clients."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(COMMAND_TIMEOUT_S), "the proxy did not start"

    def close(self) -> None:
        """Break all connections; requests that are held are never forwarded."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(COMMAND_TIMEOUT_S)
            assert not self._thread.is_alive(), "the proxy did not end"

    def __enter__(self) -> "ObjectStoreProxy":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def inject(self, *faults: Fault) -> None:
        """Add faults for requests from now on; the first one that applies to a request is used."""
        with self._lock:
            self._faults += [(fault, fault.times) for fault in faults]

    def clear(self) -> None:
        """New requests pass. Those in a black hole break, those that are delayed or late keep their time."""
        with self._lock:
            self._faults.clear()
        self._call(self._renew("_cleared"))

    @contextlib.contextmanager
    def fault(self, *faults: Fault) -> Iterator[None]:
        """Faults for the time of the block; all are cleared at its end."""
        self.inject(*faults)
        try:
            yield
        finally:
            self.clear()

    def release(self) -> None:
        """Forward at once what is delayed or late."""
        self._call(self._renew("_released"))

    def refuse_connections(self) -> None:
        """Break all connections and refuse new ones, like a server that is not running."""
        self._call(self._stop_listening())

    def accept_connections(self) -> None:
        """Listen again, on the same port."""
        self._call(self._listen())

    @property
    def held(self) -> int:
        """The number of requests that are delayed, late, or in a black hole now."""
        with self._lock:
            return self._held

    def counts(self) -> "Counter[RequestKind]":
        """The number of finished requests of each kind."""
        with self._lock:
            return Counter(self._counts)

    def count(self, method: str = "", suffix: str = "", outcome: str = "") -> int:
        """The number of those with this method, suffix and outcome; an empty one matches any."""
        return sum(
            number
            for kind, number in self.counts().items()
            if method in ("", kind.method) and suffix in ("", kind.suffix) and outcome in ("", kind.outcome)
        )

    # --- on the proxy's loop from here on

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopping, self._cleared, self._released = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._server: asyncio.Server | None = None
        await self._listen()
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._stopping.wait()
        await self._stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, writer in self._idle:
            await _close(writer)

    def _call(self, command: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "the proxy was not started"
        return asyncio.run_coroutine_threadsafe(command, self._loop).result(COMMAND_TIMEOUT_S)

    async def _renew(self, name: str) -> None:
        """Set an event, and replace it by a new one for later waiters."""
        getattr(self, name).set()
        setattr(self, name, asyncio.Event())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._connected, HOST, self.port, limit=STREAM_LIMIT_BYTES, backlog=1024
            )

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._clients):
            writer.transport.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        self._spawn(self._connection(reader, writer))

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one_request(reader, writer):
                pass
        except (HttpStreamError, OSError):
            writer.transport.abort()  # as a network would: one side is gone, so the other loses it, too
        finally:
            self._clients.discard(writer)
            await _close(writer)

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """True if the connection may carry another request."""
        head = await read_head(reader)
        if head is None:
            return False
        raw = head.raw
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(CONTINUE)
            raw = head.without("expect")  # it is not among what clients sign
        body = [piece async for piece in request_body(reader, head)]
        fault = self._fault_for(head)
        return await self._meet(fault, head, [raw, *body], writer) and head.keeps_alive

    async def _meet(
        self, fault: Fault | None, head: Head, request: list[bytes], writer: asyncio.StreamWriter
    ) -> bool:
        if fault is None:
            return await self._forward(head, request, writer)
        match fault.kind:
            case FaultKind.DELAY:
                await self._hold(fault)
                return await self._forward(head, request, writer)
            case FaultKind.LATE:
                self._spawn(self._late(fault, head, request))
            case FaultKind.SLOW_DOWN:
                return await self._slow_down(head, writer)
            case FaultKind.DROP_REQUEST:
                self._count(head, FaultKind.DROP_REQUEST.name)
            case FaultKind.DROP_REPLY:
                await self._forward(head, request, None, FaultKind.DROP_REPLY.name)
            case FaultKind.BLACK_HOLE:
                with self._holding():
                    await self._cleared.wait()
                self._count(head, FaultKind.BLACK_HOLE.name)
        writer.transport.abort()
        return False

    async def _late(self, fault: Fault, head: Head, request: list[bytes]) -> None:
        await self._hold(fault)
        with contextlib.suppress(HttpStreamError, OSError):  # the server is gone: it never arrives
            await self._forward(head, request, None, FaultKind.LATE.name)

    async def _hold(self, fault: Fault) -> None:
        released = self._released
        with self._holding(), contextlib.suppress(TimeoutError):
            await asyncio.wait_for(released.wait(), self._generator.uniform(*fault.seconds))

    async def _forward(
        self, head: Head, request: list[bytes], client: asyncio.StreamWriter | None, outcome: str = ""
    ) -> bool:
        """Forward the request, and the reply if there is a client; returns if more may follow."""
        reader, writer = await self._upstream_connection()
        try:
            writer.writelines(request)
            await writer.drain()
            reply = await read_head(reader)
            if reply is None:
                raise HttpStreamError("the server closed the connection instead of answering")
            await _pass_on(reply.raw, client)
            async for piece in response_body(reader, reply, head.method):
                await _pass_on(piece, client)
        except BaseException:
            writer.transport.abort()
            raise
        self._count(head, outcome or str(reply.status))
        if reply.keeps_alive and is_delimited(reply, head.method):
            self._idle.append((reader, writer))
            return True
        await _close(writer)
        return False

    async def _upstream_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            await _close(writer)
        return await asyncio.open_connection(*self._upstream, limit=STREAM_LIMIT_BYTES)

    async def _slow_down(self, head: Head, writer: asyncio.StreamWriter) -> bool:
        body = b"" if head.method == "HEAD" else SLOW_DOWN_BODY
        writer.write(
            b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(SLOW_DOWN_BODY), body)
        )
        await writer.drain()
        self._count(head, FaultKind.SLOW_DOWN.name)
        return True

    def _fault_for(self, head: Head) -> Fault | None:
        with self._lock:
            for index, (fault, left) in enumerate(self._faults):
                if (
                    (fault.methods is None or head.method in fault.methods)
                    and left != 0
                    and re.search(fault.pattern, head.path)
                    and self._generator.random() < fault.probability
                ):
                    self._faults[index] = (fault, None if left is None else left - 1)
                    return fault
        return None

    def _count(self, head: Head, outcome: str) -> None:
        path = PurePosixPath(head.path)
        suffix = path.suffix if len(path.parts) > 2 else "bucket"
        with self._lock:
            self._counts[RequestKind(method=head.method, suffix=suffix, outcome=outcome)] += 1

    @contextlib.contextmanager
    def _holding(self) -> Iterator[None]:
        with self._lock:
            self._held += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1


async def _pass_on(piece: bytes, client: asyncio.StreamWriter | None) -> None:
    """To a client that is still connected; the server's reply is read to the end in any case."""
    if client is not None and not client.is_closing():
        client.write(piece)
        with contextlib.suppress(OSError):
            await client.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
