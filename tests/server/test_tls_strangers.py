"""Untrusted clients at a broker with TLS, and files that end its start."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kafscale.errors import StartupError
from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.listeners import ListenerName
from kafscale.settings.listener_kinds import AddressLimits
from tests.support import wire
from tests.support.in_process_broker import until
from tests.support.on_uvloop import on_uvloop
from tests.support.tls_broker import (
    PLAIN,
    TLS,
    endpoints,
    port_of,
    tls_broker,
    tls_client,
)
from tests.support.tls_files import TlsFolder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> TlsFolder:
    return TlsFolder(tmp_path_factory.mktemp("tls"))


# --- untrusted clients


def test_plaintext_on_a_tls_port_closes_with_a_line(
    shared: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared) as broker:
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
                writer.write(b"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x01" + bytes(24))
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.transport.abort()
            await until(lambda: broker.connection_count == 0, "they are closed")
            assert broker.metrics.frames_refused[FrameRefusal.TLS] == 3

    run()
    (line,) = [record for record in caplog.records if record.message == "closed a connection"]
    assert "the client does not speak TLS" in line.__dict__["problem"]


def test_tls_on_a_plaintext_port_closes_with_a_line(
    shared: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared) as broker:
            for _ in range(3):
                with pytest.raises((ssl.SSLError, OSError)):
                    await asyncio.open_connection(
                        "127.0.0.1",
                        port_of(broker, PLAIN),
                        ssl=shared.client_context(),
                        server_hostname="localhost",
                    )
            assert broker.metrics.frames_refused[FrameRefusal.TLS] == 3

    run()
    (line,) = [record for record in caplog.records if record.message == "closed a connection"]
    assert "the client speaks TLS" in line.__dict__["problem"]


def test_a_client_that_does_not_shake_hands_is_closed(shared: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared, ssl_handshake_timeout_ms=100) as broker:
            await broker.create_topic()
            silent = [await asyncio.open_connection("127.0.0.1", port_of(broker)) for _ in range(50)]
            async with tls_client(broker, shared.client_context()) as client:
                assert (await client.produce("topic", 0, wire.batch([b"x"]))).error_code == 0
                for reader, writer in silent:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                    writer.transport.abort()
                await until(lambda: broker.connection_count == 1, "the silent ones are closed")
            assert broker.budget.used_bytes == 0

    run()


def test_handshakes_count_in_the_limit_of_connections(shared: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared, max_connections=3) as broker:
            silent = [await asyncio.open_connection("127.0.0.1", port_of(broker)) for _ in range(3)]
            await until(lambda: broker.connection_count == 3, "they are counted")
            with pytest.raises((ssl.SSLError, OSError)):
                async with tls_client(broker, shared.client_context()):
                    pass
            for _, writer in silent:
                writer.transport.abort()
            await until(lambda: broker.connection_count == 0, "they are gone")
            async with tls_client(broker, shared.client_context()) as client:
                await endpoints(client)

    run()


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), source_address=(source, 0))


@pytest.mark.parametrize("name", [PLAIN, TLS])
def test_an_address_has_a_limit_of_connections(shared: TlsFolder, name: ListenerName) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared, max_connections_per_ip=2) as broker:
            port = port_of(broker, name)
            with contextlib.ExitStack() as stack:
                first, _ = [stack.enter_context(connected(port)) for _ in range(2)]
                await until(lambda: broker.connection_count == 2, "they are let in")
                stack.enter_context(connected(port))
                await until(lambda: broker.metrics.connections.rejected_per_ip == 1, "a third is not")
                # Another address has a limit of its own.
                stack.enter_context(connected(port, source="127.0.0.2"))
                await until(lambda: broker.connection_count == 3, "it is let in")
                first.close()
                await until(lambda: broker.connection_count == 2, "one is gone")
                stack.enter_context(connected(port))
                await until(lambda: broker.connection_count == 3, "there is room again")
            await until(lambda: broker.connection_count == 0, "all are gone")
            assert broker.metrics.connections.rejected_per_ip == 1

    run()


def test_some_addresses_have_limits_of_their_own(shared: TlsFolder) -> None:
    limits = AddressLimits((("127.0.0.2", 2), ("127.0.0.3", 0)))

    @on_uvloop
    async def run() -> None:
        async with tls_broker(
            shared, max_connections_per_ip=1, max_connections_per_ip_overrides=limits
        ) as broker:
            port, counters = port_of(broker, PLAIN), broker.metrics.connections
            with contextlib.ExitStack() as stack:
                for source, let_in, refused in (
                    ("127.0.0.1", 1, 0),
                    ("127.0.0.1", 1, 1),
                    ("127.0.0.2", 2, 1),
                    ("127.0.0.2", 3, 1),
                    ("127.0.0.2", 3, 2),
                    ("127.0.0.3", 3, 3),
                ):
                    stack.enter_context(connected(port, source))
                    await until(
                        lambda let_in=let_in, refused=refused: (  # type: ignore[misc]
                            (broker.connection_count, counters.rejected_per_ip) == (let_in, refused)
                        ),
                        f"{let_in} are let in, {refused} are not",
                    )

    run()


# --- the start


@pytest.mark.parametrize("missing", ["ssl_certificate_file", "ssl_key_file"])
def test_missing_files_end_the_start(shared: TlsFolder, missing: str, tmp_path: Path) -> None:
    @on_uvloop
    async def run() -> None:
        with pytest.raises(StartupError, match=rf"KAFSCALE_{missing.upper()}=.*cannot be read"):
            async with tls_broker(shared, **{missing: tmp_path / "missing"}):
                pass

    run()


def test_an_encrypted_key_needs_its_password(shared: TlsFolder, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key((shared.folder / "tls.key").read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"canary-4711"),
        )
    )

    @on_uvloop
    async def run() -> None:
        async with (
            tls_broker(shared, ssl_key_file=encrypted, ssl_key_password="canary-4711") as broker,
            tls_client(broker, shared.client_context()) as client,
        ):
            await endpoints(client)
        for wrong in (None, "wrong-4712"):
            with pytest.raises(StartupError, match="no certificate with its key") as refused:
                async with tls_broker(shared, ssl_key_file=encrypted, ssl_key_password=wrong):
                    pass
            assert "471" not in str(refused.value)

    run()
