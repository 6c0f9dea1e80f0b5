"""The TCP server of tests leaves no connection open, whenever it closes."""

import asyncio
import contextlib
import gc
import socket

import pytest

from tests.support.tcp_server import HOST, TcpServer


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(100):
        writer.write(piece)
        await writer.drain()


@pytest.mark.parametrize("turns", range(7))
def test_connection_accepted_while_it_closes_is_closed(turns: int) -> None:
    """A connection that stays open is a ResourceWarning when it is collected, which fails the test."""

    async def run() -> None:
        server = TcpServer(echo)
        await server.listen()
        with socket.create_connection((HOST, server.port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            client.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""

    asyncio.run(run())
    gc.collect()


def test_cut_breaks_connections_and_goes_on_listening() -> None:
    async def run() -> None:
        server = TcpServer(echo)
        await server.listen()
        for accepted in (1, 2):
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await server.cut()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.transport.abort()
            assert server.accepted == accepted
        await server.close()

    asyncio.run(run())
    gc.collect()


def test_listens_again_on_the_same_port() -> None:
    async def run() -> None:
        server = TcpServer(echo)
        await server.listen()
        port = server.port
        await server.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, port)
        await server.listen()
        assert server.port == port
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.transport.abort()
        await server.close()

    asyncio.run(run())
    gc.collect()
