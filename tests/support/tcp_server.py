"""A TCP server on the test's event loop that ends with all its connections, also those accepted a moment ago.

`asyncio.start_server` does not: a connection that it accepts in the turn in which it is closed stays open until it
is collected, and then the ResourceWarning fails another test (Python 3.11: `Server._attach` after `close`).
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable

HOST = "127.0.0.1"
_WAITING_CONNECTIONS = 100

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TcpServer:
    """Serves each connection by a task; the connection ends with it. `port` is 0 before the first `listen`."""

    def __init__(self, serve: Serve, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.accepted = 0
        self._serve = serve
        self._tls = tls
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        listener = socket.create_server((HOST, self.port), backlog=_WAITING_CONNECTIONS)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def cut(self) -> None:
        """Break every connection; what is in flight is lost."""
        await asyncio.sleep(0)  # a transport that was made in this turn cannot be closed before the next one
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # their transports close the sockets

    async def close(self) -> None:
        """Refuse connections, and break the existing ones."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):  # the client has left again
            connection, _ = listener.accept()
            connection.setblocking(False)
            self.accepted += 1
            task = asyncio.ensure_future(self._one_connection(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # Here, as a task that is cancelled before it has started has no effect.
            task.add_done_callback(lambda _: connection.close())

    async def _one_connection(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # the client is done with it, or does not shake hands
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=self._tls)
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            try:
                await self._serve(reader, writer)
                writer.close()
                await writer.wait_closed()
            finally:
                transport.abort()
                await asyncio.sleep(0)  # the transport closes the socket
