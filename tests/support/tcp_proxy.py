"""A TCP proxy in the test's event loop that holds either direction, cuts every connection, and stops listening."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CHUNK_BYTES = 65536


class TcpProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, target_port: int) -> None:
        self.forwards_requests = asyncio.Event()
        self.forwards_replies = asyncio.Event()
        self.forwards_requests.set()
        self.forwards_replies.set()
        self.port = 0
        self.accepted = 0
        self.request_bytes = 0  # read from clients, forwarded or not
        self.target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepts = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._accepts = True
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break every connection; held bytes are lost."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Refuse connections, and break the existing ones."""
        self._accepts = False
        if self._server is not None:
            self._server.close()
        await self.cut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepts:  # asyncio had taken the connection before the server was closed
            writer.transport.abort()
            return
        self.accepted += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Here, as a task that is cancelled before it has started has no effect.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            return
        directions = {
            asyncio.ensure_future(self._forward(reader, far_writer, self.forwards_requests)),
            asyncio.ensure_future(self._forward(far_reader, writer, self.forwards_replies)),
        }
        try:
            # The end of one direction is the end of both.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # First, as a cut that comes in the middle of this ends it at the next await.
            far_writer.transport.abort()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if gate is self.forwards_requests:
                self.request_bytes += len(data)
            await gate.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def tcp_proxy(target_port: int) -> AsyncIterator[TcpProxy]:
    """A proxy that listens in the block."""
    proxy = TcpProxy(target_port)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
