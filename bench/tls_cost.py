"""`python -m bench.tls_cost`: the CPU that bytes take on the broker's event loop, plain and by TLS.

No broker: a protocol that throws received bytes away, or sends the same ones again, over the transports to compare.
The peer is a process of its own. CPU is that of the server's process, the least of several runs.
"""

import asyncio
import os
import resource
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import click
import uvloop

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.ops.metrics import FrameRefusal
from kafscale.security.principal import ANONYMOUS, Principal
from kafscale.server.frames import FrameMemory
from kafscale.server.tls_session import TlsSession
from kafscale.server.tls_transport import TlsTransport
from tests.support.tls_files import TlsFolder

TRANSPORTS: Final = ("plain", "uvloop", "kafscale")
DIRECTIONS: Final = ("received", "sent")
_FRAME_BYTES = 1 << 20
_BYTES_PER_GB = 1e9

_PEER = """
import socket, ssl, sys
port, direction, authority, size = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
connected = socket.create_connection(("127.0.0.1", port))
if authority:
    context = ssl.create_default_context(cafile=authority)
    connected = context.wrap_socket(connected, server_hostname="localhost")
room = memoryview(bytearray(1 << 20))
try:
    if direction == "received":
        for _ in range(size >> 20):
            connected.sendall(room)
    while connected.recv_into(room):
        pass
except OSError:
    pass
"""


class _Transport(Protocol):
    def writelines(self, list_of_data: list[memoryview], /) -> None: ...

    def abort(self) -> None: ...


class Mover(asyncio.BufferedProtocol):
    """Receives or sends `size` bytes, and then tells how much CPU that took."""

    def __init__(self, direction: str, size: int, over_tls: bool, done: "asyncio.Future[float]") -> None:
        self._sends, self._size, self._over_tls, self._done = direction == "sent", size, over_tls, done
        self._frame = memoryview(bytearray(os.urandom(_FRAME_BYTES)))
        self._moved = 0
        self._is_paused = False
        self._began_sec: float | None = None
        self._transport: _Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected; over Kafscale's TLS it must still shake hands."""
        self._transport = transport  # type: ignore[assignment]  # a stream's
        if not self._over_tls:
            self._go_on()

    def authenticated(self, principal: Principal) -> None:
        """The handshake is over."""
        self._go_on()

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        """The peer does not speak TLS."""
        self._done.set_exception(ConnectionError(problem))

    def get_buffer(self, sizehint: int) -> memoryview:
        """The rest of a frame."""
        return self._frame[self._moved % _FRAME_BYTES :]

    def buffer_updated(self, nbytes: int) -> None:
        """Received: nothing is done with it."""
        self._count(nbytes)

    def pause_writing(self) -> None:
        """The peer takes it more slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has taken everything."""
        self._is_paused = False
        self._go_on()

    def _go_on(self) -> None:
        while self._sends and not self._is_paused and not self._done.done():
            self._count(_FRAME_BYTES)
            self._transport.writelines([self._frame[:40], self._frame[40:]])

    def _count(self, size_bytes: int) -> None:
        if self._began_sec is None:
            self._began_sec = _cpu_sec()
        self._moved += size_bytes
        if self._moved >= self._size and not self._done.done():
            self._done.set_result((_cpu_sec() - self._began_sec) / (self._moved / _BYTES_PER_GB))
            self._transport.abort()


class Services:
    """A listener's, with one certificate."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.receive_buffer = memoryview(bytearray(288 * 1024))
        self.handshake_timeout_sec = 10.0
        limit_bytes = 64 << 20
        self.frame_memory = FrameMemory(SlabPool(limit_bytes), MemoryBudget(limit_bytes))

    def new_session(self) -> TlsSession:
        """As the listener's."""
        return TlsSession(self._context)

    def principal(self, certificate: bytes | None) -> Principal:
        """No certificate is asked for."""
        return ANONYMOUS


async def measure(transport: str, direction: str, size: int, folder: Path) -> float:
    """CPU seconds for each GB that is moved."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[float] = loop.create_future()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    services = Services(context)

    def of_kafscale() -> asyncio.BufferedProtocol:
        return TlsTransport(Mover(direction, size, True, done), services)

    def of_the_loop() -> asyncio.BufferedProtocol:
        return Mover(direction, size, False, done)

    factory: Callable[[], asyncio.BufferedProtocol] = of_kafscale if transport == "kafscale" else of_the_loop
    own = context if transport == "uvloop" else None
    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=own)
    port = server.sockets[0].getsockname()[1]
    authority = "" if transport == "plain" else str(folder / "ca.crt")
    peer = subprocess.Popen(  # noqa: ASYNC220 - nothing is served yet
        [sys.executable, "-c", _PEER, str(port), direction, authority, str(2 * size)]
    )
    try:
        async with asyncio.timeout(120):
            return await done
    finally:
        server.close()
        peer.kill()
        peer.wait()


@click.command(help="CPU seconds for each GB over a connection: plain, by uvloop's TLS, by Kafscale's.")
@click.option("--repeat", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--megabytes", default=512, show_default=True, type=click.IntRange(min=1))
def main(repeat: int, megabytes: int) -> None:
    """Print a line for each transport and direction."""
    with tempfile.TemporaryDirectory() as name:
        folder = TlsFolder(Path(name)).folder
        for direction in DIRECTIONS:
            for transport in TRANSPORTS:
                runs = [
                    uvloop.run(measure(transport, direction, megabytes << 20, folder)) for _ in range(repeat)
                ]
                click.echo(f"{direction:8} {transport:8} {min(runs):.2f} s/GB")


def _cpu_sec() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
