"""A relay before a server on this machine that replaces one word in flight by another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.tcp_server import HOST, TcpServer

WORD, DAMAGED = b"precious", b"PRECIOUS"
_PIECE_BYTES = 1 << 16


@asynccontextmanager
async def damaging_relay(port: int) -> AsyncIterator[int]:
    """Runs the relay in the block; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(HOST, port)
        try:
            await asyncio.gather(_pass_on(reader, there_writer, damage=True), _pass_on(there_reader, writer))
        finally:
            there_writer.transport.abort()

    server = TcpServer(serve)
    await server.listen()
    try:
        yield server.port
    finally:
        await server.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, damage: bool = False
) -> None:
    kept = b""  # what may be the beginning of the word
    while piece := await reader.read(_PIECE_BYTES):
        data = (kept + piece).replace(WORD, DAMAGED) if damage else piece
        kept = next((WORD[:end] for end in range(len(WORD) - 1, 0, -1) if data.endswith(WORD[:end])), b"")
        if not damage:
            kept = b""
        writer.write(data[: len(data) - len(kept)])
        await writer.drain()
    writer.write(kept)
    writer.close()
