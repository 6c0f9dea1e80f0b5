"""A broker with TLS: its clients and their names, versions, new certificates."""

import asyncio
import logging
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import NamedAddress, ProtocolMap
from kafscale.settings.principal_mapping import parse_mapping_rules
from tests.support import wire
from tests.support.in_process_broker import until
from tests.support.on_uvloop import on_uvloop
from tests.support.tls_broker import (
    ANYWHERE,
    TlsClient,
    connections,
    coordinator,
    endpoints,
    tls_broker,
    tls_client,
)
from tests.support.tls_files import TlsFolder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> TlsFolder:
    return TlsFolder(tmp_path_factory.mktemp("tls"))


@on_uvloop
async def _produce_and_fetch(files: TlsFolder) -> None:
    async with tls_broker(files) as broker:
        await broker.create_topic()
        batches = [wire.batch([bytes([size % 251]) * size]) for size in (10, 20_000, 900_000)]
        async with tls_client(broker, files.client_context()) as client, broker.connect() as plain:
            for batch in batches:
                assert (await client.produce("topic", 0, batch)).error_code == 0
            over_tls = (await client.fetch("topic", {0: 0}, max_bytes=5_000_000))[0].records
            assert over_tls == (await plain.fetch("topic", {0: 0}, max_bytes=5_000_000))[0].records
            assert len(over_tls) == sum(map(len, batches))


def test_records_are_the_same_over_tls_and_plaintext(shared: TlsFolder) -> None:
    _produce_and_fetch(shared)


def test_each_listener_answers_with_its_own_endpoints(shared: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        names = [ListenerName("INSIDE"), ListenerName("OUTSIDE"), ListenerName("SECRET")]
        protocols = (SecurityProtocol.PLAINTEXT, SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL)
        settings: dict[str, Any] = {
            "listeners": tuple(NamedAddress(name, ANYWHERE) for name in names),
            "listener_security_protocol_map": ProtocolMap(tuple(zip(names, protocols, strict=True))),
            "advertised_listeners": tuple(
                NamedAddress(name, Address(f"{name.lower()}.example.com", 1)) for name in names[:2]
            ),
        }
        async with tls_broker(shared, **settings) as broker:
            bound = {
                name: server.sockets[0].getsockname()[1]
                for name, server in zip(names, broker.process.basics.listener._servers, strict=True)
            }
            expected = {"INSIDE": {(0, "inside.example.com", 1)}, "OUTSIDE": {(0, "outside.example.com", 1)}}
            for name in names:
                context = shared.client_context() if name == "SECRET" else None
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", bound[name], ssl=context, server_hostname="localhost" if context else None
                )
                client = TlsClient(reader, writer)
                seen = await endpoints(client)
                assert seen == [expected.get(name, set())] * 2, name
                found = await coordinator(client)
                assert found == (next(iter(expected[name])) if name in expected else (-1, "", -1)), name
                writer.transport.abort()

    run()


# --- clients' certificates


def test_a_clients_certificate_names_its_principal(shared: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        rules = parse_mapping_rules("RULE:^.*CN=(.*?)(,.*|$)/$1/L")
        settings = {**shared.mutual_settings, "ssl_principal_mapping_rules": rules}
        async with (
            tls_broker(shared, **settings) as broker,
            tls_client(broker, shared.client_context("Duke")) as client,
        ):
            await endpoints(client)
            (connection,) = connections(broker)
            assert str(connection.access.principal) == "User:duke"

    run()


def test_the_principal_is_the_whole_name_by_default(shared: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        async with (
            tls_broker(shared, **shared.mutual_settings) as broker,
            tls_client(broker, shared.client_context("Duke")) as client,
        ):
            await endpoints(client)
            (connection,) = connections(broker)
            assert re.fullmatch(r"User:CN=Duke,OU=[^,]+,O=Tests", str(connection.access.principal))

    run()


@pytest.mark.parametrize("with_certificate", [False, True])
def test_a_requested_certificate_may_be_missing(shared: TlsFolder, with_certificate: bool) -> None:
    @on_uvloop
    async def run() -> None:
        settings = {**shared.mutual_settings, "ssl_client_auth": "requested"}
        async with tls_broker(shared, **settings) as broker:
            name = "Duke" if with_certificate else None
            async with tls_client(broker, shared.client_context(name)) as client:
                await endpoints(client)
                (connection,) = connections(broker)
                assert (str(connection.access.principal) == "User:ANONYMOUS") is not with_certificate

    run()


@pytest.mark.parametrize("whose", ["none", "strange"])
def test_without_a_required_certificate_no_client_comes_in(
    shared: TlsFolder, whose: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared, **shared.mutual_settings) as broker:
            context = shared.client_context()
            if whose == "strange":
                strange = TlsFolder(tmp_path / "strange").authority.issue_cert(common_name="Duke")
                strange.configure_cert(context)
            # With TLS 1.3 the client learns of it when it reads.
            with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
                async with tls_client(broker, context) as client:
                    await endpoints(client)
            await until(lambda: broker.connection_count == 0, "the connection is closed")
            assert broker.metrics.frames_refused[FrameRefusal.TLS] == 1

    run()
    assert "the TLS handshake failed" in caplog.records[-1].__dict__["problem"]


def test_a_certificate_that_no_rule_names_is_refused(shared: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        rules = parse_mapping_rules("RULE:^CN=nobody$/x/")
        async with tls_broker(shared, **shared.mutual_settings, ssl_principal_mapping_rules=rules) as broker:
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                async with tls_client(broker, shared.client_context("Duke")) as client:
                    await endpoints(client)
            await until(lambda: broker.connection_count == 0, "the connection is closed")
            assert broker.metrics.frames_refused[FrameRefusal.TLS] == 1

    run()


# --- versions


@pytest.mark.parametrize(
    ("served", "offered", "works"),
    [
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_2, True),
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_3, True),
        ("TLSv1.3", ssl.TLSVersion.TLSv1_2, False),
        ("TLSv1.2", ssl.TLSVersion.TLSv1_3, False),
        ("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_1, False),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_only_the_versions_set_are_served(
    shared: TlsFolder, served: str, offered: ssl.TLSVersion, works: bool
) -> None:
    @on_uvloop
    async def run() -> None:
        async with tls_broker(shared, ssl_enabled_protocols=tuple(served.split(","))) as broker:
            context = shared.client_context()
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = offered
            if works:
                async with tls_client(broker, context) as client:
                    await endpoints(client)
            else:
                with pytest.raises((ssl.SSLError, OSError)):
                    async with tls_client(broker, context):
                        pass

    run()


# --- new files


def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    files = TlsFolder(tmp_path / "tls")

    @on_uvloop
    async def run() -> None:
        async with tls_broker(files) as broker:
            await broker.create_topic()
            watched = broker.process.basics.tls_files
            assert watched is not None
            async with tls_client(broker, files.client_context()) as before:
                shown = []
                for _ in range(3):
                    files.renew()
                    await asyncio.to_thread(watched.check)
                    # The connection from before goes on.
                    assert (await before.produce("topic", 0, wire.batch([b"x"]))).error_code == 0
                    async with tls_client(broker, files.client_context()) as client:
                        await endpoints(client)
                        shown.append(client.certificate)
                assert len({before.certificate, *shown}) == 4

    run()


def test_broken_files_keep_the_certificate_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = TlsFolder(tmp_path / "tls")

    @on_uvloop
    async def run() -> None:
        async with tls_broker(files) as broker:
            watched = broker.process.basics.tls_files
            assert watched is not None
            files.spoil()
            for _ in range(2):
                await asyncio.to_thread(watched.check)
            assert broker.metrics.tls_files_failed == 1
            async with tls_client(broker, files.client_context()) as client:
                await endpoints(client)
                old = client.certificate
            files.renew()
            await asyncio.to_thread(watched.check)
            async with tls_client(broker, files.client_context()) as client:
                await endpoints(client)
                assert client.certificate != old

    with caplog.at_level(logging.ERROR):
        run()
    (failure,) = [record for record in caplog.records if "kept the TLS certificate before" in record.message]
    assert "KAFSCALE_SSL_CERTIFICATE_FILE" in failure.__dict__["problem"]
