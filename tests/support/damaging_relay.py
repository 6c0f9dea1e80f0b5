"""A relay before a server on this machine that replaces one word on its way there by another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HOST = "127.0.0.1"
WORD, DAMAGED = b"precious", b"PRECIOUS"
_PIECE_BYTES = 1 << 16


@asynccontextmanager
async def damaging_relay(port: int) -> AsyncIterator[int]:
    """Runs the relay in the block; gives its port."""
    connections: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        there_reader, there_writer = await asyncio.open_connection(HOST, port)
        writers.update((writer, there_writer))
        try:
            await asyncio.gather(_pass_on(reader, there_writer, damage=True), _pass_on(there_reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            return  # either side, or the test, is done with it
        finally:
            connections.discard(task)
            writer.close()
            there_writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0)
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


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
