"""A TCP proxy in the test's event loop that holds either direction, cuts every connection, and stops listening."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.tcp_server import HOST, TcpServer

_CHUNK_BYTES = 65536


class TcpProxy(TcpServer):
    """Forwards connections to a port of this machine."""

    def __init__(self, target_port: int) -> None:
        super().__init__(self._pass_through)
        self.forwards_requests = asyncio.Event()
        self.forwards_replies = asyncio.Event()
        self.forwards_requests.set()
        self.forwards_replies.set()
        self.request_bytes = 0  # read from clients, forwarded or not
        self.target_port = target_port

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def _pass_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
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
