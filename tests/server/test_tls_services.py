"""Clients' certificates at each connection, also of TLS sessions that are resumed."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.security.tls_files import TlsFiles
from kafscale.server.frames import FrameMemory
from kafscale.server.tls_services import ProtocolTls
from kafscale.server.tls_session import TlsError, TlsSession
from kafscale.settings.tls import TlsSettings
from tests.support.tls_files import TlsFolder

NOW = datetime.now(UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path / "tls")


@pytest.fixture
def services(folder: TlsFolder, clock: Clock) -> ProtocolTls:
    settings = TlsSettings(**folder.mutual_settings)
    memory = FrameMemory(SlabPool(0), MemoryBudget(1024 * 1024))
    return ProtocolTls(TlsFiles(settings), settings, SecurityProtocol.SSL, memory, clock)


def client_of(folder: TlsFolder, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client with a certificate for an hour."""
    context = folder.client_context()
    leaf = folder.authority.issue_cert(common_name="Duke", not_after=NOW + timedelta(hours=1))
    leaf.configure_cert(context)
    context.minimum_version = context.maximum_version = version
    return context


def connect(
    services: ProtocolTls, context: ssl.SSLContext, resumed: ssl.SSLSession | None = None
) -> tuple[TlsSession, ssl.SSLObject]:
    """Both sides after the handshake."""
    server, arrived, sent = services.new_session(), ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(arrived, sent, server_hostname="localhost", session=resumed)
    is_over = is_connected = False
    while not (is_over and is_connected):
        is_connected = _shakes_hands(client)
        server.receive(sent.read())
        is_over = server.shake_hands()
        arrived.write(server.output())
    return server, client


def _shakes_hands(client: ssl.SSLObject) -> bool:
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_resumed_session_of_an_expired_certificate(
    folder: TlsFolder, services: ProtocolTls, clock: Clock, version: ssl.TLSVersion
) -> None:
    context = client_of(folder, version)
    server, client = connect(services, context)
    assert services.principal(server.peer_certificate()).name.startswith("CN=Duke,")
    again, resumed = connect(services, context, client.session)
    assert resumed.session_reused is (version is ssl.TLSVersion.TLSv1_2)
    assert services.principal(again.peer_certificate()).name.startswith("CN=Duke,")
    clock.now += timedelta(hours=2)
    again, _ = connect(services, context, client.session)
    with pytest.raises(TlsError, match="expired"):
        services.principal(again.peer_certificate())


def test_certificate_of_tomorrow_names_nobody(services: ProtocolTls, folder: TlsFolder, clock: Clock) -> None:
    server, _ = connect(services, client_of(folder, ssl.TLSVersion.TLSv1_3))
    clock.now -= timedelta(days=36_500)
    with pytest.raises(TlsError, match="not valid yet"):
        services.principal(server.peer_certificate())
